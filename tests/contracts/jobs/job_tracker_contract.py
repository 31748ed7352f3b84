"""What every tracker must do, whatever lies beneath it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import pytest

from sleeper.model.jobs.events import JobEvent, JobEventType, JobFilter, TaskEvent
from sleeper.model.jobs.kinds import JobKind

NOON = datetime(2026, 5, 4, 12, 0, 0, 123_456, tzinfo=UTC)
LATER = NOON + timedelta(days=7)
INGESTS = JobFilter(kind=JobKind.INGEST)


def hour(n):
    """Return a time so many hours after noon."""
    return NOON + timedelta(hours=n)


def event(job_id="job", at=NOON, **values):
    """Return the event of an ingest job."""
    defaults = {"kind": JobKind.INGEST, "table_id": "flights", "type": JobEventType.STARTED}
    return JobEvent(job_id=job_id, at=at, **{**defaults, **values})


def task_event(task_id="task", at=NOON, *, is_finished=False, **values):
    """Return the event of an ingest task."""
    defaults = {"kind": JobKind.INGEST, "host": "here", "pid": 4711}
    return TaskEvent(task_id=task_id, at=at, is_finished=is_finished, **{**defaults, **values})


FULL_JOB_EVENT = JobEvent(
    kind=JobKind.EXPORT,
    table_id="-",
    job_id='é ✓ "\\\n',
    type=JobEventType.FINISHED,
    at=NOON,
    run_id="run",
    task_id="task",
    reasons=("outer: é", "inner"),
    message='{"id": null}',
    platform="EMR",
    input_files=1,
    input_hash="0f",
    files=2,
    rows_read=2**62,
    rows_written=0,
    transaction=3,
    partition_id="root",
    locations=("a", "b"),
    commit_s=0.1 + 0.2,
    is_committed=False,
    is_final=True,
    message_id="message",
    attempt=4,
)
FULL_TASK_EVENT = task_event(
    is_finished=True, jobs=1, rows_read=2**62, rows_written=3, busy_s=0.1 + 0.2
)


def ids_of(jobs):
    return [events[0].job_id for events in jobs]


class JobTrackerContract:
    """Subclass it and supply `tracker`, an empty one.

    A tracker that hides what has expired by its own clock, and leaves the deletion to its service,
    sets `counts_expired` to False and supplies `set_clock`.
    """

    counts_expired = True
    jobs_listed = 700

    @pytest.fixture
    def set_clock(self):
        return lambda _time: None

    def test_events_are_read_as_they_were_recorded(self, tracker):
        """Every attribute, with the exact time and all characters."""
        tracker.record([FULL_JOB_EVENT, FULL_TASK_EVENT], expires=LATER)

        assert tracker.events_of_job(JobKind.EXPORT, FULL_JOB_EVENT.job_id) == [FULL_JOB_EVENT]
        assert list(tracker.tasks()) == [[FULL_TASK_EVENT]]
        defaults = {field.name: field.default for field in fields(JobEvent)}
        assert all(getattr(FULL_JOB_EVENT, name) != value for name, value in defaults.items())

    def test_an_empty_tracker_knows_nothing(self, tracker):
        """No job, no task, and nothing to forget."""
        tracker.record([], expires=LATER)

        assert tracker.events_of_job(JobKind.INGEST, "job") == []
        assert list(tracker.jobs(INGESTS)) == list(tracker.tasks()) == []
        assert tracker.delete_expired(LATER) == 0

    @pytest.mark.parametrize("odd", ["\ud800", "a\0b", "%", "'", "x" * 2_000, " ", "\\ud800"])
    def test_ids_may_be_odd(self, tracker, odd):
        """Whatever a message in JSON can name."""
        odd_event = event(odd, table_id=odd, task_id=odd, reasons=(odd,), message=odd)
        tracker.record([odd_event, event("even"), task_event(odd)], expires=LATER)

        wanted = replace(INGESTS, table_id=odd, task_id=odd)
        assert tracker.events_of_job(JobKind.INGEST, odd) == [odd_event]
        assert list(tracker.jobs(wanted)) == [[odd_event]]
        assert [events[0].task_id for events in tracker.tasks()] == [odd]

    def test_the_same_event_is_kept_once(self, tracker):
        """In one call or in several; one that differs in anything is another event."""
        tracker.record([event(), event(), task_event()], expires=LATER)
        tracker.record([event(), event(run_id="2"), task_event()], expires=LATER)

        assert tracker.events_of_job(JobKind.INGEST, "job") == [event(), event(run_id="2")]
        assert list(tracker.tasks()) == [[task_event()]]

    def test_events_of_a_job_come_in_the_order_they_were_recorded(self, tracker):
        """Not in that of their times, which clocks of different machines make."""
        events = [
            event(at=hour(n), type=kind) for n, kind in zip((3, 1, 2), JobEventType, strict=False)
        ]

        tracker.record(events[:2], expires=LATER)
        tracker.record(events[2:], expires=LATER)

        assert tracker.events_of_job(JobKind.INGEST, "job") == events
        assert list(tracker.jobs(INGESTS)) == [events]

    def test_jobs_of_two_kinds_or_tables_are_two(self, tracker):
        """Those of two tables come together by their id, and apart in the list."""
        others = [event(kind=JobKind.COMPACTION), event(table_id="trades", at=hour(1))]
        tracker.record([event(), *others], expires=LATER)

        assert tracker.events_of_job(JobKind.INGEST, "job") == [event(), others[1]]
        assert list(tracker.jobs(INGESTS)) == [[others[1]], [event()]]

    def test_jobs_come_by_their_newest_event(self, tracker):
        """That of the newest event first; one with a late event moves up, with all of its events."""
        tracker.record(
            [event("a", hour(1)), event("b", hour(2)), event("c", hour(3))], expires=LATER
        )
        tracker.record([event("a", hour(4)), event("b", hour(0))], expires=LATER)

        jobs = list(tracker.jobs(INGESTS))

        assert ids_of(jobs) == ["a", "c", "b"]
        assert [each.at for each in jobs[0]] == [hour(1), hour(4)]
        assert [each.at for each in jobs[2]] == [hour(2), hour(0)]

    def test_many_jobs_are_listed(self, tracker):
        """More than a page of them, each once, in order."""
        events = [
            event(f"job {n}", NOON + timedelta(seconds=n // 3)) for n in range(self.jobs_listed)
        ]
        tracker.record(events, expires=LATER)

        jobs = list(tracker.jobs(INGESTS))

        assert sorted(ids_of(jobs)) == sorted(each.job_id for each in events)
        times = [each[0].at for each in jobs]
        assert times == sorted(times, reverse=True)

    @pytest.mark.parametrize(
        ("wanted", "ids"),
        [
            ({}, ["c", "b", "a"]),
            ({"kind": JobKind.QUERY}, []),
            ({"table_id": "trades"}, ["b"]),
            ({"task_id": "2"}, ["c", "b"]),
            ({"task_id": "2", "table_id": "flights"}, ["c"]),
            ({"since": hour(2)}, ["c", "b"]),
            ({"since": hour(2) + timedelta(microseconds=1)}, ["c"]),
            ({"until": hour(1)}, ["a"]),
            ({"until": hour(1) + timedelta(microseconds=1)}, ["b", "a"]),
            ({"since": hour(2), "until": hour(2)}, ["b"]),
            ({"since": hour(4)}, []),
        ],
    )
    def test_jobs_are_found_by_what_is_asked_for(self, tracker, wanted, ids):
        """By kind, table and task; by events at a time or later, and before another."""
        tracker.record(
            [
                event("a", hour(0), task_id="1"),
                event("b", hour(1), task_id="1", table_id="trades"),
                event("b", hour(2), task_id="2", table_id="trades"),
                event("c", hour(3), task_id="2"),
            ],
            expires=LATER,
        )

        assert ids_of(tracker.jobs(replace(INGESTS, **wanted))) == ids

    def test_tasks_come_by_their_start(self, tracker):
        """That of the newest start first, with their ends; of one kind, or all."""
        tracker.record(
            [
                task_event("a", hour(1)),
                task_event("b", hour(2)),
                task_event("a", hour(5), is_finished=True),
                task_event("c", hour(3), kind=JobKind.QUERY),
            ],
            expires=LATER,
        )

        every = [[each.task_id for each in events] for events in tracker.tasks()]

        assert every == [["c"], ["b"], ["a", "a"]]
        assert [events[0].task_id for events in tracker.tasks(JobKind.QUERY)] == ["c"]

    def test_expired_events_are_forgotten(self, tracker, set_clock):
        """By the time that was told when they were recorded; a second recording changes nothing."""
        early = [event("a"), event("b", hour(9)), event("b", hour(-9)), task_event("x")]
        tracker.record(early, expires=hour(24))
        tracker.record([event("b", hour(1)), task_event("y"), event("a")], expires=hour(48))

        set_clock(hour(24))
        too_early = tracker.delete_expired(hour(24))
        kept = tracker.events_of_job(JobKind.INGEST, "b")
        set_clock(hour(25))
        deleted = tracker.delete_expired(hour(25))

        assert (too_early, deleted) == (0, 4 if self.counts_expired else 0)
        assert len(kept) == 3
        assert tracker.events_of_job(JobKind.INGEST, "a") == []
        assert list(tracker.jobs(INGESTS)) == [[event("b", hour(1))]]
        assert list(tracker.jobs(replace(INGESTS, since=hour(2)))) == []
        assert list(tracker.jobs(replace(INGESTS, until=hour(0)))) == []
        assert list(tracker.tasks()) == [[task_event("y")]]
        set_clock(hour(49))
        assert tracker.delete_expired(hour(49)) == (2 if self.counts_expired else 0)
        assert tracker.events_of_job(JobKind.INGEST, "b") == list(tracker.tasks()) == []

    def test_jobs_that_are_forgotten_while_they_are_listed_do_no_harm(self, tracker):
        """Nothing fails, and no job comes without events."""
        tracker.record([event(f"{n:03d}", hour(n)) for n in range(5)], expires=LATER)

        listed = tracker.jobs(INGESTS)
        first = next(listed)
        tracker.delete_expired(LATER + timedelta(days=1))

        assert first[0].job_id == "004"
        assert [] not in list(listed)

    def test_threads_record_at_once(self, tracker):
        """Every event is there, once."""

        def record(n):
            tracker.record([event(f"job {n % 4}", run_id=str(n))], expires=LATER)

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(record, range(40)))

        runs = [each.run_id for events in tracker.jobs(INGESTS) for each in events]
        assert sorted(runs) == sorted(map(str, range(40)))
