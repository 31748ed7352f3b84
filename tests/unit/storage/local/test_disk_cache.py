"""Blocks of files in a cache on the disk: kept whole, within a bound, for many processes."""

from __future__ import annotations

import errno
import logging
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from sleeper.errors import ObjectNotFound, ObjectTooShort, StorageFailed
from sleeper.storage.local.cache_room import BLOCK_FILE_BYTES
from sleeper.storage.local.disk_cache import BLOCK_BYTES, READ_BYTES_MAX, DiskCache
from sleeper.storage.local.folder import FolderObjects
from tests.patience import PATIENCE_S

BOUND = 64 * BLOCK_FILE_BYTES
SIZE = 3 * BLOCK_BYTES + 100


class Counted:
    """Files of a folder; `reads` has what was asked for."""

    def __init__(self, root):
        self._files = FolderObjects(root)
        self.reads = []
        self.meanwhile = lambda: None

    def url(self, key):
        return self._files.url(key)

    def read_ranges(self, key, ranges):
        self.reads.append([*ranges])
        found = self._files.read_ranges(key, ranges)
        self.meanwhile()
        return found

    def read_end(self, key, length):
        self.reads.append(length)
        return self._files.read_end(key, length)


class World:
    """Files, a clock, and a cache over them."""

    def __init__(self, folder):
        self.folder = folder
        self.now = datetime.now(UTC)
        self.files = Counted(folder / "files")
        self.root = folder / "cache" / "sleeper-1"

    def file(self, name="f", size=SIZE):
        body = os.urandom(size)
        (self.folder / "files").mkdir(exist_ok=True)
        (self.folder / "files" / name).write_bytes(body)
        return body

    def open(self, bytes_max=BOUND, origin=""):
        """The cache, as another process opens it."""
        cache = DiskCache(str(self.folder / "cache"), bytes_max, origin, lambda: self.now)
        return cache.over(self.files)

    def blocks(self):
        found = (each for each in self.root.glob("*/*/*") if each.parent.parent.name != "tmp")
        return sorted(found)

    def size(self):
        return sum(-(-each.stat().st_size // 4096) * 4096 for each in self.blocks())

    def counted(self):
        return int((self.root / "used").read_text())


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


class TestRanges:
    @pytest.mark.parametrize(
        "ranges",
        [
            [(0, 1)],
            [(0, SIZE)],
            [(BLOCK_BYTES - 1, 2)],
            [(5, 10), (SIZE - 1, 1), (7, 0)],
            [(2 * BLOCK_BYTES, BLOCK_BYTES), (0, BLOCK_BYTES)],
            [(SIZE, 0)],
            [],
        ],
    )
    def test_have_the_bytes_of_the_file(self, world, ranges):
        """Given ranges anywhere in a file, their bytes are the file's, from it and from the disk."""
        body = world.file()
        for _ in range(2):
            found = world.open().read_ranges("f", SIZE, ranges)
            assert found == [body[start : start + length] for start, length in ranges]
        assert len(world.files.reads) <= 1

    def test_read_only_what_is_missing(self, world):
        """Given a block that is kept, a range over three blocks asks for the two others at once."""
        world.file()
        world.open().read_ranges("f", SIZE, [(BLOCK_BYTES, 1)])
        world.open().read_ranges("f", SIZE, [(0, SIZE)])

        assert world.files.reads == [
            [(BLOCK_BYTES, BLOCK_BYTES)],
            [(0, BLOCK_BYTES), (2 * BLOCK_BYTES, BLOCK_BYTES + 100)],
        ]

    def test_beyond_the_end_are_refused_as_without_a_cache(self, world):
        """Given ranges that the file has not, its own error is raised, and nothing is kept."""
        world.file()
        with pytest.raises(ObjectTooShort):
            world.open().read_ranges("f", SIZE, [(SIZE - 1, 2)])
        with pytest.raises(ObjectNotFound):
            world.open().read_ranges("other", SIZE, [(0, 1)])
        assert world.blocks() == []

    def test_of_much_go_past_the_cache(self, world):
        """Given a read of more bytes than a look-up needs, it is not kept."""
        size = READ_BYTES_MAX + 1
        world.file(size=size)
        world.open().read_ranges("f", size, [(0, size)])

        assert world.blocks() == []

    def test_of_files_with_one_name_in_two_buckets_are_apart(self, world, tmp_path):
        """Given two servers, or two folders, that have a file of the same name, each has its own."""
        first = world.file(size=100)
        assert world.open().read_ranges("f", 100, [(0, 100)]) == [first]
        second = world.file(size=100)

        assert world.open(origin="http://other").read_ranges("f", 100, [(0, 100)]) == [second]

    def test_of_a_file_of_another_size_are_read_again(self, world, caplog):
        """Given blocks of a file that has another size now, they are not used."""
        world.file(size=100)
        world.open().read_ranges("f", 100, [(0, 10)])
        body = world.file(size=200)

        assert world.open().read_ranges("f", 200, [(0, 10)]) == [body[:10]]
        assert "a file of another size" in caplog.text


@pytest.mark.parametrize("attempt", range(5))
def test_threads_that_read_at_once_in_a_new_cache_keep_what_they_read(world, attempt):
    """Given a folder that is not there, and sixteen files that are read at once, all are kept."""
    names = [f"{attempt} {number}" for number in range(16)]
    for name in names:
        world.file(name, 100)
    cache, together = world.open(), threading.Barrier(len(names))

    def read(name):
        together.wait()
        cache.read_ranges(name, 100, [(0, 100)])

    with ThreadPoolExecutor(len(names)) as pool:
        assert [*pool.map(read, names)] == [None] * len(names)

    assert len(world.blocks()) == len(names)
    assert world.counted() == world.size()


@pytest.mark.parametrize("place", [0, 5, 9, 20, 24, 1_000, BLOCK_FILE_BYTES - 1])
def test_a_damaged_block_is_read_again(world, place, caplog):
    """Given a block with a wrong byte anywhere, or cut there, it is deleted, logged and read again."""
    body = world.file()
    for damage in ("flipped", "cut", "of another block"):
        world.open().read_ranges("f", SIZE, [(0, 10), (BLOCK_BYTES, 10)])
        path, other = world.blocks()
        kept = bytearray(path.read_bytes())
        kept[place] ^= 16
        path.write_bytes({"flipped": kept, "cut": kept[:place]}.get(damage, other.read_bytes()))
        world.files.reads.clear()
        caplog.clear()

        found = world.open().read_ranges("f", SIZE, [(0, 10), (BLOCK_BYTES, 10)])

        assert found == [body[:10], body[BLOCK_BYTES:][:10]]
        assert world.files.reads == [[(0, BLOCK_BYTES)]]
        assert "its checksum does not match" in caplog.text


@pytest.mark.parametrize("size", [1, 100, BLOCK_BYTES, BLOCK_BYTES + 1, SIZE, 12 * BLOCK_BYTES + 3])
def test_the_end_of_a_file_of_unknown_size_is_read_once(world, size):
    """Given a file whose size nobody knows, its end and its size are kept."""
    body = world.file(size=size)
    for _ in range(2):
        tail, found = world.open().read_end("f", 8 * BLOCK_BYTES)
        assert found == size
        assert body.endswith(tail)
        assert len(tail) >= min(size, 7 * BLOCK_BYTES)
    assert len(world.files.reads) == 1


class TestTheBound:
    def test_holds_and_the_last_used_stay(self, world):
        """Given reads of more than there is room for, the oldest blocks go; what is read stays."""
        size = 100 * BLOCK_BYTES
        world.file(size=size)
        cache = world.open()
        for number in range(100):
            world.now += timedelta(seconds=61)
            age(world)
            cache.read_ranges("f", size, [(number * BLOCK_BYTES, 10), (0, 10)])
            wait_for_sweeps()
            assert world.size() <= world.counted() <= BOUND

        names = {each.name for each in world.blocks()}
        assert "0" in names
        assert "1" not in names
        assert len(names) >= 40

    def test_holds_for_two_processes_at_once(self, world):
        """Given two processes and threads that fill the cache, both have the bytes, in the bound."""
        size = 200 * BLOCK_BYTES
        world.file(size=size)
        script = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "from pathlib import Path\n"
            "from tests.unit.storage.local.test_disk_cache import World, fill\n"
            "print(fill(World(Path(sys.argv[2])), int(sys.argv[3])))"
        )
        root = Path(__file__).parents[4]
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", script, str(root), str(world.folder), str(seed)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for seed in (1, 2)
        ]
        told = [each.communicate(timeout=PATIENCE_S)[0].strip() for each in processes]

        assert told == ["whole"] * 2
        assert world.size() <= BOUND
        assert not [*(world.root / "tmp").iterdir()]

    def test_is_counted_anew_where_the_number_is_gone(self, world):
        """Given that the count is damaged, blocks are counted; nothing is kept before."""
        size = 10 * BLOCK_BYTES
        world.file(size=size)
        cache = world.open()
        cache.read_ranges("f", size, [(0, 1), (BLOCK_BYTES, 1)])
        (world.root / "used").write_text("damaged")

        cache.read_ranges("f", size, [(2 * BLOCK_BYTES, 1)])
        wait_for_sweeps()

        assert world.counted() == world.size() == 2 * BLOCK_FILE_BYTES

    def test_of_time_takes_what_nobody_reads(self, world):
        """Given blocks that nobody read for a week, the sweep of a day deletes them."""
        world.file(size=SIZE)
        world.open().read_ranges("f", SIZE, [(0, 1)])
        world.now += timedelta(days=6)
        world.open().read_ranges("f", SIZE, [(BLOCK_BYTES, 1)])
        wait_for_sweeps()
        assert len(world.blocks()) == 2
        set_time(world.blocks()[1], world.now)

        world.now += timedelta(days=2)
        world.open().read_ranges("f", SIZE, [(BLOCK_BYTES, 1)])
        wait_for_sweeps()

        assert [each.name for each in world.blocks()] == ["1"]


