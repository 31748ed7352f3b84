"""Other engines read tables in place, as Iceberg."""

from __future__ import annotations

import json
from datetime import date, time
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo

import sleeper
from sleeper.engine.published import iceberg
from sleeper.state.findings import FindingKind
from tests.patience import becomes_true
from tests.stories.published_tables import (
    KEYS,
    killed_after,
    opened_iceberg,
    people,
    rows,
    table_of_keys,
)


@pytest.fixture
def instance(tmp_path):
    with sleeper.connect(str(tmp_path / "instance"), create=True) as made:
        yield made


@pytest.fixture
def table(instance):
    return people(instance)


@pytest.fixture
def small_manifests(monkeypatch):
    """Let about every second file end a manifest."""
    monkeypatch.setattr(iceberg, "_CUT_MASK", iceberg.np.uint64(1))


def seen(location: str) -> list[int]:
    return sorted(opened_iceberg(location).scan().to_arrow()["n"].to_pylist())


def manifests(location: str) -> set[str]:
    snapshot = opened_iceberg(location).current_snapshot()
    return {each.manifest_path for each in snapshot.manifests(opened_iceberg(location).io)}


class TestVersions:
    """Which version readers see (PUB-1)."""

    def test_readers_see_the_rows_in_the_order_of_the_users_columns(self, table, monkeypatch):
        """A snapshot has the number of its transaction, and the table says how rows are sorted."""
        table.ingest(rows(0, 300))

        done = table.publish("iceberg")

        read = opened_iceberg(done.location)
        found = read.scan().to_arrow()
        assert found.schema.names == ["n", "key"]
        assert sorted(found["n"].to_pylist()) == [*range(300)]
        assert read.current_snapshot().snapshot_id == done.transaction == 2
        assert [each.source_id for each in read.sort_order().fields] == [2]
        monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # it warns of its own choice
        newest = f"{done.location}/metadata/v1.metadata.json"
        assert pl.scan_iceberg(newest).select(pl.len()).collect().item() == 300

    def test_a_time_of_day_has_a_type_in_iceberg(self, instance):
        """Delta lacks it, so it is refused there alone."""
        schema = pa.schema([("id", pa.int64()), ("at", pa.time64("us"))])
        table = instance.create_table("t", schema, row_keys=["id"])
        table.ingest([{"id": 1, "at": time(1, 2, 3, 4)}])

        location = table.publish("iceberg").location

        assert opened_iceberg(location).scan().to_arrow()["at"].to_pylist() == [time(1, 2, 3, 4)]

    def test_both_formats_may_be_published(self, table):
        """Each has its own versions and its own lag."""
        table.ingest(rows(0, 10))
        table.publish("delta")
        table.ingest(rows(10, 20))
        table.publish("iceberg")

        lags = {each.format: each.lag for each in table.publications()}

        assert lags == {"delta": 1, "iceberg": 0}

    def test_manifests_are_written_only_where_files_changed(self, table, small_manifests):
        """Those of other files are named again."""
        for first in range(0, 200, 10):
            table.ingest(rows(first, first + 10))
        before = manifests(table.publish("iceberg").location)
        table.ingest(rows(200, 210))

        done = table.publish("iceberg")

        after = manifests(done.location)
        assert len(before) > 2
        assert len(after - before) == 1
        assert seen(done.location) == [*range(210)]
        assert table.verify().clean


class TestKeys:
    """Bounds of keys, by which readers leave files out (PUB-5)."""

    @pytest.mark.parametrize(("kind", "values"), KEYS, ids=str)
    def test_each_key_is_found_by_a_condition(self, instance, kind, values):
        """Each value is in a file of its own, and in a file with all others."""
        table = table_of_keys(instance, kind, values)

        read = opened_iceberg(table.publish("iceberg").location)

        for value in values:
            wanted = value.isoformat() if isinstance(value, date) else value
            assert read.scan(row_filter=EqualTo("key", wanted)).to_arrow().num_rows == 2, value

    def test_files_that_cannot_have_a_key_are_left_out(self, table):
        """Bounds come from the state alone, and pyiceberg plans by them."""
        for first in (0, 100, 200):
            table.ingest(rows(first, first + 100))

        read = opened_iceberg(table.publish("iceberg").location)

        planned = [*read.scan(row_filter="key = 'k00150'").plan_files()]
        assert [task.file.record_count for task in planned] == [100]


