"""Statuses of jobs: what follows from their events, whatever order these come in."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.model.jobs.events import JobEvent, JobEventType
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.jobs.statuses import JobState, JobStatus, job_status

START = datetime(2026, 6, 1, tzinfo=UTC)
Type = JobEventType


def at(seconds: float) -> datetime:
    """So many seconds after the start."""
    return START + timedelta(seconds=seconds)


def event(what: JobEventType, seconds: float = 0, run: str | None = "r1", **more) -> JobEvent:
    """An event of the ingest job j."""
    values = {"kind": JobKind.INGEST, "table_id": "t", "job_id": "j", "run_id": run, **more}
    return JobEvent(type=what, at=at(seconds), **values)


def state_of(*events: JobEvent) -> JobState:
    """The state that a job with these events has."""
    return job_status(events).state


def compaction(what: JobEventType, seconds: float = 0, run: str | None = "r1", **more) -> JobEvent:
    """An event of the compaction job j."""
    return event(what, seconds, run, **{"kind": JobKind.COMPACTION, **more})


DONE_ELSEWHERE = event(Type.FINISHED, 2, files=2, is_committed=False)


class TestIngest:
    """States of ingest and bulk import jobs (TRK-2)."""

    @pytest.mark.parametrize(
        ("types", "state"),
        [
            ([Type.ACCEPTED], JobState.ACCEPTED),
            ([Type.STARTED], JobState.IN_PROGRESS),
            ([Type.ADDED_FILES], JobState.IN_PROGRESS),
            ([Type.STARTED, Type.ADDED_FILES], JobState.IN_PROGRESS),
            ([Type.FINISHED], JobState.FINISHED),
            ([Type.STARTED, Type.ADDED_FILES, Type.FINISHED], JobState.FINISHED),
            ([Type.ACCEPTED, Type.REJECTED], JobState.REJECTED),
            ([Type.FINISHED, Type.REJECTED], JobState.REJECTED),
            ([Type.REJECTED, Type.FAILED], JobState.FAILED),
            ([Type.STARTED, Type.FINISHED, Type.FAILED], JobState.FAILED),
        ],
    )
    def test_a_run_is_as_far_as_its_furthest_event(self, types, state):
        """ACCEPTED, IN_PROGRESS, UNCOMMITTED, FINISHED, REJECTED, FAILED (TRK-2)."""
        assert state_of(*(event(each) for each in types)) is state

    @pytest.mark.parametrize(
        ("adding", "state"),
        [
            ([], JobState.UNCOMMITTED),
            ([event(Type.ADDED_FILES, files=1)], JobState.UNCOMMITTED),
            ([event(Type.ADDED_FILES, files=2)], JobState.FINISHED),
            (
                [event(Type.ADDED_FILES, files=n, transaction=n) for n in (1, 1)],
                JobState.UNCOMMITTED,
            ),
            (
                [event(Type.ADDED_FILES, n, files=1, transaction=4) for n in (1, 2)],
                JobState.UNCOMMITTED,
            ),
            (
                [event(Type.ADDED_FILES, n, files=1, transaction=n) for n in (1, 2)],
                JobState.FINISHED,
            ),
            ([event(Type.ADDED_FILES)], JobState.FINISHED),
            ([event(Type.COMMITTED)], JobState.FINISHED),
        ],
    )
    def test_a_run_is_uncommitted_until_all_its_files_are_added(self, adding, state):
        """By number; an event without one is about all of them (TRK-2)."""
        assert state_of(event(Type.STARTED), DONE_ELSEWHERE, *adding) is state

    def test_a_run_that_wrote_nothing_has_nothing_to_commit(self):
        """It is finished though nobody added a file."""
        assert state_of(replace(DONE_ELSEWHERE, files=0)) is JobState.FINISHED

    def test_a_commit_that_was_refused_later_is_a_failure(self):
        """The committer's answer is the last word on a run."""
        refused = event(Type.FAILED, 3, reasons=("the table was deleted",))

        status = job_status([event(Type.STARTED), DONE_ELSEWHERE, refused])

        assert (status.state, status.reasons) == (JobState.FAILED, ("the table was deleted",))

    @pytest.mark.parametrize(
        ("first", "second", "state"),
        [
            (Type.FAILED, Type.ACCEPTED, JobState.FAILED),
            (Type.FAILED, Type.STARTED, JobState.IN_PROGRESS),
            (Type.STARTED, Type.FAILED, JobState.IN_PROGRESS),
            (Type.FINISHED, Type.STARTED, JobState.FINISHED),
            (Type.FINISHED, Type.FAILED, JobState.FINISHED),
            (Type.REJECTED, Type.ACCEPTED, JobState.ACCEPTED),
            (Type.REJECTED, Type.FAILED, JobState.FAILED),
        ],
    )
    def test_the_run_that_came_furthest_says_the_state(self, first, second, state):
        """A retry outranks a failure, a finished run all others (TRK-2)."""
        status = job_status([event(first, 0, "r1"), event(second, 5, "r2")])

        assert status.state is state
        assert status.runs[0].state is state
        assert len(status.runs) == 2

    def test_what_is_said_of_the_job_counts_until_it_runs(self):
        """Acceptance and rejection need no run (TRK-1)."""
        accepted, rejected = event(Type.ACCEPTED, 0, None), event(Type.REJECTED, 1, None)

        assert state_of(accepted) is JobState.ACCEPTED
        assert state_of(accepted, rejected) is JobState.REJECTED
        assert state_of(accepted, rejected, event(Type.STARTED, 2)) is JobState.IN_PROGRESS
        assert job_status([accepted, rejected]).runs == ()


