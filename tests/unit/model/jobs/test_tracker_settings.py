"""Which jobs are tracked, and for how long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sleeper.model.jobs.kinds import JobKind
from sleeper.model.jobs.settings import TrackerSettings, tracker_settings
from sleeper.model.known_properties.typed import InstanceProperties

WEEK, DAY = timedelta(days=7), timedelta(days=1)


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        (JobKind.INGEST, WEEK),
        (JobKind.COMPACTION, WEEK),
        (JobKind.QUERY, DAY),
        (JobKind.EXPORT, DAY),
    ],
)
def test_jobs_are_tracked_for_a_time(kind, kept):
    """By upstream's defaults: a week for jobs that change a table, a day for others (TRK-8)."""
    assert tracker_settings(InstanceProperties(), kind) == TrackerSettings(
        enabled=True, job_ttl=kept, task_ttl=kept
    )


@pytest.mark.parametrize("kind", [JobKind.INGEST, JobKind.COMPACTION])
def test_properties_say_otherwise(kind):
    """Each kind of job by its own (TRK-8)."""
    properties = InstanceProperties(
        {
            f"sleeper.{kind}.tracker.enabled": "false",
            f"sleeper.{kind}.job.status.ttl": "60",
            f"sleeper.{kind}.task.status.ttl": "120",
        }
    )
    other = JobKind.COMPACTION if kind is JobKind.INGEST else JobKind.INGEST

    assert tracker_settings(properties, kind) == TrackerSettings(
        enabled=False, job_ttl=timedelta(minutes=1), task_ttl=timedelta(minutes=2)
    )
    assert tracker_settings(properties, other).enabled


def test_queries_are_kept_for_days():
    """And for no longer than a date can say."""
    properties = InstanceProperties({"sleeper.query.tracker.ttl.days": "3"})
    for_ever = InstanceProperties({"sleeper.query.tracker.ttl.days": "2147483647"})

    assert tracker_settings(properties, JobKind.QUERY).job_ttl == 3 * DAY
    assert datetime.now(UTC) + tracker_settings(for_ever, JobKind.EXPORT).job_ttl