def age(world):
    """Give blocks that were just written, by the clock of the machine, the time of the world's."""
    for each in world.blocks():
        if abs(each.stat().st_mtime - time.time()) < 30:
            set_time(each, world.now - timedelta(seconds=1))


def set_time(path, moment):
    os.utime(path, (moment.timestamp(), moment.timestamp()))


def wait_for_sweeps():
    for thread in threading.enumerate():
        if thread.name == "sleeper-cache-sweep":
            thread.join(PATIENCE_S)


def fill(world, seed):
    """Read a file of 200 blocks in an order of its own, by four threads; check all bytes."""
    body = (world.folder / "files" / "f").read_bytes()
    numbers = random.Random(seed).sample(range(200), 200) * 3
    cache = world.open()

    def read(number):
        start = number * BLOCK_BYTES + 17
        return cache.read_ranges("f", len(body), [(start, 1000)]) == [body[start : start + 1000]]

    with ThreadPoolExecutor(4) as pool:
        return "whole" if all(pool.map(read, numbers)) else "damaged"


class TestKilled:
    def test_in_a_write_leaves_no_block(self, world):
        """Given a process that is killed as it writes, others read on, and its temp file goes."""
        body = world.file()
        script = (
            "import sys, os, signal; sys.path.insert(0, sys.argv[1])\n"
            "from pathlib import Path\n"
            "from tests.unit.storage.local import test_disk_cache as here\n"
            "here.os.rename = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"
            "here.World(Path(sys.argv[2])).open().read_ranges('f', here.SIZE, [(0, 10)])"
        )
        root = Path(__file__).parents[4]
        done = subprocess.run(
            [sys.executable, "-c", script, str(root), str(world.folder)], check=False
        )
        assert done.returncode == -signal.SIGKILL
        assert world.blocks() == []
        assert len([*(world.root / "tmp").iterdir()]) == 1

        assert world.open().read_ranges("f", SIZE, [(0, 10)]) == [body[:10]]
        assert world.counted() > world.size()
        world.now += timedelta(days=2)
        world.open().read_ranges("f", SIZE, [(0, 10)])
        wait_for_sweeps()

        assert [*(world.root / "tmp").iterdir()] == []
        assert world.counted() == world.size() == BLOCK_FILE_BYTES


