"""An open handle of an instance that was moved, deleted or replaced, in every kind of storage."""

from __future__ import annotations

import os
import shutil
import threading

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import (
    CommitUnknown,
    InstanceGone,
    InstanceLost,
    InstanceReplaced,
    StorageFailed,
)
from sleeper.instance.instance import current_time, removal_of
from sleeper.storage.local import folder
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.places import BucketPlace, MemoryPlace
from tests.contracts.replaced_instance_contract import (
    PROPERTIES,
    SCHEMA,
    FolderPlace,
    ObjectsPlace,
    RemotePlace,
    ReplacedInstanceContract,
    ids,
    rows,
)
from tests.contracts.servers.s3 import bucket, s3_credentials, s3_server

__all__ = ["bucket", "s3_credentials", "s3_server"]


class TestInFolder(ReplacedInstanceContract):
    """An instance in a folder."""

    @pytest.fixture
    def place(self, tmp_path):
        return FolderPlace(tmp_path / "instance")

    def made_anew(self, place):
        """Make another instance of the same id."""
        other = place.root.with_name("other")
        sleeper.create_instance(other, {"sleeper.id": "followed"})
        return other

    def test_a_backup_in_the_place_is_an_older_copy(self, place, table):
        """Given `backup`, which has an index of its own, then old handles refuse it."""
        place.open().backup(place.root.with_name("backup"))
        place.take_away()
        place.put_in_place(place.root.with_name("backup"))

        with pytest.raises(InstanceReplaced):
            table.ingest(rows(3))

        assert ids(place.open().table("t")) == [1, 2]

    def test_another_instance_in_the_place_is_named(self, place, table):
        """Given an instance of another id, then nothing is written to it, by no call."""
        instance = place.open()
        place.take_away()
        sleeper.create_instance(place.root, {"sleeper.id": "another"})

        for call in (
            lambda: table.ingest(rows(3)),
            lambda: instance.create_table("u", SCHEMA, row_keys=["id"]),
            lambda: instance.set_properties({"sleeper.gc.batch.size": 5}),
            lambda: instance.jobs.send("ingest", "{}"),
            instance.pause_switch.pause,
        ):
            with pytest.raises(InstanceLost):
                call()

        found = [path.name for path in place.root.rglob("*") if path.is_file()]
        assert found == ["instance.properties"]

    def test_a_copy_that_is_written_over_the_same_folder_is_noticed(self, place, table):
        """Given a folder that keeps its inode, then what is in it decides."""
        copy = place.copy()
        table.ingest(rows(3), job_id="lost")
        for each in place.root.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        shutil.copytree(copy, place.root, dirs_exist_ok=True)

        with pytest.raises(InstanceReplaced):
            table.ingest(rows(4))

    def test_a_link_that_leads_elsewhere_is_noticed(self, place, table, tmp_path):
        """Given a root that is a symbolic link, then another target is another instance."""
        copy = place.copy()
        link = tmp_path / "link"
        link.symlink_to(place.root)
        linked = sleeper.connect(link).table("t")
        linked.ingest(rows(3))
        link.unlink()
        link.symlink_to(copy)

        with pytest.raises(InstanceReplaced):
            linked.ingest(rows(4))
        link.unlink()
        link.symlink_to(place.root)
        linked.ingest(rows(4))

        assert ids(sleeper.connect(copy).table("t")) == [1, 2]
        assert ids(table) == [1, 2, 3, 4]

    def test_a_destroyed_instance_is_not_made_anew_by_an_old_handle(self, place, table):
        """Given `destroy`, and an instance made at once after it, then old handles write nothing."""
        removal_of(place.root).carry_out()
        with pytest.raises(InstanceGone):
            table.ingest(rows(3))
        assert place.is_empty()

        sleeper.connect(place.root, create=True).create_table("t", SCHEMA, row_keys=["id"])

        with pytest.raises(InstanceLost):
            table.ingest(rows(3))
        assert ids(place.open().table("t")) == []

    def test_queues_and_tracker_are_not_made_anew(self, place, table):
        """Given jobs that are open, then `jobs.sqlite` appears at no other place."""
        jobs = place.open().jobs
        jobs.send("ingest", "{}")
        away = place.take_away()

        for call in (lambda: jobs.send("ingest", "{}"), jobs.queue_depths):
            with pytest.raises(InstanceGone):
                call()
        assert place.is_empty()

        place.put_in_place(away)
        assert jobs.queue_depths()["ingest"].ready == 1

    def test_a_forked_child_makes_nothing_anew(self, place, table):
        """Given a child of the process that opened the table, then it refuses as its parent does."""
        place.take_away()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                table.set_properties({"sleeper.table.gc.delay.minutes": "7"})
            except InstanceGone:
                code = 42
            finally:
                os._exit(code)

        _, status = os.waitpid(child, 0)

        assert os.waitstatus_to_exitcode(status) == 42
        assert place.is_empty()

    def test_a_folder_that_is_moved_during_a_commit_is_not_made_anew(
        self, place, table, monkeypatch
    ):
        """Given a move before the commit's link, then nothing is at the place, and nothing is in."""
        link = os.link

        def move_first(source, target):
            if "transactions" in target and place.root.exists():
                place.root.rename(place.root.with_name("away"))
            link(source, target)

        monkeypatch.setattr(folder.os, "link", move_first)
        with pytest.raises(InstanceGone):
            table.ingest(rows(3))

        assert place.is_empty()
        assert ids(sleeper.connect(place.root.with_name("away")).table("t")) == [1, 2]

    def test_a_folder_that_is_moved_right_after_a_commit_is_told_as_unknown(
        self, place, table, monkeypatch
    ):
        """The entry is in the folder that was moved, so nobody may say that nothing was written."""
        link = os.link

        def move_then(source, target):
            link(source, target)
            if "transactions" in target:
                place.root.rename(place.root.with_name("away"))

        monkeypatch.setattr(folder.os, "link", move_then)
        with pytest.raises(CommitUnknown):
            table.ingest(rows(3), job_id="j")
        monkeypatch.undo()

        moved = sleeper.connect(place.root.with_name("away")).table("t")
        assert moved.ingest(rows(3), job_id="j").already_committed
        assert ids(moved) == [1, 2, 3]

    def test_a_copy_that_is_put_in_place_during_a_commit_gets_no_entry(
        self, place, table, monkeypatch
    ):
        """Given a copy that replaces the folder before the commit's link, then it is as it was."""
        copy = place.copy()
        table.ingest(rows(3))
        link = os.link

        def replace_first(source, target):
            if "transactions" in target and copy.exists():
                place.take_away()
                place.put_in_place(copy)
            link(source, target)

        monkeypatch.setattr(folder.os, "link", replace_first)
        with pytest.raises((InstanceLost, CommitUnknown)):
            table.ingest(rows(4))
        monkeypatch.undo()

        assert ids(place.open().table("t")) == [1, 2]

    def test_many_threads_of_one_handle_notice_it(self, place, table):
        """Given threads that ingest while a copy is put in place, then the copy has no hole."""
        copy = place.copy()
        table.ingest(rows(3))
        ended, unwritten = [], []

        def ingest(number):
            for n in range(1000):
                try:
                    table.ingest(rows(100 * number + n))
                except (InstanceLost, CommitUnknown) as failure:
                    ended.append(failure)
                    return
                except StorageFailed as failure:
                    unwritten.append(str(failure))  # its file, while no folder was there

        threads = [threading.Thread(target=ingest, args=(n,)) for n in (1, 2)]
        for each in threads:
            each.start()
        place.take_away()
        place.put_in_place(copy)
        for each in threads:
            each.join()

        assert len(ended) == 2
        assert all("No such file or directory" in each for each in unwritten)
        assert ids(place.open().table("t")) == [1, 2]
        assert place.open().verify().clean


