"""What an open handle does, wherever an instance is, when it is moved, deleted or replaced."""

from __future__ import annotations

import shutil
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import InstanceGone, InstanceLost, InstanceReplaced
from sleeper.instance.instance import Instance, between_attempts, current_time, process_context
from sleeper.ports.clock import Clock
from sleeper.storage.followed_log import TRUSTED_S
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.places import MemoryPlace

if TYPE_CHECKING:
    from sleeper.storage.places import Place
    from sleeper.tables.table import Table

SCHEMA = pa.schema([("id", pa.int64())])
VALUES = {
    "sleeper.id": "followed",
    "sleeper.format.version": "1",
    "sleeper.statestore.commit.read.back": "never",
}
PROPERTIES = "".join(f"{name}={value}\n" for name, value in VALUES.items()).encode()


def rows(*numbers: int) -> list[dict[str, int]]:
    """Return a row for each number."""
    return [{"id": number} for number in numbers]


def ids(table: Table) -> list[int]:
    """Return the numbers of a table's rows."""
    return table.query().to_arrow()["id"].to_pylist()


class FolderPlace:
    """An instance in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.names = count()
        sleeper.create_instance(root, {"sleeper.id": "followed"})

    def open(self) -> Instance:
        """Open the instance."""
        return sleeper.connect(self.root)

    def copy(self) -> Path:
        """Copy the instance to another place."""
        target = self.root.with_name(f"copy {next(self.names)}")
        shutil.copytree(self.root, target)
        return target

    def take_away(self) -> Path:
        """Move the instance to another place."""
        target = self.root.with_name(f"away {next(self.names)}")
        self.root.rename(target)
        return target

    def put_in_place(self, kept: Path) -> None:
        """Put what was copied or taken away in the instance's place."""
        kept.rename(self.root)

    def is_empty(self) -> bool:
        """Return whether nothing is at the place."""
        return not self.root.exists()

    def wait(self) -> None:
        """Nothing is trusted for any time."""


class ObjectsPlace:
    """An instance in a bucket or in memory."""

    def __init__(self, place: Place) -> None:
        self.place, self.objects = place, place.objects
        self.now_s = 1000.0
        self.objects.put("instance.properties", PROPERTIES)

    def open(self) -> Instance:
        """Open the instance, with a clock that `wait` moves."""
        clock = Clock(
            now=current_time,
            ticks_s=lambda: self.now_s,
            sleep=time.sleep,
            back_off=between_attempts,
        )
        return Instance(self.place, VALUES, process=process_context(clock=clock))

    def copy(self) -> dict[str, bytes]:
        """Read all objects."""
        return {info.key: self.objects.read(info.key) for info in self.objects.listing()}

    def take_away(self) -> dict[str, bytes]:
        """Read all objects, and delete them."""
        kept = self.copy()
        self.objects.delete(kept)
        return kept

    def put_in_place(self, kept: dict[str, bytes]) -> None:
        """Write objects; S3 dates entries by the second, so whoever does it takes longer."""
        if self.objects.is_remote:
            time.sleep(1.1)
        for key, body in kept.items():
            self.objects.put(key, body)

    def is_empty(self) -> bool:
        """Return whether nothing is at the place but data files, which no log names."""
        return not [info for info in self.objects.listing() if "/data/" not in info.key]

    def wait(self) -> None:
        """Let so much time pass that nothing is trusted."""
        self.now_s += TRUSTED_S + 1


class RemoteObjects(MemoryObjects):
    """Objects in memory that are read as those of a bucket: an entry is compared when it is due."""

    @property
    def is_remote(self) -> bool:
        """Return True."""
        return True

    def under(self, prefix: str) -> RemoteObjects:
        """Return the objects of one folder, which are remote too."""
        view = super().under(prefix)
        view.__class__ = RemoteObjects
        return view


class RemotePlace(ObjectsPlace):
    """An instance in `RemoteObjects`, with entries of this machine's times, so nobody waits."""

    def __init__(self) -> None:
        super().__init__(MemoryPlace("memory://", RemoteObjects(current_time)))

    def put_in_place(self, kept: dict[str, bytes]) -> None:
        """Write objects."""
        for key, body in kept.items():
            self.objects.put(key, body)