class TestTrouble:
    def test_of_a_full_disk_costs_the_cache_alone(self, world, monkeypatch, caplog):
        """Given a disk that is full, rows are read, which is logged once; later it is tried again."""
        body = world.file()
        cache = world.open()
        with monkeypatch.context() as patch:
            patch.setattr("sleeper.storage.local.cache_room.os.write", full)
            for _ in range(3):
                world.now += timedelta(minutes=2)
                assert cache.read_ranges("f", SIZE, [(0, 10)]) == [body[:10]]
                assert cache.read_ranges("f", SIZE, [(0, 10)]) == [body[:10]]

        warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
        assert len(warnings) == 1
        assert "No space left on device" in warnings[0].getMessage()
        assert world.blocks() == [*(world.root / "tmp").iterdir()] == []
        world.now += timedelta(minutes=2)
        cache.read_ranges("f", SIZE, [(0, 10)])
        assert len(world.blocks()) == 1

    @pytest.mark.parametrize("mode", [0o755, 0o770, 0o707])
    def test_of_a_folder_that_others_may_use_is_logged(self, world, caplog, mode):
        """Given a folder that others may read or write, it is not used."""
        body = world.file()
        world.root.mkdir(parents=True)
        world.root.chmod(mode)

        assert world.open().read_ranges("f", SIZE, [(0, 10)]) == [body[:10]]

        assert "others may read or write it" in caplog.text
        assert [*world.root.iterdir()] == []

    def test_of_a_folder_that_is_a_file_is_logged(self, world, caplog):
        """Given a file where the folder should be, rows are read without a cache."""
        body = world.file()
        world.root.parent.write_text("here")

        assert world.open().read_ranges("f", SIZE, [(0, 10)]) == [body[:10]]
        assert world.open().read_end("f", 10)[0] == body[-10:]
        assert "cannot be used" in caplog.text

    def test_the_folder_is_of_its_user_alone(self, world):
        """Given a new cache, nobody else may read it."""
        world.file()
        world.open().read_ranges("f", SIZE, [(0, 10)])

        assert world.root.stat().st_mode & 0o077 == 0


