"""Rows leave a table as Parquet files, and may go into another one."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sleeper
from sleeper.engine.writing.export import ExportTarget
from sleeper.errors import (
    AlreadyExists,
    DataDamaged,
    QueryInvalid,
    StorageFailed,
    TableNotFound,
    UrlInvalid,
    VersionNotFound,
)
from sleeper.model.keys import key_type, smallest_value
from sleeper.model.ranges import whole_region
from sleeper.state.plans.exports import leaves_to_cut, plan_export
from sleeper.storage.local.folder import FolderObjects
from sleeper.storage.memory import MemoryObjects
from sleeper.tables import export
from sleeper.tables.export import write_parts
from tests.any_order.whole_instance import open_instance
from tests.spark.any_tables import multiset, rows_of, schemas
from tests.stories.test_trouble import PRELUDE, run_with_mounts

SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("n", pa.int64(), nullable=False)])
ROWS = [{"id": key, "n": n} for n, key in enumerate("abcdefghijklmnopqrstuvwxyz")]
LARGE = 2_100_000  # rows; a part ends with the leaf that brings it over a million


@pytest.fixture
def instance(tmp_path):
    return sleeper.connect(tmp_path / "instance", create=True)


@pytest.fixture
def table(instance):
    """Three leaves, which meet at g and p; two files' rows in each."""
    table = instance.create_table("letters", SCHEMA, row_keys=["id"], split_points=["g", "p"])
    table.ingest(ROWS[::2])
    table.ingest(ROWS[1::2])
    return table