class TestInMemory(ReplacedInstanceContract):
    """An instance in memory, whose objects somebody replaces."""

    @pytest.fixture
    def place(self):
        return ObjectsPlace(MemoryPlace("memory://", MemoryObjects(current_time)))

    def made_anew(self, place):
        """Make another instance of the same id."""
        return {"instance.properties": PROPERTIES}


class TestInRemoteMemory(ReplacedInstanceContract):
    """An instance in memory that is read as one in a bucket, by a copy of its index and states."""

    @pytest.fixture
    def place(self):
        return RemotePlace()

    def made_anew(self, place):
        """Make another instance of the same id."""
        return {"instance.properties": PROPERTIES}


class TestInBucket(ReplacedInstanceContract):
    """An instance in a bucket: what was seen more than a minute ago is compared."""

    @pytest.fixture
    def place(self, s3_server, bucket):
        objects = s3_server.objects(bucket)
        url = f"s3://{bucket}/some/instance"
        stores = objects.client.settings
        return ObjectsPlace(BucketPlace(url, objects.under("some/instance"), stores))

    def made_anew(self, place):
        """Make another instance of the same id."""
        return {"instance.properties": PROPERTIES}


def test_a_table_without_a_row_is_followed_too(tmp_path):
    """Given a table that was only created, then an older copy without it is noticed."""
    place = FolderPlace(tmp_path / "instance")
    copy = place.copy()
    instance = place.open()
    table = instance.create_table("t", pa.schema([("id", pa.int64())]), row_keys=["id"])
    place.take_away()
    place.put_in_place(copy)

    for call in (lambda: table.ingest(rows(1)), instance.tables, instance.check):
        with pytest.raises(InstanceReplaced):
            call()