class TestEmptied:
    def test_leaves_nothing_of_reads_that_are_under_way(self, world):
        """Given a cache that is emptied while the bucket is read, what was read is not kept."""
        world.file()
        cache = world.open()
        cache.read_ranges("f", SIZE, [(BLOCK_BYTES, 1)])
        world.files.meanwhile = cache.drop_all

        cache.read_ranges("f", SIZE, [(0, 10)])

        assert world.blocks() == []
        assert [*(world.root / "tmp").iterdir()] == []

    def test_of_one_file_keeps_the_others(self, world):
        """Given two files, one of which is dropped, the other one is read from the disk."""
        world.file("f")
        world.file("g")
        cache = world.open()
        for name in "fg":
            cache.read_ranges(name, SIZE, [(0, 10)])

        assert cache.drop("f")
        assert not cache.drop("f")
        assert world.counted() == world.size() == BLOCK_FILE_BYTES
        world.files.reads.clear()
        cache.read_ranges("g", SIZE, [(0, 10)])
        assert world.files.reads == []

    def test_says_what_cannot_be_deleted(self, world, monkeypatch):
        """Given a folder that cannot be deleted, the error names it."""
        world.file()
        cache = world.open()
        cache.read_ranges("f", SIZE, [(0, 10)])
        monkeypatch.setattr("sleeper.storage.local.cache_room.os.rename", full)

        with pytest.raises(StorageFailed, match=r"sleeper-1 cannot be emptied: .* Delete this"):
            cache.drop_all()


def full(*_arguments, **_options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_cache_may_be_pickled(world):
    """Given a cache with the clock of a process, a worker process gets the same."""
    cache = DiskCache("/somewhere", BOUND, "", partial(datetime.now, UTC))

    assert pickle.loads(pickle.dumps(cache)).folder == cache.folder
