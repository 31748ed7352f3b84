"""What is particular to objects in memory: times that are given, and files made for engines."""

from __future__ import annotations

import gc
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from sleeper.storage.memory import MemoryObjects

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


@pytest.fixture
def objects():
    hours = count()
    return MemoryObjects(lambda: NOON + timedelta(hours=next(hours)))


def test_a_write_is_stamped_with_the_time_it_is_given(objects):
    """So a story can say when a file is old."""
    objects.put("a", b"")
    objects.put("b", b"")
    objects.put("a", b"again")

    modified = {info.key: info.modified for info in objects.listing()}

    assert modified == {"a": NOON + timedelta(hours=2), "b": NOON + timedelta(hours=1)}


def test_a_file_that_is_open_stays_whole_when_its_object_is_replaced(objects):
    """An engine in the middle of an object reads the old one to its end."""
    objects.put("a", b"old " * 1_000)

    with Path(objects.url("a")).open("rb") as file:
        first = file.read(4)
        objects.put("a", b"new")
        rest = file.read()

    assert first + rest == b"old " * 1_000
    assert Path(objects.url("a")).read_bytes() == b"new"


def test_close_removes_the_files_and_keeps_the_objects(objects):
    """A path asked for afterwards is a new one that works as well."""
    objects.put("a", b"body")
    before = Path(objects.url("a"))

    objects.close()

    assert not before.parent.parent.exists()
    assert objects.read("a") == b"body"
    assert Path(objects.url("a")).read_bytes() == b"body"
    objects.close()


def test_the_files_go_with_the_last_view(objects):
    """Nobody has to remember to close a store in memory."""
    objects.put("t/a", b"body")
    view = objects.under("t")
    path = Path(view.url("a"))
    there = path.exists()

    del view
    gc.collect()
    still_there = path.exists()

    assert (there, still_there) == (True, True)


def test_without_views_no_files_are_left():
    """The folder is removed when nothing refers to the store any more."""
    objects = MemoryObjects(lambda: NOON)
    objects.put("a", b"body")
    path = Path(objects.url("a"))

    del objects
    gc.collect()

    assert not path.exists()
