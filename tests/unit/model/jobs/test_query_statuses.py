"""Statuses of queries and exports: what follows from their events."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.model.jobs.events import JobEvent, JobEventType
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.jobs.query_statuses import QueryState, query_status

START = datetime(2026, 6, 1, tzinfo=UTC)
Type = JobEventType


def at(seconds: float) -> datetime:
    """So many seconds after the start."""
    return START + timedelta(seconds=seconds)


def event(what: JobEventType, seconds: float = 0, run: str | None = "r1", **more) -> JobEvent:
    """An event of the query q."""
    values = {"kind": JobKind.QUERY, "table_id": "t", "job_id": "q", "run_id": run, **more}
    return JobEvent(type=what, at=at(seconds), **values)


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([event(Type.ACCEPTED, run=None)], QueryState.QUEUED),
        ([event(Type.ACCEPTED, run=None), event(Type.STARTED, 1)], QueryState.IN_PROGRESS),
        ([event(Type.STARTED), event(Type.FINISHED, 1)], QueryState.COMPLETED),
        ([event(Type.FAILED)], QueryState.FAILED),
        ([event(Type.FAILED, rows_written=0)], QueryState.FAILED),
        ([event(Type.FAILED, rows_written=3)], QueryState.PARTIALLY_FAILED),
        ([event(Type.REJECTED, run=None)], QueryState.FAILED),
        ([event(Type.FAILED), event(Type.STARTED, 1, "r2")], QueryState.IN_PROGRESS),
        ([event(Type.FINISHED), event(Type.FAILED, 1, "r2")], QueryState.COMPLETED),
        (
            [event(Type.FAILED, rows_written=3), event(Type.FAILED, 1, "r2")],
            QueryState.PARTIALLY_FAILED,
        ),
    ],
)
def test_the_state_of_a_query(events, state):
    """QUEUED, IN_PROGRESS, then COMPLETED, FAILED, or failed after some rows (QRY-15)."""
    assert query_status(events).state is state


def test_which_states_are_failures():
    """Those of queries that failed as a whole or in part (QRY-16)."""
    assert [state for state in QueryState if state.has_failed] == ["FAILED", "PARTIALLY_FAILED"]


def test_a_query_in_full():
    """Times, rows, where they are, and how quick (QRY-15)."""
    status = query_status(
        [
            event(Type.ACCEPTED, 0, None),
            event(Type.FAILED, 2, "r1", reasons=("x",)),
            event(Type.STARTED, 5, "r2"),
            event(Type.FINISHED, 7, "r2", rows_written=10, locations=("query-q/a.parquet",)),
        ]
    )

    assert (status.query_id, status.table_id, status.runs) == ("q", "t", 2)
    assert (status.queued, status.started, status.finished) == (at(0), at(5), at(7))
    assert (status.rows, status.rows_per_s) == (10, 5)
    assert (status.locations, status.errors) == (("query-q/a.parquet",), ())
    assert not status.is_unfinished


def test_a_query_that_failed_says_why():
    """And whether it is tried again."""
    failed = event(Type.FAILED, 2, reasons=("no", "because"), rows_written=4)
    last = replace(failed, is_final=True)

    assert query_status([failed]).errors == ("no", "because")
    assert query_status([failed]).rows == 4
    assert (query_status([failed]).is_unfinished, query_status([last]).is_unfinished) == (
        True,
        False,
    )


def test_a_query_that_was_rejected_is_over():
    """With its message, so that somebody can mend it."""
    status = query_status([event(Type.REJECTED, run=None, reasons=("a", "b"), message="{}")])

    assert (status.errors, status.message, status.is_unfinished) == (("a", "b"), "{}", False)


def test_a_query_that_runs_has_no_rows_yet():
    """Nor a rate."""
    status = query_status([event(Type.STARTED)])

    assert (status.rows, status.finished, status.rows_per_s) == (None, None, None)
    assert status.is_unfinished


events_in_any_order = st.lists(
    st.builds(
        lambda what, second, run, rows, final: event(
            what, second, run, rows_written=rows, is_final=final
        ),
        st.sampled_from([*Type]),
        st.integers(0, 4),
        st.sampled_from([None, "a", "b"]),
        st.none() | st.integers(0, 2),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


@given(st.data(), events_in_any_order)
def test_neither_order_nor_repetition_matters(data, known):
    """Any permutation, with any events twice, gives the same status (QRY-15)."""
    twice = known + data.draw(st.lists(st.sampled_from(known)))

    assert query_status(data.draw(st.permutations(twice))) == query_status(known)
