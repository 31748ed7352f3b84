"""A disk cache answers look-ups of files in a bucket without requests, in every process."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sleeper
from sleeper.errors import BadRequest, DataDamaged
from tests.requests.counting_s3 import counting_s3
from tests.requests.world import ROWS, World, key, rows, use

READER = """
import sleeper, sys
url, folder, kind, wanted = sys.argv[1:]
table = sleeper.connect(url, cache_folder=folder).table(kind)
print(table.query(key=wanted).to_pylist())
"""


@pytest.fixture(scope="module")
def world():
    with pytest.MonkeyPatch.context() as patch, counting_s3() as server:
        use(server, patch.setenv)
        yield World(server)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


def cached(world, folder, kind, **options):
    """A handle of a table, as a process opens it that has the cache."""
    world.make(kind)
    return sleeper.connect(world.url, cache_folder=folder, **options).table(kind)


def of_files(world):
    """The requests for data files since the last call."""
    return [each for each in world.server.take().seen if "/data/" in each.key]


def blocks_in(folder):
    """All kept blocks."""
    return sorted(path for path in folder.glob("sleeper-1/*/*/*") if path.parts[-3] != "tmp")


class TestAHit:
    def test_of_a_key_makes_no_request_within_an_age(self, world, folder):
        """Given a key that was looked up, the next look-up of it within the age asks nothing."""
        table = cached(world, folder, "one leaf")
        first = table.query(key=key(7)).to_pylist()
        world.server.take()

        again = table.query(key=key(7), max_age=60).to_pylist()

        assert again == first == rows(range(7, 8)).to_pylist()
        assert len(world.server.take()) == 0

    def test_in_a_new_process_asks_for_no_file(self, world, folder):
        """Given a cache that another process has filled, a new one asks for the newest state alone."""
        cached(world, folder, "one leaf").query(key=key(77)).to_pylist()
        world.server.take()
        command = [sys.executable, "-c", READER, world.url, str(folder), "one leaf", key(77)]

        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout

        assert shown.strip() == str(rows(range(77, 78)).to_pylist())
        assert of_files(world) == []

    def test_of_a_missing_key_asks_for_no_file(self, world, folder):
        """Given a key that is not there, its Bloom filters are kept as well."""
        cached(world, folder, "one leaf").query(key="00000007x").to_pylist()
        table = cached(world, folder, "one leaf")
        world.server.take()

        assert table.query(key="00000007x").to_pylist() == []
        assert of_files(world) == []

    @pytest.mark.parametrize("kind", ["one leaf", "20 files", "64 leaves"])
    def test_of_a_small_range_asks_for_no_file(self, world, folder, kind):
        """Given a range of 100 rows that was read, other processes read it from the disk."""
        wanted = {"key": (key(100), key(200))}
        cached(world, folder, kind).query(range=wanted).to_pylist()
        table = cached(world, folder, kind)
        world.server.take()

        assert table.query(range=wanted).to_pylist() == rows(range(100, 200)).to_pylist()
        assert of_files(world) == []

    def test_of_many_keys_asks_for_no_file(self, world, folder):
        """Given 64 keys of 16 files, they are answered from the disk."""
        wanted = [key(n) for n in range(0, ROWS, ROWS // 64)]
        first = cached(world, folder, "16 leaves").query(keys=wanted).to_pylist()
        table = cached(world, folder, "16 leaves")
        world.server.take()

        assert table.query(keys=wanted).to_pylist() == first
        assert of_files(world) == []


@pytest.mark.parametrize("kind", ["one leaf", "20 files", "64 leaves", "128 row groups"])
def test_a_first_look_up_makes_no_more_requests_than_without(world, tmp_path, kind):
    """Given an empty cache, then the first look-ups ask for files as often as without a cache."""
    world.make(kind)
    asked = []
    for options in ({}, {"cache_folder": tmp_path}):
        table = sleeper.connect(world.url, **options).table(kind)
        world.server.take()
        for number in (7, 9_999):
            table.query(key=key(number)).to_pylist()
        asked.append(len(of_files(world)))

    assert asked[1] <= asked[0]


def test_a_scan_is_not_kept(world, folder):
    """Given a scan of all rows, then only the ends of files are kept: they have the indexes."""
    instance = sleeper.connect(world.url, cache_folder=folder)
    table = instance.create_table("scanned", rows(range(0)).schema, row_keys=["key"])
    for first in range(2):
        table.ingest(rows(range(first, 10 * ROWS, 2)))

    assert len(table.query().to_arrow()) == 10 * ROWS
    assert len(table.query(ordered=False).to_arrow()) == 10 * ROWS
    assert table.sql("select sum(value) from scanned where value > 5").to_pylist()

    kept = sum(path.stat().st_size for path in blocks_in(folder))
    files = [name for name in stored(world) if table.table_id in name and "/data/" in name]
    assert 0 < kept < sum(len(stored(world)[name]) for name in files) * 2 / 3


def test_nothing_is_kept_without_a_folder(world, tmp_path, monkeypatch):
    """Given no setting, then no file is written; a variable of the environment is one."""
    world.make("one leaf")
    monkeypatch.chdir(tmp_path)
    sleeper.connect(world.url).table("one leaf").query(key=key(5)).to_pylist()
    assert list(tmp_path.iterdir()) == []

    monkeypatch.setenv("SLEEPER_CACHE_FOLDER", "here")
    sleeper.connect(world.url).table("one leaf").query(key=key(5)).to_pylist()

    assert blocks_in(tmp_path / "here")


@pytest.mark.parametrize("size", [True, 0, -1, 16, "1GB", 1.5e9])
def test_a_cache_of_a_wrong_size_is_refused(world, folder, size):
    """Given no number of bytes, or too few, the error says what it must be."""
    with pytest.raises(BadRequest, match=r"cache_bytes is .* whole number of bytes, at least"):
        sleeper.connect(world.url, cache_folder=folder, cache_bytes=size)


def stored(world):
    """The objects of the bucket."""
    return world.server._buckets["counted"].bodies


class TestDamage:
    def test_of_a_block_is_logged_and_mended(self, world, folder, caplog):
        """Given blocks with a wrong byte, or too short, they are read from the bucket, once."""
        cached(world, folder, "one leaf").query(key=key(9)).to_pylist()
        for number, path in enumerate(blocks_in(folder)):
            body = bytearray(path.read_bytes())
            body[len(body) * 2 // 3] ^= 1
            path.write_bytes(body[: len(body) // 2] if number % 2 else body)
        world.server.take()

        with caplog.at_level(logging.WARNING):
            found = cached(world, folder, "one leaf").query(key=key(9)).to_pylist()

        assert found == rows(range(9, 10)).to_pylist()
        assert "is read from the bucket again" in caplog.text
        assert of_files(world)
        assert cached(world, folder, "one leaf").query(key=key(9)).to_pylist() == found
        assert of_files(world) == []

    def test_of_the_bucket_is_not_kept_from_its_repair(self, world, folder):
        """Given a damaged file that was read, and is restored, its rows are read again."""
        instance = sleeper.connect(world.url, cache_folder=folder)
        table = instance.create_table("damaged", rows(range(0)).schema, row_keys=["key"])
        table.ingest(rows(range(100)))
        objects = stored(world)
        (name,) = [each for each in objects if table.table_id in each and "/data/" in each]
        whole = objects[name]
        objects[name] = bytes(byte ^ (n == 40) for n, byte in enumerate(whole))
        with pytest.raises(DataDamaged):
            table.query(key=key(1)).to_pylist()

        objects[name] = whole

        assert table.query(key=key(1)).to_pylist() == rows(range(1, 2)).to_pylist()

    def test_does_not_hide_that_of_the_bucket(self, world, folder):
        """Given a file that is damaged in the bucket and whole in the cache, a check finds it."""
        instance = sleeper.connect(world.url, cache_folder=folder)
        table = instance.create_table("checked", rows(range(0)).schema, row_keys=["key"])
        table.ingest(rows(range(100)))
        table.query(key=key(1)).to_pylist()
        objects = stored(world)
        (name,) = [each for each in objects if table.table_id in each and "/data/" in each]

        objects[name] = bytes(byte ^ (n == 40) for n, byte in enumerate(objects[name]))

        assert not table.verify().clean


class TestAPurge:
    def test_empties_the_cache_of_the_table(self, world, folder):
        """Given keys that are purged, no block of the table is kept, and the proof says so."""
        instance = sleeper.connect(world.url, cache_folder=folder)
        table = instance.create_table("purged", rows(range(0)).schema, row_keys=["key"])
        table.ingest(rows(range(100)))
        table.query(key=key(1)).to_pylist()
        cached(world, folder, "one leaf").query(key=key(1)).to_pylist()
        of_others = [each for each in blocks_in(folder) if each not in blocks_of(table, folder)]

        proof = table.purge(keys=[key(1)])

        assert proof.finished, proof.findings
        assert "disk cache emptied" in proof.steps
        assert proof.counts["cacheBytesDeleted"] > 0
        assert any("disk caches of other machines" in each for each in proof.out_of_reach)
        assert blocks_in(folder) == of_others != []
        assert table.query(key=key(1)).to_pylist() == []
        assert table.query(key=key(2)).to_pylist() == rows(range(2, 3)).to_pylist()

    def test_that_cannot_empty_it_is_not_finished(self, world, folder, monkeypatch):
        """Given a cache that cannot be emptied, the proof says which folder has to go."""
        instance = sleeper.connect(world.url, cache_folder=folder)
        table = instance.create_table("kept", rows(range(0)).schema, row_keys=["key"])
        table.ingest(rows(range(100)))
        table.query(key=key(1)).to_pylist()
        with monkeypatch.context() as patch:
            patch.setattr("sleeper.storage.local.cache_room.os.rename", refused)
            proof = table.purge(keys=[key(1)])

        assert not proof.finished
        assert [each.where for each in proof.findings] == ["the disk cache"]
        assert str(folder) in proof.findings[0].what

        assert table.purge(keys=[key(1)]).finished
        assert blocks_of(table, folder) == []


def refused(*_arguments, **_options):
    raise PermissionError(1, "Operation not permitted")


def blocks_of(table, folder):
    """The blocks of a table's files."""
    name = Path(table._current().context.read_cache.over(table._current().files)._folder).name
    return [each for each in blocks_in(folder) if each.parts[-3] == name]


def test_a_deleted_folder_is_made_again(world, folder):
    """Given a cache whose folder somebody deletes while it is used, it begins anew."""
    table = cached(world, folder, "one leaf")
    table.query(key=key(9)).to_pylist()
    shutil.rmtree(folder)

    assert table.query(key=key(9)).to_pylist() == rows(range(9, 10)).to_pylist()
    assert table.query(key=key(10)).to_pylist() == rows(range(10, 11)).to_pylist()

    assert (folder / "sleeper-1").stat().st_mode & 0o077 == 0
    cached(world, folder, "one leaf").query(key=key(10)).to_pylist()
    again = cached(world, folder, "one leaf")
    world.server.take()
    assert again.query(key=key(10)).to_pylist() == rows(range(10, 11)).to_pylist()
    assert of_files(world) == []