class TestCompaction:
    """States of compaction jobs (TRK-3)."""

    @pytest.mark.parametrize(
        ("types", "state"),
        [
            ([], JobState.CREATED),
            ([Type.STARTED], JobState.IN_PROGRESS),
            ([Type.STARTED, Type.FINISHED], JobState.FINISHED),
            ([Type.COMMITTED], JobState.FINISHED),
            ([Type.STARTED, Type.FAILED], JobState.FAILED),
            ([Type.STARTED, Type.FINISHED, Type.COMMITTED, Type.FAILED], JobState.FAILED),
        ],
    )
    def test_a_run_is_as_far_as_its_furthest_event(self, types, state):
        """At least CREATED (TRK-3)."""
        created = compaction(Type.CREATED, 0, None, partition_id="p", input_files=11)

        status = job_status([created, *(compaction(each, 1) for each in types)])

        assert (status.state, status.created) == (state, START)
        assert (status.partition_id, status.input_files) == ("p", 11)

    def test_a_finished_run_is_uncommitted_until_its_commit(self):
        """Whoever commits says so (TRK-3)."""
        finished = compaction(Type.FINISHED, 1, is_committed=False)

        assert state_of(finished) is JobState.UNCOMMITTED
        assert state_of(finished, compaction(Type.COMMITTED, 2)) is JobState.FINISHED

    def test_an_event_of_the_creation_that_was_lost_is_not_missed(self):
        """The run says enough (TRK-4)."""
        status = job_status([compaction(Type.STARTED)])

        assert (status.state, status.created) == (JobState.IN_PROGRESS, None)


class TestFields:
    """What a status tells beside its state."""

    def test_a_bulk_import_in_full(self):
        """Times, rows, rates, platform and transaction, of the run and of the job."""
        status = job_status(
            [
                event(Type.ACCEPTED, 0, input_files=4, platform="emr"),
                event(Type.STARTED, 10, task_id="task"),
                event(
                    Type.FINISHED, 30, rows_read=400, rows_written=200, files=3, is_committed=False
                ),
                event(Type.ADDED_FILES, 35, files=3, transaction=17),
            ]
        )

        run = status.furthest_run
        assert (run.run_id, run.task_id) == ("r1", "task")
        assert (run.accepted, run.started, run.finished, run.committed) == (
            *(at(0), at(10), at(30), at(35)),
        )
        assert (run.seconds, run.rows_read_per_s, run.rows_written_per_s) == (20, 20, 10)
        assert (run.files_written, run.files_added) == (3, 3)
        assert (status.input_files, status.platform, status.transaction) == (4, "emr", 17)
        assert (status.accepted, status.started, status.finished) == (at(0), at(10), at(35))
        assert status.updated == at(35)

    def test_no_rate_without_time(self):
        """A run that started and ended at once, or of which one is not known, has none."""
        at_once = job_status([event(Type.STARTED), event(Type.FINISHED, rows_read=5)])
        no_start = job_status([event(Type.FINISHED, rows_read=5)])

        assert at_once.furthest_run.rows_read_per_s is None
        assert (no_start.furthest_run.seconds, no_start.furthest_run.rows_read_per_s) == (
            None,
            None,
        )

    def test_a_run_that_commits_itself_is_committed_at_its_end(self):
        """No event tells of the commit alone."""
        run = job_status([event(Type.STARTED), event(Type.FINISHED, 9)]).furthest_run

        assert run.committed == run.finished == at(9)

    def test_a_rejected_job_has_its_message_and_every_reason(self):
        """So that somebody can mend it (TRK-1)."""
        status = job_status([event(Type.REJECTED, 0, None, reasons=("a", "b"), message="{}")])

        assert (status.reasons, status.message, status.accepted) == (("a", "b"), "{}", START)

    def test_reasons_are_those_of_the_last_failure(self):
        """Outermost first; each run keeps its own (TRK-5)."""
        first = event(Type.FAILED, 1, "r1", reasons=("ingest failed", "disk full"))
        second = event(Type.FAILED, 5, "r2", reasons=("ingest failed", "killed"))

        status = job_status([second, first])

        assert status.reasons == ("ingest failed", "killed")
        assert [run.reasons for run in status.runs] == [second.reasons, first.reasons]

    def test_reasons_of_earlier_failures_are_their_runs_alone(self):
        """A job that goes on has nothing to explain."""
        status = job_status([event(Type.FAILED, 1, reasons=("x",)), event(Type.STARTED, 2, "r2")])

        assert (status.reasons, status.runs[1].reasons) == ((), ("x",))

    def test_runs_are_told_apart_by_task_where_they_have_no_id(self):
        """Events that name neither are one run (TRK-1)."""
        status = job_status(
            [
                event(Type.STARTED, 1, None, task_id="a"),
                event(Type.STARTED, 2, None, task_id="b"),
                event(Type.FAILED, 3, None, task_id="a"),
                event(Type.ADDED_FILES, 4, None),
            ]
        )

        assert [(run.run_id, run.task_id, run.state) for run in status.runs] == [
            (None, None, JobState.IN_PROGRESS),
            (None, "b", JobState.IN_PROGRESS),
            (None, "a", JobState.FAILED),
        ]

    @pytest.mark.parametrize(
        ("types", "unfinished"),
        [
            ([Type.ACCEPTED], True),
            ([Type.STARTED], True),
            ([Type.FAILED], True),
            ([Type.FINISHED], False),
            ([Type.REJECTED], False),
            ([Type.FINISHED, Type.STARTED], True),
            ([Type.FINISHED, Type.FAILED], False),
        ],
    )
    def test_unfinished_is_what_may_go_on(self, types, unfinished):
        """A failed job may be tried again; one with a second run under way is not over (TRK-7)."""
        status = job_status([event(each, n, f"r{n}") for n, each in enumerate(types)])

        assert status.is_unfinished is unfinished
        assert (status.finished is None) is unfinished

    def test_a_job_that_was_given_up_is_over(self):
        """Its last failure says so; when it is sent again it goes on (TRK-7)."""
        last = event(Type.FAILED, 9, "r2", is_final=True)
        known = [event(Type.FAILED, 4, "r1"), last]

        given_up = job_status(known)
        waiting_again = job_status([*known, event(Type.ACCEPTED, 20)])
        sent_again = job_status([*known, event(Type.STARTED, 20, "r3")])
        failed_again = job_status([*known, event(Type.FAILED, 30, "r3")])

        assert (given_up.is_given_up, given_up.is_unfinished) == (True, False)
        assert given_up.finished == at(9)
        assert [run.is_final for run in given_up.runs] == [True, False]
        assert given_up.is_over
        assert waiting_again.state is JobState.FAILED
        assert not waiting_again.is_over
        assert (waiting_again.is_given_up, waiting_again.is_unfinished) == (False, True)
        assert (sent_again.is_given_up, sent_again.is_unfinished) == (False, True)
        assert (failed_again.is_given_up, failed_again.is_unfinished) == (False, True)


