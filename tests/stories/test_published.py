"""Other engines read tables in place, as Delta; test_published_iceberg.py has Iceberg."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import deltalake
import polars as pl
import pyarrow as pa
import pytest

import sleeper
from sleeper.engine.published import delta
from sleeper.errors import BadRequest, NothingToPublish, StorageFailed
from sleeper.model.schema import Field, ListType, MapType, Primitive, Schema, StructType
from sleeper.state.findings import FindingKind
from sleeper.storage.local.folder import FolderObjects
from tests.stories.published_tables import KEYS, killed_after, people, rows, table_of_keys


@pytest.fixture
def instance(tmp_path):
    with sleeper.connect(str(tmp_path / "instance"), create=True) as made:
        yield made


@pytest.fixture
def table(instance):
    return people(instance)


def seen(location: str, where: str = "true"):
    """The count and the sum that delta-rs sees."""
    engine = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(location))
    found = engine.execute(f"SELECT count(*) c, coalesce(sum(n), 0) s FROM t WHERE {where}")
    return tuple(pa.table(found.read_all()).to_pylist()[0].values())


class TestVersions:
    """Which version readers see (PUB-1)."""

    def test_readers_see_the_rows_in_the_order_of_the_users_columns(self, table):
        """Data files begin with the row key; readers have the columns as the table was made."""
        table.ingest(rows(0, 300))

        done = table.publish("delta")

        read = pl.read_delta(done.location)
        assert read.columns == ["n", "key"]
        assert sorted(read["n"].to_list()) == [*range(300)]
        assert (done.transaction, done.version, done.lag, done.rows) == (2, 0, 0, 300)

    def test_nested_values_are_read_as_they_are(self, instance):
        """Structs, lists of lists, and nulls inside lists and maps."""
        texts = ListType(ListType(Primitive.STRING), nullable=True)
        schema = Schema(
            row_keys=(Field("key", Primitive.STRING),),
            values=(
                Field("s", StructType((("a", Primitive.LONG), ("l", texts))), nullable=True),
                Field("m", MapType(Primitive.STRING, texts, nullable=True), nullable=True),
            ),
        )
        table = instance.create_table("nested", schema)
        given = [
            {"key": "a", "s": {"a": 1, "l": [["x"], None]}, "m": {"q": [[]], "r": None}},
            {"key": "b", "s": None, "m": None},
        ]
        table.ingest(given)

        done = table.publish("delta")

        assert pl.read_delta(done.location).to_arrow().to_pylist(maps_as_pydicts="strict") == given

    def test_each_version_is_published_once(self, table):
        """Publishing again without a change writes nothing."""
        table.ingest(rows(0, 10))

        done = [table.publish("delta") for _ in range(3)]

        assert [each.is_new for each in done] == [True, False, False]
        assert deltalake.DeltaTable(done[0].location).version() == 0

    def test_a_shared_file_is_not_shown_with_rows_that_a_compaction_wrote_anew(self, instance):
        """
        After a split and the compaction of one leaf, the files that the table references have more
        rows than it has: readers go on to see the version before, and the lag is told.
        """
        table = people(instance, partition_splitting_threshold="400")
        table.ingest(rows(0, 400))
        table.split_partitions()
        for number in range(11):
            table.ingest(rows(0, 200), f"job {number}")
        before = table.publish("delta")
        table.compact()

        after = table.publish("delta")
        clean = table.publish("delta", make_clean=True)

        assert not after.is_new
        assert after.lag > 0
        assert "1 files have rows that were deleted, or are in newer files too" in after.obstacles
        assert (before.rows, clean.rows, clean.lag) == (2600, 2600, 0)
        assert seen(clean.location)[0] == table.count() == 2600

    def test_the_newest_version_that_can_be_read_is_published_though_later_ones_cannot(
        self, instance
    ):
        """A commit came before the compaction of one leaf: it is published afterwards."""
        table = people(instance, partition_splitting_threshold="400")
        table.ingest(rows(0, 400))
        table.split_partitions()
        for number in range(11):
            table.ingest(rows(0, 200), f"job {number}")
        published = table.publish("delta").transaction
        number = table.ingest(rows(500, 501)).transaction
        table.compact()

        done = table.publish("delta")

        assert done.is_new
        assert done.transaction >= number > published
        assert seen(done.location)[0] == 2601

    def test_rows_that_are_to_be_united_are_published_when_they_are(self, instance):
        """Until a leaf has one file, readers see the version before, which needed no sums."""
        table = people(instance, aggregations="sum(n)")
        table.ingest(rows(0, 10))
        table.ingest(rows(5, 15))

        first = table.publish("delta")
        second = table.publish("delta", make_clean=True)

        assert (first.transaction, first.lag, first.rows) == (2, 1, 10)
        assert "1 leaves have several files" in first.obstacles
        assert seen(second.location) == (15, sum(range(15)) + sum(range(5, 10)))

    def test_rows_from_before_a_table_had_sums_are_not_shown(self, instance):
        """One file of a leaf may have rows that were there before and are to unite: nothing can be
        published until they are, and the error names what to do."""
        table = people(instance)
        table.ingest([*rows(0, 10), *rows(0, 10)])
        table.set_properties({"sleeper.table.aggregations": "sum(n)"})

        with pytest.raises(NothingToPublish, match="before rows were united"):
            table.publish("delta")

        table.ingest(rows(0, 1))
        done = table.publish("delta", make_clean=True)
        assert seen(done.location) == (10, 2 * sum(range(10)))

    def test_a_lag_counts_only_commits_that_changed_files(self, table):
        """Garbage that was deleted is no news for readers."""
        table.ingest(rows(0, 10))
        table.ingest(rows(10, 20))
        table.publish("delta")
        table.compact(all_files=True)
        table.publish("delta")
        table.set_properties({"sleeper.table.publish.kept.minutes": "0"})
        table.ingest(rows(0, 0))

        assert [each.lag for each in table.publications()] == [0]

    @pytest.mark.parametrize("count", [1, 1_001])
    def test_a_deletion_that_changes_no_file_is_part_of_the_lag(self, table, count):
        """Given rows that were deleted after they were published, then readers still see them."""
        table.ingest(rows(0, 2_000))
        published = table.publish("delta")
        assert published.lag == 0

        table.delete(keys=[each["key"] for each in rows(7, 7 + count)])

        assert [(each.lag, each.rows) for each in table.publications()] == [(1, 2_000)]
        clean = table.publish("delta", make_clean=True)
        assert (clean.lag, clean.rows) == (0, 2_000 - count)
        assert seen(clean.location)[0] == table.count() == 2_000 - count


class TestRefusals:
    """Tables that are not published (PUB-2)."""

    def test_columns_that_delta_lacks_are_named(self, instance):
        """A time of day has no type there, and names differ in more than case."""
        schema = pa.schema(
            [("id", pa.int64()), ("at", pa.time64("us")), ("a", pa.int64()), ("A", pa.int64())]
        )
        table = instance.create_table("t", schema, row_keys=["id"])

        with pytest.raises(BadRequest, match=r"'at' is TimeType.*'a' and 'A' are one name"):
            table.publish("delta")

    def test_rows_that_age_off_are_not_published(self, instance):
        """Readers would see rows that the table no longer has."""
        table = people(instance, filters="ageOff(n,1000)")

        with pytest.raises(BadRequest, match="age off"):
            table.publish("delta", make_clean=True)

    def test_a_table_in_memory_is_not_published(self):
        """No other process could read it."""
        table = people(sleeper.connect("memory://"))

        with pytest.raises(BadRequest, match="memory of this process"):
            table.publish("delta")

    def test_formats_are_named(self, table):
        """Another format is refused, with those that there are."""
        with pytest.raises(BadRequest, match=r"published as delta or iceberg, not 'hudi'"):
            table.publish("hudi")


class TestKeys:
    """Bounds of keys, by which readers leave files out (PUB-5)."""

    @pytest.mark.parametrize(("kind", "values"), KEYS, ids=str)
    def test_each_key_is_found_by_a_condition(self, instance, kind, values):
        """Each value is in a file of its own, and in a file with all others."""
        table = table_of_keys(instance, kind, values)

        location = table.publish("delta").location

        for value in values:
            wanted = pl.lit(pl.from_arrow(pa.array([value], kind))[0])
            found = pl.scan_delta(location).filter(pl.col("key") == wanted).collect()
            assert found.height == 2, value

    def test_times_are_told_in_milliseconds_rounded_away_from_the_keys(self, instance):
        """Some readers add a millisecond to the greatest time, others do not."""
        schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
        table = instance.create_table("t", schema, row_keys=["at"])
        table.ingest([{"at": datetime(2026, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC), "n": 1}])

        location = table.publish("delta").location

        entry = Path(location, "_delta_log", f"{0:020}.json").read_text().splitlines()[-1]
        stats = json.loads(json.loads(entry)["add"]["stats"])
        assert stats["minValues"] == {"at": "2026-01-01T00:00:00.123Z"}
        assert stats["maxValues"] == {"at": "2026-01-01T00:00:00.124Z"}

    def test_files_that_cannot_have_a_key_are_left_out(self, table):
        """Bounds come from the state alone, and delta-rs plans by them."""
        for first in (0, 100, 200):
            table.ingest(rows(first, first + 100))

        location = table.publish("delta").location

        engine = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(location))
        plan = engine.execute("EXPLAIN SELECT n FROM t WHERE key = 'k00150'").read_all()
        assert str(pa.table(plan).to_pylist()).count(".parquet") == 1
        assert seen(location, "key = 'k00150'") == (1, 150)


class TestExactlyOnce:
    """Readers have one version or the next, whatever becomes of publishers (PUB-3)."""

    @pytest.mark.parametrize("writes", range(4))
    def test_a_kill_between_two_writes_leaves_the_old_version_or_the_new(
        self, table, monkeypatch, writes
    ):
        """Whatever was written before the end, readers open it, and the next call completes it."""
        monkeypatch.setattr(delta, "_CHANGES_MIN", 1)
        table.ingest(rows(0, 10))
        location = table.publish("delta").location
        table.ingest(rows(10, 20))
        with killed_after(writes, "create", "put", "open_output"):
            table.publish("delta")
        between = seen(location)[0]

        table.publish("delta")

        assert between == (10 if writes < 2 else 20)
        assert seen(location) == (20, sum(range(20)))
        assert deltalake.DeltaTable(location).version() == 1

    def test_publishers_at_once_are_harmless(self, instance, table):
        """A handle that knows an older version loses the race, and publishes the next one."""
        other = instance.table("people")
        table.ingest(rows(0, 10))
        table.publish("delta")
        other.publish("delta")
        table.ingest(rows(10, 20))
        other.publish("delta")
        table.ingest(rows(20, 30))

        done = table.publish("delta")

        assert done.version == 2
        assert seen(done.location) == (30, sum(range(30)))

    def test_a_handle_that_knows_a_version_publishes_anew_after_it_was_removed(
        self, instance, table
    ):
        """It does not add a version to a log that is gone."""
        other = instance.table("people")
        table.ingest(rows(0, 10))
        other.publish("delta")
        table.unpublish("delta")
        table.ingest(rows(10, 20))

        done = other.publish("delta")

        assert (done.version, seen(done.location)[0]) == (0, 20)

    def test_a_checkpoint_stands_for_all_versions_before(self, instance, table, monkeypatch):
        """Readers and later publishers go on from it."""
        monkeypatch.setattr(delta, "_CHANGES_MIN", 2)
        for first in range(0, 50, 10):
            table.ingest(rows(first, first + 10))
            location = table.publish("delta").location
        log = Path(location, "_delta_log")
        checkpoint = json.loads((log / "_last_checkpoint").read_text())["version"]
        for number in range(checkpoint):
            (log / f"{number:020}.json").unlink()
        table.ingest(rows(50, 60))

        done = instance.table("people").publish("delta")

        assert checkpoint == 3
        assert seen(done.location) == (60, sum(range(60)))
        assert table.verify().clean


class TestGarbage:
    """Files of published versions are kept (PUB-4)."""

    def test_files_of_the_published_version_are_kept_though_garbage_is_deleted_at_once(self, table):
        """They are deleted when the next version has replaced it for the time that is set."""
        table.ingest(rows(0, 10))
        table.ingest(rows(10, 20))
        location = table.publish("delta").location
        table.compact(all_files=True)

        first = table.collect_garbage(force=True).deleted
        between = seen(location)
        table.publish("delta")
        second = table.collect_garbage(force=True).deleted
        table.set_properties({"sleeper.table.publish.kept.minutes": "0"})
        third = table.collect_garbage(force=True).deleted

        assert (len(first), len(second), len(third)) == (0, 0, 2)
        assert between == seen(location) == (20, sum(range(20)))
        assert table.verify().clean

    def test_versions_in_between_are_kept_as_well(self, table):
        """Each version that was published within the time keeps its files."""
        opened = []
        for first in (0, 10, 20):
            table.ingest(rows(first, first + 10))
            location = table.publish("delta").location
            opened.append(deltalake.DeltaTable(location))
            table.compact(all_files=True)
        table.publish("delta")

        table.collect_garbage(force=True)

        counts = [each.to_pyarrow_table().num_rows for each in opened]
        assert counts == [10, 20, 30]

    def test_garbage_that_was_never_published_goes(self, table):
        """Only the files of the published version wait, not all that came after it."""
        table.ingest(rows(0, 10))
        location = table.publish("delta").location
        table.ingest(rows(10, 20))
        table.compact(all_files=True)

        deleted = table.collect_garbage(force=True).deleted

        assert len(deleted) == 1
        assert seen(location)[0] == 10

    def test_a_publication_that_was_begun_keeps_its_files(self, table):
        """Its process may be slow: garbage collection sees the note before the version."""
        table.ingest(rows(0, 10))
        with killed_after(0, "create"):
            table.publish("delta")
        table.ingest(rows(10, 20))
        table.compact(all_files=True)

        assert len(table.collect_garbage(force=True).deleted) == 1

    def test_versions_whose_files_were_deleted_without_delay_are_passed_over(self, instance):
        """Garbage collection without delay may have deleted files of a version just now."""
        table = people(instance, aggregations="sum(n)")
        table.ingest(rows(0, 10))
        table.ingest(rows(5, 15))
        table.compact(all_files=True)
        assert len(table.collect_garbage(force=True).deleted) == 2
        table.ingest(rows(0, 20))

        done = table.publish("delta")

        assert done.lag > 0
        assert seen(done.location) == (15, sum(range(15)) + sum(range(5, 10)))

    def test_unpublishing_frees_what_was_kept_and_leaves_the_rows(self, table):
        """All that it wrote is removed (PUB-7)."""
        table.ingest(rows(0, 10))
        table.ingest(rows(10, 20))
        location = table.publish("delta").location
        table.compact(all_files=True)

        table.unpublish("delta")

        assert len(table.collect_garbage(force=True).deleted) == 2
        assert not list(Path(location, "_delta_log").glob("*"))
        assert not list(Path(location, "published").rglob("*.*"))
        assert table.count() == 20
        assert table.publications() == ()

    def test_old_versions_of_the_log_are_forgotten(self, table, monkeypatch):
        """The log does not grow for ever: what only versions before need is deleted."""
        monkeypatch.setattr(delta, "_CHANGES_MIN", 1)
        table.set_properties({"sleeper.table.publish.kept.minutes": "0"})
        for first in range(0, 40, 10):
            table.ingest(rows(first, first + 10))
            location = table.publish("delta").location
        table.compact(all_files=True)
        table.publish("delta")

        table.collect_garbage(force=True)

        assert len(list(Path(location, "_delta_log").glob("*.json"))) == 1
        assert seen(location) == (40, sum(range(40)))
        assert table.verify().clean


class TestWritersOfOthers:
    """What others may do to a published table (PUB-6)."""

    def test_writers_by_deltas_protocol_refuse(self, table):
        """Neither rows are added nor deleted."""
        table.ingest(rows(0, 10))
        location = table.publish("delta").location
        opened = deltalake.DeltaTable(location)

        with pytest.raises(Exception, match="publishedBySleeperReadOnly"):
            deltalake.write_deltalake(location, pl.read_delta(location), mode="append")
        with pytest.raises(Exception, match=r"append-only|publishedBySleeperReadOnly"):
            opened.delete()

        assert table.verify().clean

    def test_all_features_that_readers_look_for_are_named(self, table):
        """
        Columns without nulls are an invariant of Delta, and files are only added: delta-spark reads
        no table whose protocol does not list both.
        """
        table.ingest(rows(0, 10))
        location = Path(table.publish("delta").location.removeprefix("file://"))

        first = (location / "_delta_log" / f"{0:020}.json").read_text().splitlines()
        protocol = next(each["protocol"] for each in map(json.loads, first) if "protocol" in each)

        assert {"appendOnly", "invariants"} <= {*protocol["writerFeatures"]}

    def test_a_vacuum_by_its_own_settings_deletes_nothing(self, table):
        """The table asks for files to be kept for a hundred years."""
        table.ingest(rows(0, 10))
        table.ingest(rows(10, 20))
        table.publish("delta")
        table.compact(all_files=True)
        location = table.publish("delta").location
        before = sorted(Path(location).rglob("*"))

        deleted = deltalake.DeltaTable(location).vacuum(full=True, dry_run=False)

        assert deleted == []
        assert set(before) <= set(Path(location).rglob("*"))

    @pytest.mark.parametrize("damage", ["removed", "changed"])
    def test_verify_finds_what_others_did_to_the_log(self, table, damage):
        """A version that names other files than the state, or none at all, is a finding."""
        table.ingest(rows(0, 10))
        table.ingest(rows(10, 20))
        location = table.publish("delta").location
        entry = Path(location, "_delta_log", f"{0:020}.json")
        lines = entry.read_text().splitlines()
        if damage == "removed":
            entry.write_text("\n".join(lines[:-1]) + "\n")
        else:
            entry.write_text("\n".join(lines[1:]) + "\n")

        found = table.verify(quick=True).findings

        assert [each.kind for each in found] == [FindingKind.PUBLICATION]


class TestBackgroundWork:
    """The property that publishes after commits."""

    def test_a_table_is_published_after_so_many_commits(self, table):
        """Not before, and not by the commit."""
        table.set_properties(
            {
                "sleeper.table.publish.formats": "delta",
                "sleeper.table.publish.after.commits": "3",
            }
        )
        table.ingest(rows(0, 10))
        before = table.publish_if_due()
        table.ingest(rows(10, 20))
        after = table.publish_if_due()

        assert before == ()
        assert [each.transaction for each in after] == [3]
        assert table.publish_if_due() == ()

    def test_a_failure_of_storage_is_told(self, table, monkeypatch):
        """The next round tries again."""
        table.ingest(rows(0, 10))
        monkeypatch.setattr(FolderObjects, "create", _failing)

        with pytest.raises(StorageFailed):
            table.publish("delta")


def _failing(*_):
    raise StorageFailed("the disk is gone")
