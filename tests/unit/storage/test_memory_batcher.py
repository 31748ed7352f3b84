"""The batcher's files in memory: which are pending, and which are in jobs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.submitted_files import SubmittedFile
from sleeper.storage.local.jobs.job_stores import SqliteJobStores
from tests.contracts.jobs.clock import Clock, numbered

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
FILE = SubmittedFile(
    table_id="t",
    path="a.parquet",
    size_bytes=5,
    received=NOON,
    expires=NOON + timedelta(days=7),
)
AGAIN = replace(FILE, size_bytes=6, received=NOON + timedelta(hours=1))


def batcher():
    """An empty one, in memory."""
    clock = Clock()
    return SqliteJobStores(
        None, {}, now=clock.now, sleep=clock.sleep, new_id=numbered("id-")
    ).batcher


def test_a_pending_file_that_is_submitted_again_is_replaced():
    """One in a job is another file from then on (BAT-2)."""
    store = batcher()
    store.save([FILE])
    store.save([AGAIN])

    assert store.pending() == [AGAIN]

    store.assign("j", [AGAIN], QueueName.INGEST)
    store.save([FILE])

    assert store.pending() == [FILE]
    assert {file.job_id for file in store.newest()} == {None, "j"}


def test_one_batcher_gets_each_file():
    """Another, which saw it too, does not; nor does one that saw what it was before (BAT-3)."""
    store = batcher()
    store.save([FILE])
    seen = store.pending()
    store.save([AGAIN])

    assert store.assign("i", seen, QueueName.INGEST) == []
    assert store.assign("j", [AGAIN], QueueName.INGEST) == [replace(AGAIN, job_id="j")]
    assert store.assign("k", [AGAIN], QueueName.INGEST) == []
    assert store.pending() == []