class TestAnyOrder:
    """Events come from several processes (TRK-1)."""

    times = st.integers(0, 5)
    names = st.sampled_from([None, "a", "b"])
    numbers = st.none() | st.integers(0, 3)
    events = st.builds(
        lambda what, second, run, task, files, rows, number, committed, reasons: event(
            *(what, second, run),
            task_id=task,
            files=files,
            rows_read=rows,
            transaction=number,
            is_committed=committed,
            reasons=reasons,
        ),
        *(st.sampled_from([*Type]), times, names, names, numbers, numbers, numbers, st.booleans()),
        st.sampled_from([(), ("x",), ("x", "y")]),
    )

    @given(st.data())
    def test_neither_order_nor_repetition_matters(self, data):
        """Any permutation, with any events twice, gives the same status (TRK-1)."""
        known = data.draw(st.lists(self.events, min_size=1, max_size=8))
        twice = known + data.draw(st.lists(st.sampled_from(known)))
        kind = data.draw(st.sampled_from([JobKind.INGEST, JobKind.COMPACTION, JobKind.EXPORT]))
        known, twice = ([replace(each, kind=kind) for each in some] for some in (known, twice))

        assert job_status(data.draw(st.permutations(twice))) == job_status(known)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (event(Type.FAILED, 1, reasons=("x",)), event(Type.FAILED, 1, reasons=("y",))),
            (event(Type.REJECTED, 7, None, message="x"), event(Type.REJECTED, 7, None, message="")),
            (event(Type.FINISHED, 0, rows_read=2), event(Type.FINISHED, 0, rows_read=3)),
        ],
        ids=["two failures", "two rejections", "two ends"],
    )
    def test_events_of_one_time_count_alike_in_either_order(self, one, other):
        """Given two events at one time that differ, then which came first changes nothing (TRK-1)."""
        assert job_status([one, other]) == job_status([other, one])

    @given(
        st.lists(events.filter(lambda each: each.type is not Type.CREATED), min_size=1, max_size=8)
    )
    def test_the_state_is_that_of_the_furthest_run(self, known):
        """Whatever happened: nothing but a failure or rejection of that run takes it back. Only
        compactions are created, and before they have a run.
        """
        status = job_status(known)

        assert isinstance(status, JobStatus)
        if status.runs:
            assert status.state is status.runs[0].state
            finished = [run for run in status.runs if run.state is JobState.FINISHED]
            assert bool(finished) is (status.state is JobState.FINISHED)

    @pytest.mark.parametrize("events", [[], [event(Type.FAILED), event(Type.FAILED, job_id="k")]])
    def test_a_status_is_of_one_job(self, events):
        """Of none, or of two, there is none."""
        with pytest.raises(ValueError, match="one job"):
            job_status(events)