class ReplacedInstanceContract:
    """Subclass it and supply `place`: an instance with a table `t` of the rows 1 and 2."""

    @pytest.fixture
    def table(self, place):
        """A handle of the table."""
        table = place.open().create_table("t", SCHEMA, row_keys=["id"])
        table.ingest(rows(1, 2), job_id="first")
        return table

    def test_an_instance_that_is_gone_is_neither_read_nor_written(self, place, table):
        """Given an instance that was taken away, then its place stays empty, and calls say why."""
        place.take_away()
        place.wait()

        for call in (
            lambda: table.ingest(rows(3)),
            lambda: table.ingest(rows(1, 2), job_id="first"),
            lambda: ids(table),
            table.count,
            lambda: table.query(key=1).to_pylist(),
            lambda: table.compact(all_files=True),
            lambda: table.set_properties({"sleeper.table.gc.delay.minutes": "7"}),
            table.collect_garbage,
        ):
            with pytest.raises(InstanceGone, match=r"'followed' is no longer at .* Put it back"):
                call()
        assert place.is_empty()

    def test_an_instance_that_comes_back_is_used_again(self, place, table):
        """Given an instance that is put back, then the same handle reads and commits."""
        away = place.take_away()
        place.wait()
        with pytest.raises(InstanceGone):
            table.ingest(rows(3))

        place.put_in_place(away)
        place.wait()
        table.ingest(rows(3))

        assert ids(table) == ids(place.open().table("t")) == [1, 2, 3]

    def test_an_older_copy_is_not_read_or_written_by_an_old_handle(self, place, table):
        """Given a restored copy, then a new handle uses it, and an old one is refused for good."""
        copy = place.copy()
        table.ingest(rows(3), job_id="lost")
        reader = place.open().table("t")
        assert ids(reader) == [1, 2, 3]
        place.take_away()
        place.put_in_place(copy)
        place.wait()
        fresh = place.open().table("t")

        for _ in range(3):
            for old in (table, reader):
                for call in (
                    lambda old=old: old.ingest(rows(4), job_id="new"),
                    lambda old=old: old.ingest(rows(3), job_id="lost"),
                    old.count,
                    lambda old=old: old.compact(all_files=True),
                ):
                    with pytest.raises(InstanceReplaced, match="older copy was restored"):
                        call()
            fresh.ingest(rows(10))  # also when the log has as many entries as the old handle knows

        assert not fresh.ingest(rows(3), job_id="lost").already_committed
        assert ids(place.open().table("t")) == [1, 2, 3, 10, 10, 10]

    def test_a_copy_with_all_that_a_handle_knows_is_the_same_instance(self, place, table):
        """Given a place that was mounted again or copied, other inodes matter to nobody."""
        copy = place.copy()
        place.take_away()
        place.put_in_place(copy)
        place.wait()

        table.ingest(rows(3))

        assert ids(table) == ids(place.open().table("t")) == [1, 2, 3]

    def test_an_instance_that_was_made_anew_is_another_one(self, place, table):
        """Given a new instance of the same id, empty or with a table, then old handles refuse."""
        place.take_away()
        place.put_in_place(self.made_anew(place))
        place.wait()
        with pytest.raises(InstanceReplaced):
            table.ingest(rows(3))

        made = place.open().create_table("t", SCHEMA, row_keys=["id"])
        place.wait()

        with pytest.raises(InstanceReplaced):
            table.ingest(rows(3))
        with pytest.raises(InstanceLost):
            table.refresh()
        assert ids(made) == []

    def test_a_handle_that_has_read_nothing_refuses_another_instance_and_uses_its_own(
        self, place, table
    ):
        """Given a handle that meets another instance at its first looks, then it knows its own."""
        unread = place.open().table("t")
        own = place.take_away()
        place.put_in_place(self.made_anew(place))
        place.open().create_table("t", SCHEMA, row_keys=["id"])

        for call in (
            lambda: unread.ingest(rows(7)),
            lambda: ids(unread),
            lambda: unread.compact(all_files=True),
        ):
            place.wait()
            with pytest.raises(InstanceReplaced):
                call()

        place.take_away()
        place.put_in_place(own)
        place.wait()
        unread.ingest(rows(3))

        assert ids(unread) == ids(place.open().table("t")) == [1, 2, 3]

    def test_the_instance_says_whether_it_is_there(self, place, table):
        """`check` raises what any call would raise, also where nothing was opened but the URL."""
        instance = place.open()
        instance.check()
        instance.tables()
        copy = place.take_away()
        place.wait()

        with pytest.raises(InstanceGone):
            instance.check()

        place.put_in_place(copy)
        instance.check()
