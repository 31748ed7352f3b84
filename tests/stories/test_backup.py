"""An instance is copied while others write to it, compact it and collect its garbage."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import AlreadyExists, CommitContended, InstanceAlreadyExists, UrlInvalid
from sleeper.instance.instance import Instance
from sleeper.storage.local.folder import FolderObjects
from tests.contracts.s3_server import bucket, s3_credentials, s3_server
from tests.unit.interfaces.command_line import sleeper as command

__all__ = ["bucket", "s3_credentials", "s3_server"]

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    """An instance with a table of some rows, and an empty one."""
    with sleeper.connect(tmp_path / "instance", create=True) as opened:
        numbers = opened.create_table("numbers", SCHEMA, row_keys=["id"])
        opened.create_table("empty", SCHEMA, row_keys=["id"])
        for number in range(5):
            add(numbers, number)
        yield opened


def add(table: sleeper.Table, number: int) -> None:
    """Add ten rows that nobody else adds."""
    ids = range(number * 10, number * 10 + 10)
    table.ingest(pa.table({"id": list(ids), "n": [number] * 10}, schema=SCHEMA))


def rows(table: sleeper.Table, as_of: int | None = None) -> pa.Table:
    """Return all rows of a table, at a version of it."""
    return table.query(as_of=as_of).to_arrow()


def test_a_copy_opens_and_has_the_rows_of_the_transaction_it_names(instance, tmp_path):
    """Given tables, when the instance is copied, then the copy answers and goes on by itself."""
    copied = command("backup", instance.url, str(tmp_path / "copy"))

    assert copied.exit_code == 0, copied.output
    with sleeper.connect(tmp_path / "copy") as opened:
        numbers = opened.table("numbers")
        assert rows(numbers) == rows(instance.table("numbers"))
        assert rows(opened.table("empty")).num_rows == 0
        assert opened.properties.values == instance.properties.values
        add(numbers, 99)
        assert numbers.compact().failed == ()
        assert numbers.orphans().orphans == ()
        assert rows(numbers).num_rows == 60
    assert rows(instance.table("numbers")).num_rows == 50


def test_a_copy_is_of_one_transaction_while_others_write_compact_and_collect(instance, tmp_path):
    """Given a writer, a compactor and a collector without patience, then no row is amiss."""
    stop = threading.Event()

    def change() -> None:
        with sleeper.connect(instance.url) as other:
            table, number = other.table("numbers"), 100
            while not stop.is_set():
                add(table, number)
                number += 1
                if number % 8 == 0:
                    table.compact()
                    table.collect_garbage(force=True)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        copies = [instance.backup(tmp_path / f"copy-{number}") for number in range(3)]
    finally:
        stop.set()
        changing.join()

    for copied in copies:
        (told,) = (each for each in copied.tables if each.name == "numbers")
        with sleeper.connect(copied.url) as opened:
            table = opened.table("numbers")
            assert table.refresh() == told.transaction
            found = rows(table)
        ids = found["id"].to_pylist()
        jobs = sum(record.rows_written for _, record in table.state().jobs.records())
        assert len(ids) == len(set(ids)) == jobs


def test_files_that_are_gone_lead_to_a_newer_transaction(instance, tmp_path, monkeypatch):
    """Given a collection in the middle of the copy, then it goes on with what there is now."""
    table = instance.table("numbers")
    open_output, before = FolderObjects.open_output, table.refresh()

    def collect_first(self, key):
        monkeypatch.setattr(FolderObjects, "open_output", open_output)
        table.compact()
        assert table.collect_garbage(force=True).deleted
        return open_output(self, key)

    monkeypatch.setattr(FolderObjects, "open_output", collect_first)

    copied = instance.backup(tmp_path / "copy")

    assert max(each.transaction for each in copied.tables) > before
    with sleeper.connect(copied.url) as opened:
        assert rows(opened.table("numbers")) == rows(table)


def test_files_that_are_always_gone_end_the_copy(instance, tmp_path, monkeypatch):
    """Given files that cannot be copied in time, then it says what to set."""
    numbers = instance.table("numbers")
    for name in {each.filename for each in numbers.references()}:
        (Path(instance.url) / numbers.table_id / name).unlink()

    with pytest.raises(CommitContended, match=r"Set sleeper\.table\.gc\.delay\.minutes"):
        instance.backup(tmp_path / "copy")


def test_an_interrupted_copy_is_no_instance_and_goes_on(instance, tmp_path, monkeypatch):
    """Given a copy that was interrupted, when the same command runs again, then it is whole."""
    create = FolderObjects.create

    def interrupted(self, key, body):
        if key == "instance.properties":
            raise KeyboardInterrupt
        return create(self, key, body)

    monkeypatch.setattr(FolderObjects, "create", interrupted)
    with pytest.raises(KeyboardInterrupt):
        instance.backup(tmp_path / "copy")
    monkeypatch.setattr(FolderObjects, "create", create)
    with pytest.raises(sleeper.errors.InstanceNotFound):
        sleeper.connect(tmp_path / "copy")
    instance.table("numbers").rename("figures")
    instance.delete_table("empty")

    instance.backup(tmp_path / "copy")

    with sleeper.connect(tmp_path / "copy") as opened:
        assert [record.name for record in opened.tables()] == ["figures"]
        assert rows(opened.table("figures")) == rows(instance.table("figures"))


def test_a_copy_goes_to_an_empty_place_outside_of_instances(instance, tmp_path):
    """Given an instance or parts of another at the target, then nothing there is changed."""
    other = sleeper.connect(tmp_path / "other", create=True)
    table_id = instance.table("numbers").table_id
    log = tmp_path / "taken" / table_id / "statestore/transactions"
    log.mkdir(parents=True)
    (log / f"{1:020d}.json").write_text("{}")

    with pytest.raises(InstanceAlreadyExists):
        instance.backup(other.url)
    with pytest.raises(UrlInvalid, match="lies inside the instance"):
        instance.backup(f"{instance.url}/copy")
    with pytest.raises(AlreadyExists, match="copy to a place that is empty"):
        instance.backup(tmp_path / "taken")


def test_a_copy_does_not_share_the_queues_of_the_original(tmp_path):
    """Given a file of queues outside of the instance, then the copy does not name it."""
    queues = {"sleeper.jobs.url": f"sqlite://{tmp_path}/jobs.sqlite"}
    original = sleeper.create_instance(tmp_path / "instance", queues)

    copied = original.backup(tmp_path / "copy")

    assert "sleeper.jobs.url" not in sleeper.connect(copied.url).properties.values


def test_a_copy_goes_from_folders_and_buckets_to_folders_and_buckets(
    instance, bucket, s3_server, s3_credentials, monkeypatch, tmp_path
):
    """Given a folder, when it is copied to a bucket, on to another place, and back, then all is."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setattr("sleeper.instance.backup._PIECE_BYTES", 1_000)
    add(instance.table("numbers"), 5)
    instance.table("numbers").compact(all_files=True)
    places = [f"s3://{bucket}/first", f"s3://{bucket}/second/copy", str(tmp_path / "back")]

    for source, target in itertools.pairwise([instance.url, *places]):
        copied = command("backup", source, target)
        assert copied.exit_code == 0, copied.output
        assert "lies inside" in command("backup", source, f"{target}/inside").stderr

    wanted = rows(instance.table("numbers"))
    for place in places:
        with sleeper.connect(place) as opened:
            assert rows(opened.table("numbers")) == wanted
            add(opened.table("numbers"), 99)
            assert opened.table("numbers").orphans().orphans == ()
