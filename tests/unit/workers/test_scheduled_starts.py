"""A schedule starts workers elsewhere: one for each job that waits, within the limit."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import StorageFailed
from sleeper.model.jobs.kinds import QueueName
from sleeper.workers.scheduled_starts import RunningWorkers, ScheduledStarts

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
BASIC = {"sleeper.table.compaction.strategy.class": "BasicCompactionStrategy"}


@dataclass
class Starter:
    """Workers of a test."""

    count: int = 0
    starting: int = 0
    room: int = 1_000
    fails: str = ""
    asked: list = field(default_factory=list)

    def running(self, kind):
        if kind == self.fails:
            raise StorageFailed("ECS does not answer")
        self.asked.append(kind)
        return RunningWorkers(self.count, self.starting)

    def start(self, kind, count):
        return min(count, self.room)


@pytest.fixture
def instance(tmp_path):
    opened = sleeper.connect(tmp_path / "instance", create=True)
    opened.create_table("one", SCHEMA, row_keys=["id"])
    return opened


@pytest.fixture
def starter():
    return Starter()


@pytest.fixture
def starts(instance, starter):
    return ScheduledStarts(lambda: instance, starter)


def wait(instance, queue, count):
    """Let messages wait."""
    for n in range(count):
        instance.jobs.send_message(queue, str(n))


@pytest.mark.parametrize(
    ("messages", "running", "starting", "limit", "started"),
    [
        (3, 0, 0, 200, 3),
        (3, 2, 0, 200, 3),  # those at work have taken their messages
        (3, 2, 2, 200, 1),  # those that are starting have not
        (3, 2, 0, 4, 2),
        (3, 4, 0, 4, 0),
        (3, 9, 0, 4, 0),
        (3, 0, 0, 0, 0),
    ],
)
def test_a_worker_is_started_for_each_message_within_the_limit(
    instance, starts, starter, messages, running, starting, limit, started
):
    """Needed are those that wait, capped by the limit minus those that run (ING-15)."""
    wait(instance, QueueName.INGEST, messages)
    starter.count, starter.starting = running, starting

    assert starts.look([("ingest", limit)]) == ({"ingest": started} if started else {})


def test_where_nothing_waits_nobody_is_asked(starts, starter):
    """An idle look asks the queues, and neither ECS nor whether the instance is paused."""
    assert starts.look([("ingest", 5), ("export", 5), ("compaction", 5)]) == {}
    assert starter.asked == []


def test_no_worker_is_started_while_the_instance_is_paused(instance, starts):
    """But for exports: they are questions."""
    wait(instance, QueueName.INGEST, 1)
    wait(instance, QueueName.EXPORT, 1)
    instance.pause_switch.pause()

    assert starts.look([("ingest", 5), ("export", 5)]) == {"export": 1}


def test_workers_of_bulk_imports_are_started_for_their_own_queue(instance, starts):
    """Platforms have functions that start drivers."""
    wait(instance, QueueName.BULK_IMPORT_EMR, 3)
    assert starts.look([("bulk-import", 5)]) == {}
    wait(instance, QueueName.BULK_IMPORT, 1)

    assert starts.look([("bulk-import", 5)]) == {"bulk-import": 1}


def test_a_kind_that_fails_does_not_stop_the_others(instance, starts, starter, caplog):
    """Given ECS that does not answer for one, then it is told at the end."""
    wait(instance, QueueName.INGEST, 1)
    wait(instance, QueueName.EXPORT, 1)
    starter.fails = "ingest"

    with pytest.raises(StorageFailed, match="workers were not started: ECS does not answer"):
        starts.look([("ingest", 5), ("export", 5)])

    assert starter.asked == ["export"]
    assert "ingest workers cannot be started now" in caplog.text


def test_what_has_no_room_is_tried_again_by_the_next_look(instance, starts, starter, caplog):
    """Given room for one of three, then the messages still wait, and are looked at."""
    caplog.set_level(logging.INFO, "sleeper")
    wait(instance, QueueName.INGEST, 3)
    starter.room = 1

    assert starts.look([("ingest", 5)]) == {"ingest": 1}
    assert "started 1 of 3 ingest workers" in caplog.text
    starter.room, starter.count = 5, 1

    assert starts.look([("ingest", 5)]) == {"ingest": 3}


@pytest.fixture
def four_files(instance):
    """A table with two compaction jobs."""
    table = instance.table("one")
    table.set_properties({**BASIC, "sleeper.table.compaction.files.batch.size": 2})
    for n in range(4):
        table.ingest([{"id": str(n), "n": n}])
    return table


def test_workers_are_started_for_compactions_that_tables_want(starts, starter, four_files):
    """Given files of one leaf, then workers for its jobs; those at work are not asked for twice."""
    first = starts.look([("compaction", 5)])
    second = starts.look([("compaction", 5)])
    four_files.compact(all_files=True)
    done = starts.look([("compaction", 5)])

    assert first == {"compaction": 2}
    assert second == {}
    assert done == {}


def test_a_table_that_wants_nothing_is_not_opened_again(instance, starts, monkeypatch):
    """Given tables without a change, then nothing is planned, also in another process."""
    assert starts.look([("compaction", 5)]) == {}
    monkeypatch.setattr(
        "sleeper.tables.table.Table.plan_compaction", lambda self: pytest.fail("planned")
    )

    assert starts.look([("compaction", 5)]) == {}
    assert ScheduledStarts(lambda: instance, Starter()).look([("compaction", 5)]) == {}


def test_a_table_whose_compactions_cannot_be_planned_is_looked_at_again(
    instance, starts, four_files, monkeypatch, caplog
):
    """Given a storage that fails once, then the next look starts a worker."""
    with monkeypatch.context() as broken:
        broken.setattr("sleeper.tables.table.Table.plan_compaction", _no_answer)
        assert starts.look([("compaction", 5)]) == {}
    assert "compactions of one cannot be planned now: no answer" in caplog.text

    assert starts.look([("compaction", 5)]) != {}


def _no_answer(*_):
    raise StorageFailed("no answer")
