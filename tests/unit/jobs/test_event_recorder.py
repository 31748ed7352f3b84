"""What the recorder of events writes, and for how long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sleeper.jobs.event_recorder import EventRecorder, events_kept
from sleeper.model.jobs.events import JobEvent, JobEventType, TaskEvent
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.known_properties.typed import InstanceProperties
from tests.contracts.jobs.dictionaries import MemoryTracker

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def recorded(kind: JobKind, **properties: object) -> tuple[MemoryTracker, EventRecorder]:
    """A tracker to which an event of a job and one of its task were given at noon."""
    tracker = MemoryTracker()
    texts = {name.replace("_", "."): str(value) for name, value in properties.items()}
    recorder = EventRecorder(tracker, kept=events_kept(InstanceProperties(texts)), now=lambda: NOON)
    recorder.record(
        JobEvent(kind=kind, table_id="t", job_id="j", type=JobEventType.STARTED, at=NOON),
        TaskEvent(kind=kind, task_id="a", at=NOON, is_finished=False, host="here", pid=1),
    )
    return tracker, recorder


def left(tracker: MemoryTracker, kind: JobKind, after_s: float) -> tuple[int, int]:
    """How many events of the job and of tasks are there after so many seconds."""
    tracker.delete_expired(NOON + timedelta(seconds=after_s))
    return len(tracker.events_of_job(kind, "j")), len([*tracker.tasks(kind)])


@pytest.mark.parametrize("kind", [JobKind.INGEST, JobKind.COMPACTION])
def test_jobs_and_tasks_are_kept_each_for_their_time(kind):
    """By the properties of their own (TRK-8)."""
    tracker, _ = recorded(
        kind, **{f"sleeper_{kind}_job_status_ttl": 100, f"sleeper_{kind}_task_status_ttl": 200}
    )

    assert left(tracker, kind, 99) == (1, 1)
    assert left(tracker, kind, 101) == (0, 1)
    assert left(tracker, kind, 201) == (0, 0)


@pytest.mark.parametrize("kind", [JobKind.INGEST, JobKind.COMPACTION])
def test_nothing_is_written_for_jobs_that_are_not_tracked(kind):
    """A property switches it off (TRK-8)."""
    tracker, _ = recorded(kind, **{f"sleeper_{kind}_tracker_enabled": "false"})

    assert left(tracker, kind, 0) == (0, 0)


def test_queries_may_be_kept_for_as_long_as_a_number_can_say():
    """No date is that late, and the event is written all the same."""
    tracker, _ = recorded(JobKind.QUERY, sleeper_query_tracker_ttl_days=2**31 - 1)

    assert left(tracker, JobKind.QUERY, 1e9) == (1, 1)
