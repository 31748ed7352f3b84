"""polars and DuckDB read tables by themselves: their columns and conditions reach the reader."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pytest

import sleeper
from sleeper.engine.sql.other_engines import DuckdbDataset, arrow_condition
from sleeper.engine.sql.table_scan import TableDataset
from sleeper.errors import BadRequest, DataDamaged
from sleeper.state.plans.key_conditions import UNKNOWN
from sleeper.tables import sql as reading

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
    ]
)
START = datetime(2026, 1, 1, tzinfo=UTC)
IDS = [f"{letter}{n}" for letter in ("a", "b", 'q"', "q\\", "ü") for n in range(20)]
ROWS = [
    {
        "id": IDS[n % 100],
        "at": START + timedelta(hours=n // 100),
        "n": None if n % 7 == 0 else n % 13,
        "x": (1.5, float("nan"), -0.0, 0.0, None, float("inf"))[n % 6],
        "s": (None, "x", "é", "")[n % 4],
    }
    for n in range(1000)
]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table of three leaves with two files each."""
    instance = sleeper.connect(tmp_path_factory.mktemp("engines"), create=True)
    made = instance.create_table("t", SCHEMA, row_keys=["id", "at"], split_points=["b", "q"])
    made.ingest(ROWS[::2])
    made.ingest(ROWS[1::2])
    return made


@pytest.fixture
def reads(monkeypatch):
    """What each scan reads: its number of regions, or 0 for the whole table; and its columns."""
    seen = []
    rows = reading._RegionsRead.rows

    def noted(self, columns):
        whole = all(each.ranges[0].max is None for each in self.regions) and all(
            each.ranges[0].min == "" and each.ranges[1].max is None for each in self.regions
        )
        seen.append((0 if whole else len(self.regions), columns))
        return rows(self, columns)

    monkeypatch.setattr(reading._RegionsRead, "rows", noted)
    return seen


COLUMN = pl.col
CONDITIONS = [
    (COLUMN.id == "a3", "id = 'a3'", 1),
    ((COLUMN.id == "a3") & (COLUMN.x > 1), "id = 'a3' AND x > 1", 1),
    (COLUMN.id.is_in(["a3", "b4", "zz"]), "id IN ('a3', 'b4', 'zz')", 3),
    (COLUMN.id.str.starts_with("b1"), None, 1),
    (~(COLUMN.id >= "a5"), "NOT (id >= 'a5')", 1),
    ((COLUMN.id < "a2") | (COLUMN.id > "ü8"), "id < 'a2' OR id > 'ü8'", 2),
    (COLUMN.id == 'q"3', "id = 'q\"3'", 1),
    (COLUMN.id == "q\\3", "id = 'q\\3'", 1),
    (COLUMN.id.is_between(pl.lit("a"), pl.lit("b0")), "id BETWEEN 'a' AND 'b0'", 1),
    (pl.lit("ü") <= COLUMN.id, "'ü' <= id", 1),
    (COLUMN.at < START + timedelta(hours=1), "\"at\" < '2026-01-01T01:00:00Z'::TIMESTAMPTZ", None),
    (COLUMN.x > 1, "x > 1", 0),
    ((COLUMN.id == "a3") | (COLUMN.x > 1), "id = 'a3' OR x > 1", 0),
    (COLUMN.x == 0, "x = 0", 0),
    (COLUMN.x.is_nan(), "isnan(x)", 0),
    (COLUMN.n.is_null() | (COLUMN.n == 3), "n IS NULL OR n = 3", 0),
    (COLUMN.n.is_in([1, 2]), "n IN (1, 2)", 0),
    (~COLUMN.n.is_in([1, 2]), "n NOT IN (1, 2)", 0),
    (COLUMN.s != "x", "s <> 'x'", 0),
    (COLUMN.id.str.to_uppercase() == "A3", "upper(id) = 'A3'", 0),
    ((COLUMN.n + 1 == 3) & (COLUMN.id < "b"), "n + 1 = 3 AND id < 'b'", None),
]


@pytest.fixture(scope="module")
def arrow():
    """The rows in memory."""
    return pa.Table.from_pylist(ROWS, SCHEMA)


@pytest.mark.parametrize(("condition", "regions"), [(each[0], each[2]) for each in CONDITIONS])
def test_polars_reads_what_its_conditions_need(table, arrow, reads, condition, regions):
    """The same rows as of a frame in memory, from as few regions as the conditions say."""
    wanted = pl.DataFrame(arrow).lazy().filter(condition).select("s", "id").collect()

    found = table.scan_polars().filter(condition).select("s", "id").collect()

    assert sorted(found.rows(), key=repr) == sorted(wanted.rows(), key=repr)
    assert regions is None or [each[0] for each in reads] == [regions]
    assert {"s", "id"} <= {*reads[0][1]} < {*SCHEMA.names}


@pytest.mark.parametrize(
    ("condition", "regions"), [(each[1], each[2]) for each in CONDITIONS if each[1]]
)
def test_duckdb_reads_what_its_conditions_need(table, arrow, reads, condition, regions):
    """The same rows as of a table of its own, from as few regions as it passes on."""
    connection = duckdb.connect()
    connection.register("given", arrow)
    connection.execute("CREATE TABLE own AS SELECT * FROM given")
    table.to_duckdb(connection, "t")
    statement = f"SELECT s, id FROM {{}} WHERE {condition}"

    found = connection.execute(statement.format("t")).fetchall()

    assert sorted(found, key=repr) == sorted(
        connection.execute(statement.format("own")).fetchall(), key=repr
    )
    assert regions is None or [each[0] for each in reads] == [regions]
    assert {"s", "id"} <= {*reads[0][1]} < {*SCHEMA.names}