class TestExactlyOnce:
    """Readers have one version or the next, whatever becomes of publishers (PUB-3)."""

    @pytest.mark.parametrize("writes", range(5))
    def test_a_kill_between_two_writes_leaves_the_old_version_or_the_new(self, table, writes):
        """Note, manifest, list, metadata, hint: readers open a version after each."""
        table.ingest(rows(0, 10))
        location = table.publish("iceberg").location
        table.ingest(rows(10, 20))
        with killed_after(writes, "create", "put"):
            table.publish("iceberg")
        between = seen(location)

        done = table.publish("iceberg")

        assert between == [*range(10)]
        assert seen(location) == [*range(20)]
        assert done.version == 1

    def test_publishers_at_once_are_harmless(self, instance, table):
        """A handle that knows an older version loses the race, and publishes the next one."""
        other = instance.table("people")
        table.ingest(rows(0, 10))
        table.publish("iceberg")
        other.publish("iceberg")
        table.ingest(rows(10, 20))
        other.publish("iceberg")
        table.ingest(rows(20, 30))

        done = table.publish("iceberg")

        assert done.version == 2
        assert seen(done.location) == [*range(30)]


class TestGarbage:
    """Files of published versions are kept (PUB-4)."""

    def test_what_old_versions_alone_need_is_deleted_in_time(self, table, small_manifests):
        """Data files, manifests, lists and metadata; the newest version stays whole."""
        table.set_properties({"sleeper.table.publish.kept.minutes": "0"})
        for first in range(0, 60, 10):
            table.ingest(rows(first, first + 10))
            location = table.publish("iceberg").location
        table.compact(all_files=True)
        kept = table.collect_garbage(force=True).deleted
        table.publish("iceberg")

        gone: list[str] = []  # a version is kept until the clock of the storage is past its end
        assert becomes_true(lambda: gone.extend(table.collect_garbage(force=True).deleted) or gone)

        metadata = Path(location.removeprefix("file://"), "metadata")
        assert (len(kept), len(gone)) == (0, 6)
        assert sorted(path.suffix for path in metadata.iterdir()) == [
            *(".avro", ".avro", ".json", ".text")
        ]
        assert seen(location) == [*range(60)]
        assert table.verify().clean

    def test_unpublishing_removes_all_metadata(self, table):
        """Rows and data files stay (PUB-7)."""
        table.ingest(rows(0, 10))
        location = table.publish("iceberg").location

        deleted = table.unpublish("iceberg")

        assert deleted == 4
        assert not list(Path(location.removeprefix("file://"), "metadata").glob("*"))
        assert table.count() == 10


def test_a_moved_instance_is_published_anew(instance, table, tmp_path):
    """Paths are absolute in Iceberg: publishing notices that they lead elsewhere."""
    table.ingest(rows(0, 10))
    before = table.publish("iceberg")
    instance.close()
    Path(instance.url).rename(tmp_path / "moved")
    moved = sleeper.connect(tmp_path / "moved").table("people")

    done = moved.publish("iceberg")

    assert (done.is_new, done.version) == (True, 1)
    assert done.location != before.location
    assert seen(done.location) == [*range(10)]


def test_a_deleted_table_leaves_nothing(instance, table):
    """What was published goes with the table (PUB-7)."""
    table.ingest(rows(0, 10))
    folder = Path(table.publish("iceberg").location.removeprefix("file://")).parent
    table.publish("delta")

    instance.delete_table("people")

    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_verify_finds_what_others_did_to_the_metadata(table):
    """A manifest that is gone is a finding (PUB-6)."""
    table.ingest(rows(0, 10))
    location = table.publish("iceberg").location
    metadata = Path(location.removeprefix("file://"), "metadata")
    told = json.loads((metadata / "v1.metadata.json").read_text())
    (metadata / Path(told["snapshots"][0]["manifest-list"]).name).unlink()

    found = table.verify(quick=True).findings

    assert [each.kind for each in found] == [FindingKind.PUBLICATION]