@pytest.fixture
def large(instance):
    """Two leaves, each so large that it has a part of its own."""
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
    table = instance.create_table("large", schema, row_keys=["id"], split_points=[LARGE // 2])
    numbers = np.arange(LARGE)
    table.ingest(pa.table({"id": numbers, "n": numbers[::-1]}))
    return table


def read(folder: Path) -> pa.Table:
    return pa.concat_tables(pq.read_table(path) for path in sorted(folder.glob("*.parquet")))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class TestWhatIsWritten:
    """Whole tables, ranges, columns, versions."""

    def test_is_the_table_in_key_order(self, table, tmp_path):
        """The rows and types that a query has; small leaves share a file."""
        result = table.export(tmp_path / "out")

        assert read(tmp_path / "out").equals(table.query().to_arrow())
        assert result.files == ("part-00000.parquet",)
        assert (result.rows, result.transaction) == (26, table.state().number)
        assert result.took_s >= 0
        assert names_in(tmp_path) == ["instance", "out"]
        assert names_in(tmp_path / "out") == ["_SUCCESS", "part-00000.parquet"]
        assert json.loads((tmp_path / "out" / "_SUCCESS").read_text()) == {
            "transaction": result.transaction,
            "rows": 26,
            "parts": [{"name": "part-00000.parquet", "rows": 26}],
        }

    def test_is_a_file_for_each_large_leaf(self, large, tmp_path):
        """Names sort as the rows do; `progress` is told of each file."""
        told = []

        result = large.export(tmp_path / "out", progress=lambda *counts: told.append(counts))

        parts = [pq.read_metadata(tmp_path / "out" / name) for name in result.files]
        assert [part.num_rows for part in parts] == [LARGE // 2, LARGE // 2]
        assert told == [(1, 2), (2, 2)]
        assert read(tmp_path / "out")["id"].to_numpy().tolist() == [*range(LARGE)]

    @pytest.mark.parametrize(
        ("asked", "wanted"),
        [
            ({"range": {"id": ("e", "r")}}, ROWS[4:17]),
            ({"regions": [{"id": ("y", None)}, {"id": ("b", "d")}]}, ROWS[1:3] + ROWS[24:]),
            ({"range": {"id": ("e", False, "g", True)}, "columns": ["n"]}, [{"n": 5}, {"n": 6}]),
            ({"range": {"id": ("zz", None)}}, []),
            ({"prefix": {"id": "c"}}, ROWS[2:3]),
            ({"prefix": {"id": ""}}, ROWS),
        ],
    )
    def test_is_what_was_asked_for(self, table, tmp_path, asked, wanted):
        """Arguments mean what they mean for queries (rule EXP-2)."""
        result = table.export(tmp_path / "out", **asked)

        found = read(tmp_path / "out")
        assert found.to_pylist() == wanted == table.query(**asked).to_pylist()
        assert found.column_names == asked.get("columns", ["id", "n"])
        assert result.rows == len(wanted)

    def test_is_the_table_as_it_was(self, table, tmp_path):
        """At a transaction number, which the result repeats."""
        before = table.state().number
        table.ingest([{"id": "late", "n": 0}])

        result = table.export(tmp_path / "out", as_of=before)

        assert read(tmp_path / "out").to_pylist() == ROWS
        assert result.transaction == before

    def test_of_an_empty_table_is_its_schema(self, instance, tmp_path):
        """One file without rows, which goes into a table as any other."""
        table = instance.create_table("none", SCHEMA, row_keys=["id"])

        result = table.export(tmp_path / "out")

        assert (result.files, result.rows) == (("part-00000.parquet",), 0)
        assert read(tmp_path / "out").schema.equals(table.arrow_schema)
        assert table.ingest(tmp_path / "out").rows_read == 0

    def test_is_processed(self, tmp_path):
        """EXP-3: rows of equal keys are united, old ones left out, as queries do."""
        now = datetime(2026, 6, 1, tzinfo=UTC)
        numbers = count()
        instance = open_instance(
            MemoryObjects(lambda: now), lambda: f"{next(numbers):08x}-id", lambda: now
        )
        schema = pa.schema(
            [("id", pa.string()), *(pa.field(n, pa.int64(), nullable=False) for n in ("n", "at"))]
        )
        table = instance.create_table(
            "t",
            schema,
            row_keys=["id"],
            properties={
                "sleeper.table.filters": "ageOff(at,3600000)",
                "sleeper.table.aggregations": "sum(n),max(at)",
            },
        )
        at = int(now.timestamp() * 1000)
        table.ingest([{"id": "a", "n": 1, "at": at}, {"id": "b", "n": 1, "at": at}])
        now += timedelta(minutes=45)
        table.ingest([{"id": "a", "n": 2, "at": at + 2_700_000}])
        now += timedelta(minutes=45)

        table.export(tmp_path / "out", columns=["n", "id"])

        assert read(tmp_path / "out").to_pylist() == table.query(columns=["n", "id"]).to_pylist()
        assert [row["id"] for row in read(tmp_path / "out").to_pylist()] == ["a"]

    def test_has_the_rows_of_split_partitions_once(self, instance, tmp_path):
        """Files that still lie on a parent are read for each leaf, its own keys alone (PRT-13)."""
        table = instance.create_table(
            "t",
            SCHEMA,
            row_keys=["id"],
            properties={"sleeper.table.partition.splitting.threshold": "5"},
        )
        table.ingest(ROWS)
        table.split_partitions()
        (reference,) = table.references()
        assert not table.state().tree.partition(reference.partition_id).is_leaf

        result = in_parts(table, tmp_path / "out", part_rows=1)

        assert len(result.parts) > 1
        assert read(tmp_path / "out").to_pylist() == ROWS


class TestALargeLeaf:
    """It is several files, so that several tasks of Spark can write them."""

    def test_is_cut_where_its_sketches_say(self, table, tmp_path, monkeypatch):
        """Into parts of about the same number of rows, in key order; others share a file."""
        cut_leaves_of(monkeypatch, 3)

        result = table.export(tmp_path / "out", range={"id": ("d", None)})

        rows = [pq.read_metadata(tmp_path / "out" / name).num_rows for name in result.files]
        assert rows == [3, 3, 3, 3, 3, 4, 4]
        assert read(tmp_path / "out").to_pylist() == ROWS[3:]

    def test_is_cut_although_its_files_are_shared(self, instance, tmp_path, monkeypatch):
        """A file that is still the parent's counts for the leaf by what its sketch says of it."""
        table = instance.create_table(
            "t",
            SCHEMA,
            row_keys=["id"],
            properties={"sleeper.table.partition.splitting.threshold": "20"},
        )
        table.ingest(ROWS)
        table.split_partitions()
        cut_leaves_of(monkeypatch, 4)

        result = table.export(tmp_path / "out")

        rows = [pq.read_metadata(tmp_path / "out" / name).num_rows for name in result.files]
        assert rows == [4, 4, 5, 4, 4, 5]
        assert read(tmp_path / "out").to_pylist() == ROWS

    def test_of_one_key_is_one_file(self, instance, tmp_path, monkeypatch):
        """Equal keys stay together: they may be united."""
        properties = {"sleeper.table.aggregations": "sum(n)"}
        table = instance.create_table("t", SCHEMA, row_keys=["id"], properties=properties)
        for n in range(8):
            table.ingest([{"id": "same", "n": n}, {"id": "other", "n": n}])
        cut_leaves_of(monkeypatch, 2)

        result = table.export(tmp_path / "out")

        assert read(tmp_path / "out").to_pylist() == table.query().to_pylist()
        assert result.rows == 2

    def test_without_a_sketch_is_one_file(self, table, tmp_path, monkeypatch):
        """Where a sketch cannot be read, nothing is known of where to cut."""
        cut_leaves_of(monkeypatch, 3)
        monkeypatch.setattr("sleeper.tables.export.leaf_keys", lambda *_: None)

        result = table.export(tmp_path / "out")

        assert len(result.files) == 3
        assert read(tmp_path / "out").to_pylist() == ROWS


def cut_leaves_of(monkeypatch, rows):
    """Cut leaves into parts of so many rows, if they have twice as many."""
    monkeypatch.setattr(
        "sleeper.tables.export.leaves_to_cut", partial(leaves_to_cut, cut_rows=rows)
    )


def in_parts(table, folder, part_rows, cut_rows=1_000):
    """Export in parts of few rows."""
    opened = table._current()
    state = opened.store.refresh()
    everything = [whole_region(table.schema)]
    with pytest.MonkeyPatch.context() as monkeypatch:
        cut_leaves_of(monkeypatch, cut_rows)
        cuts = export._cuts(opened, state, everything, None)
    plan = plan_export(state, table.schema, everything, part_rows=part_rows, cuts=cuts)
    target = ExportTarget(place=FolderObjects(folder), export_id="e")
    return write_parts(opened.reader, plan, target, now_ms=0)


class TestTheWayBack:
    """An export goes into a table as any folder of Parquet files does."""

    @settings(max_examples=25)
    @given(st.data())
    def test_brings_every_row_of_every_type(self, tmp_path_factory, data):
        """Whatever the schemas, the rows, and the split points of both tables."""
        folder = tmp_path_factory.mktemp("export")
        schema = data.draw(schemas())
        rows = data.draw(rows_of(schema))
        least = smallest_value(key_type(schema.row_keys[0]))
        keys = {*rows[schema.row_key_names[0]].to_pylist()} - {least}
        points = st.sets(st.sampled_from(sorted(keys)), max_size=3) if keys else st.just(())
        with sleeper.connect("memory://") as instance:
            tables = [
                instance.create_table(name, schema, split_points=sorted(data.draw(points)))
                for name in ("from", "to")
            ]
            half = data.draw(st.integers(0, rows.num_rows))
            tables[0].ingest(rows.slice(0, half))
            tables[0].ingest(rows.slice(half))

            sizes = st.integers(1, 50)
            in_parts(tables[0], folder, part_rows=data.draw(sizes), cut_rows=data.draw(sizes))
            result = tables[1].ingest(folder)

            found = tables[1].query().to_arrow()
        assert result.rows_written == rows.num_rows
        assert found.schema.equals(tables[0].arrow_schema)
        assert multiset(found) == multiset(rows)

    def test_may_be_a_bulk_import(self, table, instance, tmp_path):
        """By the folder too; what is no Parquet file of rows is passed over."""
        table.export(tmp_path / "out")
        copy = instance.create_table(
            "copy",
            table.schema,
            properties={"sleeper.table.bulk.import.min.leaf.partitions": "1"},
        )

        result = copy.bulk_import(tmp_path / "out", engine="local")

        assert (result.rows_written, result.leaves_after) == (26, 1)
        assert copy.query().to_pylist() == ROWS


class TestWhatGoesWrong:
    """The table is only read; the target is whole, or as it was."""

    @pytest.mark.parametrize(
        ("asked", "error"),
        [
            ({"columns": ["none"]}, QueryInvalid),
            ({"range": {"n": (1, 2)}}, QueryInvalid),
            ({"range": {}, "regions": []}, QueryInvalid),
            ({"prefix": {"id": "a"}, "range": {"id": ("a", "b")}}, QueryInvalid),
            ({"prefix": None}, QueryInvalid),
            ({"as_of": 99}, VersionNotFound),
        ],
    )
    def test_questions_that_cannot_be(self, table, tmp_path, asked, error):
        """They are refused before anything is made."""
        with pytest.raises(error):
            table.export(tmp_path / "out", **asked)

        assert names_in(tmp_path) == ["instance"]

    @pytest.mark.parametrize("target", ["", " ", "gopher://x/y", "memory://"])
    def test_targets_that_are_none(self, table, target, tmp_path, monkeypatch):
        """The kinds that there are, are named."""
        monkeypatch.chdir(tmp_path)

        with pytest.raises(UrlInvalid, match="s3://bucket/folder"):
            table.export(target)

        assert names_in(tmp_path) == ["instance"]

    def test_a_target_that_is_taken(self, table, tmp_path):
        """Nothing of it is replaced; a `file://` URL is a folder too."""
        table.export((tmp_path / "out").as_uri())
        before = (tmp_path / "out" / "_SUCCESS").stat().st_mtime_ns

        with pytest.raises(AlreadyExists, match="name a folder that does not exist yet"):
            table.export(tmp_path / "out")
        with pytest.raises(StorageFailed, match="cannot write"):
            table.export(tmp_path / "out" / "_SUCCESS" / "below")

        assert (tmp_path / "out" / "_SUCCESS").stat().st_mtime_ns == before

    def test_a_damaged_file(self, large, tmp_path):
        """It is named; of the part that had been written before, nothing is left."""
        lost = large.references()[-1].filename
        (tmp_path / "instance" / large.table_id / lost).unlink()

        with pytest.raises(DataDamaged, match=lost):
            large.export(tmp_path / "new" / "out")

        assert names_in(tmp_path) == ["instance"]

    def test_a_table_that_is_deleted_meanwhile(self, large, instance, tmp_path):
        """The message says so, rather than that files are missing."""
        with pytest.raises(TableNotFound, match="was deleted"):
            large.export(tmp_path / "out", progress=lambda *_: instance.delete_table("large"))
        with pytest.raises(TableNotFound, match="was deleted"):
            large.export(tmp_path / "out")

        assert names_in(tmp_path) == ["instance"]

    def test_an_interruption(self, large, tmp_path):
        """Ctrl-C leaves nothing."""

        def interrupt(*_):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            large.export(tmp_path / "out", progress=interrupt)

        assert names_in(tmp_path) == ["instance"]

    def test_a_full_disk(self, tmp_path):
        """In the middle of a part; when there is room, the same call does it."""
        (tmp_path / "full").mkdir()
        lines = run_with_mounts(
            f"""
            mount -t tmpfs -o size=2m none "$FOLDER/full"
            "$PYTHON" - <<'END'
{PRELUDE}
table = sleeper.connect(url, create=True).create_table(
    "t", pa.schema([("id", pa.string()), ("n", pa.int64())]), row_keys=["id"])
table.ingest(many(1))
full = Path(os.environ["FOLDER"]) / "full"
print(attempt(lambda: table.export(full / "a" / "out")))
print(os.listdir(full))
print(attempt(lambda: table.export(full / "out", range={{"id": ("1", "11")}}).files))
END
""",
            tmp_path,
        )

        answer, left, smaller = lines
        assert answer.startswith("StorageFull: ")
        assert "part-00000.parquet" in answer
        assert left == "[]"
        assert smaller == "('part-00000.parquet',)"

    def test_a_mounted_folder(self, tmp_path):
        """It cannot be replaced, which is said before rows are read."""
        (tmp_path / "out").mkdir()
        (answer,) = run_with_mounts(
            f"""
            mount -t tmpfs none "$FOLDER/out"
            "$PYTHON" - <<'END'
{PRELUDE}
table = sleeper.connect(url, create=True).create_table(
    "t", pa.schema([("id", pa.string())]), row_keys=["id"])
print(attempt(lambda: table.export(os.environ["FOLDER"] + "/out")))
END
""",
            tmp_path,
        )

        assert answer.startswith("AlreadyExists: ")
        assert "name a folder inside it" in answer
