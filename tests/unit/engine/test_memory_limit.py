"""What this process may still use, by limits of the process and of its control groups."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sleeper.engine import memory_limit
from sleeper.engine.memory_limit import (
    MemoryRoom,
    check_room,
    memory_room,
    shortages_as_errors,
)
from sleeper.engine.sorting import sort
from sleeper.engine.sorting.sort import SortSettings, sort_into_groups
from sleeper.errors import StorageFailed

MB = 1 << 20
SCHEMA = pa.schema([("k", pa.int64())])


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Control groups as files; `write` adds one."""
    monkeypatch.setattr(memory_limit, "_GROUPS", tmp_path / "self")
    monkeypatch.setattr(memory_limit, "_MOUNTED", tmp_path / "cgroup")
    monkeypatch.setattr(memory_limit, "_RLIMITS", ())

    def write(line, folder, **files):
        (tmp_path / "self").write_text(line)
        (tmp_path / "cgroup" / folder).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (tmp_path / "cgroup" / folder / name.replace("__", ".")).write_text(text)

    return write


def of_version_2(limit, used_mb, cached_mb=0):
    return {
        "memory__max": f"{limit}\n",
        "memory__current": f"{used_mb * MB}\n",
        "memory__stat": f"anon 5\ninactive_file {cached_mb * MB}\nactive_file 0\n",
    }


def test_the_tightest_group_above_a_process_counts(groups):
    """Of version 2, a limit of a parent holds for its children; cached files are no use."""
    line = "0::/pod/box\n"
    groups(line, "pod", **of_version_2(600 * MB, 400, cached_mb=30))
    groups(line, "pod/box", **of_version_2(500 * MB, 100))
    groups(line, "", **of_version_2("max", 9_000))

    found = memory_room()

    assert found is not None
    assert (found.room_bytes, found.limit_bytes) == (230 * MB, 600 * MB)
    assert "control group" in found.name


def test_groups_of_version_1_count(groups):
    """They are in a folder of their own; other controllers are not looked at."""
    files = {
        "memory__limit_in_bytes": str(300 * MB),
        "memory__usage_in_bytes": str(250 * MB),
        "memory__stat": f"inactive_file {40 * MB}\ntotal_rss 7\nactive_file {MB}\n",
    }
    groups("5:cpu:/a\n4:memory:/a\n0::/a\n", "memory/a", **files)

    found = memory_room()

    assert found is not None
    assert found.room_bytes == 91 * MB


@pytest.mark.parametrize("limit", ["max", str(2**63 - 4096), "nonsense"])
def test_no_limit_is_none(groups, limit):
    """As both versions write it."""
    groups("0::/\n", "", **of_version_2(limit, 100))

    assert memory_room() is None
    assert check_room("this", 1 << 50, "wait") is None


def test_where_nothing_says_so_there_is_none(groups):
    """The files of another system are not there."""
    assert memory_room() is None


@pytest.fixture
def room(monkeypatch):
    """Say how much room there is."""

    def there_is(room_bytes):
        found = MemoryRoom(room_bytes, 900 * MB, "RLIMIT_AS")
        monkeypatch.setattr(memory_limit, "memory_room", lambda: found)

    return there_is


def test_too_little_room_is_told_with_the_limit_that_would_do(room):
    """The least that works, what there is, the limit, and what to do instead."""
    room(70 * MB + 5)

    with pytest.raises(StorageFailed) as told:
        check_room("this", 100 * MB, "do less")

    assert str(told.value) == (
        "this needs 100 MB of memory, and this process may use 71 MB more by RLIMIT_AS. Nothing "
        "was written. Raise that limit from 900 MB to 930 MB or more, or do less."
    )
    room(100 * MB)
    assert check_room("this", 100 * MB, "do less") is not None


@pytest.mark.parametrize(
    ("room_mb", "asked_mb", "used_mb"), [(1_000, 64, 64), (284, 1_024, 100), (200, 1_024, 16)]
)
def test_a_sort_uses_what_it_may_and_at_most_what_was_asked(room, room_mb, asked_mb, used_mb):
    """The room beside 184 MB, which reading and writing need."""
    room(room_mb * MB)
    sorter = sort._Sorter(SCHEMA, ["k"], [], SortSettings(memory_bytes=asked_mb * MB))

    sorter._bound_memory()

    assert sorter._memory_bytes == used_mb * MB


def test_few_rows_are_sorted_with_any_room(room):
    """Only a sort that needs more than 16 MB looks at limits."""
    room(3 * MB)

    def sorted_rows(count):
        batches = [pa.record_batch([range(count)], schema=SCHEMA)] * 2
        settings = SortSettings(memory_bytes=64 * MB)
        groups = sort_into_groups(batches, SCHEMA, key_names=["k"], bounds=[], settings=settings)
        return sum(chunk.num_rows for _, chunks in groups for chunk in chunks)

    assert sorted_rows(1_000) == 2_000
    with pytest.raises(StorageFailed, match="sorting these rows needs 200 MB"):
        sorted_rows(500_000)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 426 KiB"),
        pa.ArrowMemoryError("malloc of size 64 failed"),
        OSError("ZSTD compression failed: Allocation error : not enough memory"),
        RuntimeError("can't start new thread"),
        pa.ArrowException("Unknown error: Failed to launch worker thread: Resource temp"),
        MemoryError(),
    ],
)
def test_a_shortage_that_a_library_raises_is_ours(error):
    """Whatever class it has: of NumPy, Arrow, zstd or Python."""
    with pytest.raises(StorageFailed, match=r"^the job ran out of memory") as told:  # noqa: SIM117
        with shortages_as_errors("the job"):
            raise error

    assert told.value.__cause__ is error


@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), RuntimeError("generator"), ValueError("memory")]
)
def test_other_errors_stay_what_they_are(error):
    """A disk that fails is not short of memory."""
    with pytest.raises(type(error)) as told, shortages_as_errors("the job"):
        raise error

    assert told.value is error
