"""A bulk import may replace rows by their keys; here by one machine (rule DEL-3)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import BadRequest, InputRefused, RowsChanged
from tests.unit.interfaces.command_line import sleeper as command

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
LEAVES = {
    "sleeper.table.bulk.import.min.leaf.partitions": 4,
    "sleeper.table.partition.splitting.min.rows": 1,
}


def rows(keys, value):
    numbers = [*keys]
    return pa.table({"k": numbers, "v": [value] * len(numbers)}, schema=SCHEMA)


@pytest.fixture(params=[1, 2], ids=["format 1", "format 2"])
def table(tmp_path, request):
    """A table of one leaf with 2,000 rows; an import divides it into four."""
    instance = sleeper.connect(tmp_path / "instance", create=True)
    made = instance.create_table("t", SCHEMA, row_keys=["k"], properties=LEAVES)
    if request.param == 1:
        made.downgrade()
    made.ingest(rows(range(2_000), "old"))
    return made


@pytest.mark.parametrize("engine", ["auto", "local"])
@pytest.mark.parametrize("of", ["files", "rows"])
def test_replaces_rows_and_adds_new_ones_in_leaves_that_it_made(table, tmp_path, engine, of):
    """Given rows of which half have keys that are there, each key has its newest row, once."""
    new = rows(range(1_000, 3_000), "new")
    pq.write_table(new, tmp_path / "new.parquet")
    before = table.refresh()

    done = table.bulk_import(
        str(tmp_path / "new.parquet") if of == "files" else new, engine=engine, upsert=True
    )

    assert done.engine == "local"
    assert (done.rows_written, done.leaves_before, done.leaves_after) == (2_000, 1, 4)
    found = {row["k"]: row["v"] for row in table.query().to_pylist()}
    assert found == {k: "old" if k < 1_000 else "new" for k in range(3_000)}
    assert table.count() == 3_000
    assert table.count(as_of=before) == 2_000
    assert table.count(as_of=done.transaction - 1, where="v = 'new'") == 0
    assert table.verify().clean


def test_is_committed_once_by_its_job(table):
    """Given a job that was committed, later rows of its keys stay when it runs again."""
    table.bulk_import(rows(range(100), "first"), "job", upsert=True)
    table.upsert(rows([1], "second"))

    again = table.bulk_import(rows(range(100), "first"), "job", upsert=True)

    assert again.already_committed
    assert table.query(key=1).to_pylist() == [{"k": 1, "v": "second"}]


@pytest.mark.parametrize("upsert", [False, True])
def test_leaves_that_it_divides_are_no_change_of_others(table, upsert):
    """Given a version that it relies on, it is committed; given a row of others since, it is not."""
    read = table.refresh()
    new = rows(range(3_000, 5_000), "new")

    done = table.bulk_import(new, upsert=upsert, if_unchanged_since=read)
    with pytest.raises(RowsChanged):
        table.bulk_import(new, upsert=upsert, if_unchanged_since=read)

    assert (done.leaves_before, done.leaves_after) == (1, 4)
    assert table.count() == 4_000


class TestRefused:
    """What it cannot do changes nothing."""

    def test_a_key_that_is_there_twice(self, table):
        """As by every upsert; the leaves may have been divided already."""
        with pytest.raises(InputRefused, match="two rows of the input have the key"):
            table.bulk_import(rows([7, 8, 7, *range(3_000, 3_500)], "new"), upsert=True)

        assert table.count(where="v = 'old'") == table.count() == 2_000

    def test_a_committer(self, table):
        """It would commit the rows alone."""
        with pytest.raises(BadRequest, match="leave out send_commit"):
            table.bulk_import(rows([1], "new"), upsert=True, send_commit=print)
        with pytest.raises(BadRequest, match="leave out if_unchanged_since"):
            table.bulk_import(rows([1], "new"), send_commit=print, if_unchanged_since=1)

    def test_a_table_that_unites_rows(self, tmp_path):
        """Sums would be replaced by their parts."""
        schema = pa.schema([("k", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
        instance = sleeper.connect(tmp_path / "sums", create=True)
        sums = {"sleeper.table.aggregations": "sum(n)"}
        table = instance.create_table("t", schema, row_keys=["k"], properties=sums)

        with pytest.raises(BadRequest, match="unites rows of equal keys"):
            table.bulk_import([{"k": 1, "n": 1}], upsert=True)


def test_the_command_line(table, tmp_path):
    """`sleeper bulk-import --upsert` does it; plans are for imports without it."""
    pq.write_table(rows([5, *range(5_000, 5_099)], "new"), tmp_path / "new.parquet")
    given = ("t", str(tmp_path / "new.parquet"), "--instance", table._context.url, "--upsert")

    done = command("bulk-import", *given)
    explained = command("bulk-import", *given, "--explain")
    overtaken = command("bulk-import", *given, "--if-unchanged-since", "1")

    assert done.exit_code == 0
    assert "100 rows" in done.output
    assert table.query(keys=[5, 5_000]).to_arrow()["v"].to_pylist() == ["new", "new"]
    assert (explained.exit_code, overtaken.exit_code) == (2, 1)
    assert "has changed since transaction 1" in overtaken.stderr
    assert "--upsert is for imports: leave out --explain" in explained.stderr
