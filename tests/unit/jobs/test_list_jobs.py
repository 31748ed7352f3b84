"""Which jobs `instance.jobs.list` and `sleeper jobs list` choose (rule TRK-7)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

import sleeper
from sleeper.errors import BadRequest
from sleeper.model.jobs.events import JobEvent, JobEventType
from sleeper.model.jobs.kinds import JobKind
from tests.unit.interfaces.command_line import json_of
from tests.unit.interfaces.command_line import sleeper as command

HOUR = timedelta(hours=1)
ACCEPTED, REJECTED, STARTED, FINISHED, FAILED = (
    JobEventType.ACCEPTED,
    JobEventType.REJECTED,
    JobEventType.STARTED,
    JobEventType.FINISHED,
    JobEventType.FAILED,
)
NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
HISTORY = {
    "before": [(STARTED, -5), (FINISHED, -3)],
    "overlaps": [(STARTED, -5), (FINISHED, 0.5)],
    "all-through": [(STARTED, -1), (FINISHED, 9)],
    "after": [(STARTED, 2), (FINISHED, 3)],
    "runs-on": [(STARTED, -20)],
    "lost": [(STARTED, -30)],
    "tried-again": [(STARTED, -2), (FAILED, 0.2)],
    "refused": [(REJECTED, 0.1)],
}


@pytest.fixture
def instance(tmp_path):
    """An instance whose tracker has some jobs, hours before and after noon."""
    with sleeper.connect(tmp_path / "instance", create=True) as opened:
        for job_id, happened in HISTORY.items():
            for type_, hours in happened:
                event = JobEvent(
                    kind=JobKind.INGEST,
                    table_id="t",
                    job_id=job_id,
                    type=type_,
                    at=NOON + hours * HOUR,
                    run_id=None if type_ is REJECTED else "r",
                    task_id=None if type_ is REJECTED else f"w-{job_id}",
                )
                opened.jobs.recorder.record(event)
        yield opened


def ids(statuses):
    return {status.job_id for status in statuses}


def test_jobs_under_way_in_a_period_are_chosen(instance):
    """TRK-7: those that overlap it; those without an end count for a day."""
    found = ids(instance.jobs.list(since=NOON, until=NOON + HOUR))

    assert found == {"overlaps", "all-through", "runs-on", "tried-again", "refused"}


def test_a_period_may_be_open(instance):
    """Without its end, or without its beginning."""
    assert ids(instance.jobs.list(since=NOON + HOUR)) == {
        "all-through",
        "after",
        "runs-on",
        "tried-again",
    }
    assert ids(instance.jobs.list(until=NOON - 4 * HOUR)) == {
        "before",
        "overlaps",
        "runs-on",
        "lost",
    }


def test_unfinished_jobs_states_and_workers_are_chosen(instance):
    """TRK-7: what goes on or is tried again by itself; what is invalid; what one worker ran."""
    assert ids(instance.jobs.list(unfinished=True)) == {"runs-on", "lost", "tried-again"}
    assert ids(instance.jobs.list(state="REJECTED")) == {"refused"}
    assert ids(instance.jobs.list(task_id="w-after")) == {"after"}
    assert ids(instance.jobs.list(unfinished=True, state="FAILED")) == {"tried-again"}


def test_a_time_without_a_zone_is_refused(instance):
    """It could be any of twenty-four."""
    with pytest.raises(BadRequest, match="until=2026-06-01 00:00:00 has no time zone"):
        instance.jobs.list(until=datetime(2026, 6, 1))


def test_the_command_chooses_as_the_method_does(instance):
    """Times are in UTC."""
    place = ("--instance", instance.url, "--json")
    period = (f"--since={NOON:%Y-%m-%dT%H:%M:%S}", f"--until={NOON + HOUR:%Y-%m-%dT%H:%M:%S}")

    listed = json_of(command("jobs", "list", *period, *place))
    unfinished = command("jobs", "list", "--unfinished", *place)

    assert {each["job_id"] for each in listed} == {
        "overlaps",
        "all-through",
        "runs-on",
        "tried-again",
        "refused",
    }
    assert {each["job_id"] for each in json.loads(unfinished.stdout)} == {
        "runs-on",
        "lost",
        "tried-again",
    }