def test_a_table_is_as_it_was_when_it_was_given(tmp_path):
    """Rows that are added later are seen when it is given again."""
    table = sleeper.connect(tmp_path / "i", create=True).create_table(
        "My.T", pa.schema([("id", pa.int64())]), row_keys=["id"]
    )
    table.ingest([{"id": n} for n in range(5)])
    frame, connection = table.scan_polars(ordered=True), duckdb.connect()
    table.to_duckdb(connection)
    table.ingest([{"id": 9}])
    count = 'SELECT count(*) FROM "My.T" a JOIN "My.T" b USING (id)'

    assert frame.collect().to_dict(as_series=False) == {"id": [0, 1, 2, 3, 4]}
    assert frame.head(2).collect().height == 2
    assert frame.select(pl.len()).collect().item() == 5
    assert connection.execute(count).fetchall() == [(5,)]
    table.to_duckdb(connection)
    assert connection.execute(count).fetchall() == [(6,)]
    assert table.scan_polars().collect().height == 6


def test_merged_rows_are_read_by_other_engines(tmp_path):
    """A table with an aggregation, twice in a statement: our merges run beside the engine."""
    schema = pa.schema([("id", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
    table = sleeper.connect(tmp_path / "i", create=True).create_table(
        *("t", schema), row_keys=["id"], properties={"sleeper.table.aggregations": "sum(n)"}
    )
    for _ in range(3):
        table.ingest(pa.table({"id": range(9_000), "n": [1] * 9_000}))
    connection = duckdb.connect()
    table.to_duckdb(connection)
    frame = table.scan_polars()

    found = connection.execute("SELECT sum(a.n + b.n) FROM t a JOIN t b USING (id)").fetchall()
    joined = frame.join(table.scan_polars(), on="id").select(pl.col.n + pl.col.n_right).sum()

    assert found == [(54_000,)]
    assert joined.collect().item() == 54_000


_IN_A_THREAD_OF_POLARS = """
import polars as pl, pyarrow as pa, sleeper
table = sleeper.connect("memory://").create_table(
    "t", pa.schema([("id", pa.int64()), ("n", pa.int64())]), row_keys=["id", "n"]
)
for _ in range(2):
    table.ingest(pa.table({"id": [1] * 40, "n": range(40)}))
frame = table.scan_polars(ordered=True).filter(pl.col("id") == 1).select("id")
print(frame.collect().height)
"""


def test_the_process_survives_the_end_of_a_thread_of_polars_that_read_pages():
    """What such a thread had to itself is deleted as it ends, where Python may not be called."""
    # when: it is a process of its own, because this was a segmentation fault
    run = subprocess.run(
        [sys.executable, "-c", _IN_A_THREAD_OF_POLARS], capture_output=True, text=True, check=False
    )

    # then
    assert (run.returncode, run.stdout) == (0, "80\n")


def test_an_error_of_a_file_ends_the_read(tmp_path):
    """polars raises it as it is; DuckDB with its text."""
    table = sleeper.connect(tmp_path / "i", create=True).create_table(
        "t", pa.schema([("id", pa.int64())]), row_keys=["id"]
    )
    table.ingest([{"id": n} for n in range(9)])
    frame, connection = table.scan_polars(), duckdb.connect()
    table.to_duckdb(connection)
    (path,) = (tmp_path / "i").rglob("*.parquet")
    path.unlink()

    with pytest.raises(DataDamaged, match=path.name):
        frame.collect()
    with pytest.raises(duckdb.Error, match=path.name):
        connection.execute("SELECT * FROM t")


def test_wrong_arguments_are_refused(table):
    """What is no connection, no name, no bool."""
    with pytest.raises(BadRequest, match=r"duckdb.connect\(\)"):
        table.to_duckdb("file.duckdb")
    for name in ("", 5):
        with pytest.raises(BadRequest, match="name must be"):
            table.to_duckdb(duckdb.connect(), name)
    with pytest.raises(BadRequest, match="ordered must be"):
        table.scan_polars(ordered="yes")


@pytest.mark.parametrize("kind", [DuckdbDataset, TableDataset])
def test_no_method_of_pyarrow_reads_the_empty_dataset_below(kind):
    """Every public method of its datasets is ours, so a new one of pyarrow is noticed."""
    inherited = {
        name
        for name in dir(pads.InMemoryDataset)
        if not name.startswith("_") and callable(getattr(pads.InMemoryDataset, name))
    }

    assert inherited - {*vars(kind)} == set()
    for name in inherited - {"scanner", "get_fragments"}:
        with pytest.raises(NotImplementedError):
            getattr(kind, name)(None)


@pytest.mark.parametrize(
    "expression",
    [
        pc.field("id") == pc.field("s"),
        pc.utf8_upper(pc.field("id")) == "A",
        pc.field("id") == pa.scalar("a", pa.large_string()),
        pc.field("n") == 1.5,
        (pc.field("id") == "a") & pc.field("id").isin(["a"]),
        pc.field("id") == 'a") and (n == 1',
        pc.field("at") == datetime(2026, 1, 1),
        pc.scalar(True),
    ],
)
def test_an_expression_that_is_not_understood_narrows_nothing(expression):
    """Or one whose text would mean something else: what was read must be equal to it."""
    found = arrow_condition(expression, SCHEMA)

    assert found == UNKNOWN or found.value == 'a") and (n == 1'
