"""Rows without a key: whatever attempts of tasks write, the folder has those that count."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.errors import AlreadyExists, StorageFailed
from sleeper.spark.block_shuffle.map_tasks import set_aside_folder

NUMBERS = count()


def attempt(tasks: Path, value: int) -> str:
    """Write a file as an attempt of a task does, and return its name."""
    name = f"00000-000-{next(NUMBERS)}.parquet"
    pq.write_table(pa.table({"n": [value]}), tasks / name)
    return name


def new_id() -> str:
    return f"id{next(NUMBERS)}"


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_files_of_other_attempts_do_not_count(tmp_path):
    """Given three attempts, one of them half done, the folder has the rows of the one named."""
    with set_aside_folder(tmp_path / "aside", new_id) as aside:
        attempt(aside.tasks, 1)
        named = attempt(aside.tasks, 1)
        (aside.tasks / ".00000-000.7-0.unfinished").write_bytes(b"half")
        aside.keep([named])

    assert below(tmp_path) == ["aside", "aside/part-00000.parquet"]
    assert pq.read_table(tmp_path / "aside")["n"].to_pylist() == [1]


def test_nothing_is_left_when_the_import_fails(tmp_path):
    """Nor folders above that were made for it."""
    with (
        pytest.raises(ZeroDivisionError),
        set_aside_folder(tmp_path / "new" / "aside", new_id) as aside,
    ):
        attempt(aside.tasks, 1)
        raise ZeroDivisionError

    assert below(tmp_path) == []


def test_two_jobs_of_one_folder_do_not_mix(tmp_path):
    """The one that ends last is refused; the other one's rows stay."""
    with (
        pytest.raises(AlreadyExists),
        set_aside_folder(tmp_path / "aside", new_id) as first,
    ):
        with set_aside_folder(tmp_path / "aside", new_id) as second:
            second.keep([attempt(second.tasks, 2)])
        first.keep([attempt(first.tasks, 1)])

    assert below(tmp_path) == ["aside", "aside/part-00000.parquet"]
    assert pq.read_table(tmp_path / "aside")["n"].to_pylist() == [2]


def test_a_file_on_the_disk_of_a_worker_is_missed(tmp_path):
    """The driver moves files, so it must reach them."""
    with (
        pytest.raises(StorageFailed, match="that the driver and all workers reach"),
        set_aside_folder(tmp_path / "aside", new_id) as aside,
    ):
        aside.keep(["00000-000-elsewhere.parquet"])

    assert below(tmp_path) == []


def test_without_a_folder_tasks_set_nothing_aside(tmp_path):
    """Rows with a null key are refused then."""
    with set_aside_folder(None, new_id) as aside:
        aside.keep([])

    assert aside.tasks is None
    assert below(tmp_path) == []
