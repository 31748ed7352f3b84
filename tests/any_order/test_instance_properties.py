"""Properties of an instance, while processes die, lose replies and overtake each other anywhere.

Each change is run over healthy storage first, to count its calls. Then every call of it fails in
every way, on a copy of the same objects, alone and while somebody else makes another change.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product

import pytest

from sleeper.errors import CommitUnknown, SleeperError
from sleeper.instance.properties import StoredProperties
from sleeper.storage.followed_log import NO_CHECKS
from sleeper.storage.memory import MemoryObjects
from tests.any_order.faults import Fault, Faults, FaultyObjects, Killed

FIRST = {"sleeper.id": "i", "sleeper.format.version": "1"}
BATCH, FILES, TRIES = (
    "sleeper.gc.batch.size",
    "sleeper.gc.files.maximum",
    "sleeper.jobs.receives.max",
)
MINE = {BATCH: 5, FILES: 5}
KINDS = ("before", "after", "lost", "refused")


def new_instance(changes: int = 0) -> MemoryObjects:
    """Return an instance whose properties were changed so often."""
    objects = MemoryObjects(lambda: datetime(2026, 1, 1, tzinfo=UTC))
    assert StoredProperties(objects, "here").create(FIRST)
    for number in range(changes):
        change(objects, {"sleeper.jobs.retry.max.seconds": number})
    return objects


def change(objects, changes) -> None:
    StoredProperties(objects, "here").change(changes, checks=NO_CHECKS, pause=lambda attempt: None)


def newest(objects) -> dict[str, str]:
    values = StoredProperties(objects, "here").newest()
    assert values is not None
    return values


def calls_of(changes: int) -> int:
    """Return how many calls a change makes."""
    faults = Faults()
    change(FaultyObjects(new_instance(changes), faults), MINE)
    return faults.calls


def attempt(objects, faults: Faults) -> str:
    """Make the change with faults; return its end: done, unknown, failed or killed."""
    try:
        change(FaultyObjects(objects, faults), MINE)
    except Killed:
        return "killed"
    except CommitUnknown:
        return "unknown"
    except SleeperError:
        return "failed"
    return "done"


def check(objects, end: str, others: dict[str, str]) -> None:
    """Check what is left behind, and that the next process can go on."""
    values = newest(objects)
    mine = {name: values.get(name) for name in MINE}
    assert mine in ({BATCH: None, FILES: None}, {BATCH: "5", FILES: "5"})
    assert {name: values.get(name) for name in others} == others
    if end in ("done", "failed"):
        assert (mine[BATCH] == "5") == (end == "done")

    change(objects, {TRIES: 9})
    assert newest(objects) == {
        **values,
        TRIES: "9",
        "sleeper.properties.version": newest(objects)["sleeper.properties.version"],
    }
    change(objects, MINE)
    after = newest(objects)
    assert {name: after[name] for name in (BATCH, FILES, TRIES)} == {
        BATCH: "5",
        FILES: "5",
        TRIES: "9",
    }
    numbers = [info.key for info in objects.listing("properties/")]
    assert numbers == [f"properties/{number + 1:020d}.properties" for number in range(len(numbers))]
    assert objects.read("instance.properties") == objects.read(numbers[-1])


@pytest.mark.parametrize("changes", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_change_is_whole_or_absent_whatever_fails(changes, kind):
    """Given a change of which one call fails, then it is in force if acknowledged (rule INS-10)."""
    ends = set()
    for call in range(calls_of(changes)):
        objects = new_instance(changes)
        end = attempt(objects, Faults((Fault(call, kind),)))
        check(objects, end, {})
        ends.add(end)

    assert ends == ({"killed"} if kind in ("before", "after") else {"done", "failed"})


@pytest.mark.parametrize("changes", [0, 2])
@pytest.mark.parametrize("kind", ["", *KINDS])
def test_a_change_of_somebody_else_is_kept_whatever_fails(changes, kind):
    """Given another change at any call, and a failure at any call, then the other is kept."""
    for turn, call in product(range(calls_of(changes)), range(calls_of(changes) + 3)):
        objects = new_instance(changes)
        faults = Faults((Fault(call, kind),) if kind else ())
        faults.meanwhile[turn] = lambda: change(objects, {"sleeper.colour": "red"})  # noqa: B023

        end = attempt(objects, faults)

        others = {"sleeper.colour": "red"} if turn not in faults.meanwhile else {}
        if others and end == "done" and not kind:
            last = [info.key for info in objects.listing("properties/")][-1]
            assert objects.read("instance.properties") == objects.read(last)
        check(objects, end, others)


@pytest.mark.parametrize("changes", [0, 2])
def test_a_change_is_told_of_where_the_storage_stays_silent(changes):
    """Given storage that answers nothing from a call on, then no change is acknowledged wrongly."""
    calls = calls_of(changes)
    for first, kind in product(range(calls), ("lost", "refused")):
        objects = new_instance(changes)
        faults = Faults(tuple(Fault(call, kind) for call in range(first, first + 20)))

        end = attempt(objects, faults)

        check(objects, end, {})


def test_copies_that_are_written_much_later_take_nothing_back(monkeypatch):
    """Given any copy that a writer wrote, stored once more after all others, then the newest rules."""
    objects, copies = new_instance(), []
    put = objects.put

    def put_and_keep(key, body):
        if key == "instance.properties":
            copies.append(body)
        put(key, body)

    monkeypatch.setattr(objects, "put", put_and_keep)
    for number in range(4):
        change(objects, {BATCH: number + 1})

    assert len(copies) == 5  # the first says that versions may follow
    for body in copies:
        put("instance.properties", body)
        assert newest(objects)[BATCH] == "4"
