"""Parts of an export: each whole, `_SUCCESS` last, nothing left of one that fails."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.engine.writing.export import ExportedPart, ExportTarget
from sleeper.errors import AlreadyExists, StorageFailed, StorageFull
from sleeper.state.plans.exports import ExportPlan, PlannedPart
from sleeper.storage.memory import MemoryObjects

SCHEMA = pa.schema([("n", pa.int64())])
NAMES = ["part-00000.parquet", "part-00001.parquet"]
PLAN = ExportPlan(
    transaction=3,
    columns=("n",),
    parts=tuple(PlannedPart(name=name, groups=()) for name in NAMES),
)


def batches(*numbers):
    yield pa.record_batch({"n": pa.array(numbers, pa.int64())}, schema=SCHEMA)


def parts(target, names=NAMES):
    """Writes a part of each name, of as many rows as its place says."""
    for place, name in enumerate(names):
        row_count = target.write_part(name, batches(*range(place)), SCHEMA)
        yield ExportedPart(name=name, row_count=row_count)


def names_in(place):
    return [info.key for info in place.listing()]


@pytest.fixture
def place():
    return MemoryObjects(lambda: datetime(2026, 11, 21, tzinfo=UTC)).under("exports/june")


@pytest.fixture
def target(place):
    return ExportTarget(place=place, export_id="e1")


def test_the_manifest_lists_the_parts_in_key_order(target, place):
    """However they were written; `progress` is told of each."""
    told = []

    exported = target.write_all(PLAN, parts(target, NAMES[::-1]), lambda *n: told.append(n))

    assert [(part.name, part.row_count) for part in exported.parts] == [
        (NAMES[0], 1),
        (NAMES[1], 0),
    ]
    assert (exported.row_count, exported.transaction, told) == (1, 3, [(1, 2), (2, 2)])
    assert json.loads(place.read("_SUCCESS")) == {
        "transaction": 3,
        "rows": 1,
        "parts": [{"name": NAMES[0], "rows": 1}, {"name": NAMES[1], "rows": 0}],
    }
    assert names_in(place) == ["_SUCCESS", *NAMES]
    assert pq.read_table(place.url(NAMES[0])).to_pylist() == [{"n": 0}]


def test_a_place_must_be_empty(target, place):
    """What is there stays, and nothing is added."""
    place.put("mine", b"")

    with pytest.raises(AlreadyExists, match="mine is there already"):
        target.write_all(PLAN, parts(target))

    assert names_in(place) == ["mine"]


@pytest.mark.parametrize("failure", [StorageFull("full"), KeyboardInterrupt()])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_nothing_is_left_of_one_that_fails(target, place, failure, after):
    """Whatever failed, after any of the parts; whoever writes them is stopped first."""
    seen = []

    def failing():
        try:
            yield from parts(target, NAMES[:after])
            raise failure
        finally:
            seen.append(names_in(place))

    with pytest.raises(type(failure)):
        target.write_all(PLAN, failing())

    assert seen == [["_unfinished", *NAMES[:after]] if after else ["_unfinished"]]
    assert names_in(place) == []


def test_a_failure_of_progress_is_one_too(target, place):
    """Ctrl-C comes at any line."""

    def interrupted(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        target.write_all(PLAN, parts(target), interrupted)

    assert names_in(place) == []


def test_a_part_that_comes_too_late_does_not_appear(target, place):
    """Spark stops tasks late: what they write when the export was given up is given up too."""

    def late():
        place.delete(["_unfinished"])
        yield from batches(1)

    place.put("_unfinished", b"e1")
    with pytest.raises(StorageFailed, match="was aborted"):
        target.write_part("part-00000.parquet", late(), SCHEMA)

    assert names_in(place) == []


def test_of_two_exports_to_one_place_one_is_told(target, place):
    """The first leaves the place to the second, whose files it does not touch."""

    def met():
        place.put("_unfinished", b"e2")
        yield from parts(target)

    with pytest.raises(StorageFailed, match="another export's"):
        target.write_all(PLAN, met())

    assert names_in(place) == ["_unfinished"]


def test_an_export_whose_marker_is_deleted_is_given_up(target, place):
    """That is how others stop it; its parts are deleted."""

    def stopped():
        yield from parts(target, NAMES[:1])
        place.delete(["_unfinished"])
        yield from parts(target, NAMES[1:])

    with pytest.raises(StorageFailed, match="is missing"):
        target.write_all(PLAN, stopped())

    assert names_in(place) == []


def test_a_second_export_to_one_place_is_refused_while_the_first_writes(target, place):
    """It adds nothing, and the first goes on as if it were alone."""
    second = ExportTarget(place=place, export_id="e2")

    def met():
        with pytest.raises(AlreadyExists, match="_unfinished is there already"):
            second.write_all(PLAN, parts(second))
        yield from parts(target)

    assert target.write_all(PLAN, met()).row_count == 1
    assert names_in(place) == ["_SUCCESS", *NAMES]


@pytest.mark.parametrize("seen_empty", [0, 1])
def test_an_export_that_ends_while_another_begins_is_not_mixed_with_it(
    target, place, monkeypatch, seen_empty
):
    """Both saw an empty place; whoever comes second finds that out, whenever it was."""
    second = ExportTarget(place=place, export_id="e2")
    create = type(place).create

    def create_late(self, key, body):
        monkeypatch.setattr(type(place), "create", create)
        if seen_empty:
            target.write_all(PLAN, parts(target))
        return create(self, key, body)

    monkeypatch.setattr(type(place), "create", create_late)
    if not seen_empty:
        target.write_all(PLAN, parts(target))

    with pytest.raises(AlreadyExists):
        second.write_all(PLAN, parts(second))

    assert names_in(place) == ["_SUCCESS", *NAMES]
