"""How a run of compaction claims jobs, renews its claims, and gives back what is left of them."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from sleeper.errors import CommitContended, StorageFailed
from sleeper.model.files import ClaimOwner, FileReference
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.model.partitions import tree_from_split_points
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.state.log_store import TransactionLogStateStore
from sleeper.state.transactions.files import (
    AddFiles,
    Claim,
    ClaimFiles,
    ReleaseClaims,
    RenewClaims,
    ReplaceFiles,
)
from sleeper.state.transactions.partitions import InitialisePartitions
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.snapshots import ObjectSnapshotStore
from sleeper.storage.transaction_log import ObjectTransactionLog
from sleeper.tables.claims import JobClaims
from tests.patience import PATIENCE_S

SCHEMA = Schema(row_keys=(Field("k", Primitive.LONG),))
OWNER = ClaimOwner(host="here", pid=7, worker_id="w-1")
JOBS = [
    CompactionJob(job_id=f"job-{n}", partition_id="root", inputs=(f"{n}a", f"{n}b"))
    for n in range(6)
]


class Failing:
    """A store of which some commits fail."""

    def __init__(self, store, fails):
        self._store = store
        self._fails = fails

    def __getattr__(self, name):
        return getattr(self._store, name)

    def commit(self, transaction):
        failure = self._fails(transaction)
        if failure is not None:
            raise failure
        return self._store.commit(transaction)


@pytest.fixture
def store():
    """A table of one partition with the inputs of JOBS; each look at the clock takes a second."""
    times, ids = count(), count()

    def now():
        return datetime(2026, 6, 1, tzinfo=UTC) + timedelta(seconds=next(times))

    objects = MemoryObjects(now)
    store = TransactionLogStateStore(
        ObjectTransactionLog(objects),
        ObjectSnapshotStore(objects),
        SCHEMA,
        now=now,
        new_id=lambda: f"entry-{next(ids)}",
        pause=lambda attempt: None,
    )
    tree = tree_from_split_points(SCHEMA, [], new_id=lambda: "unused")
    store.commit(InitialisePartitions(partitions=(tree.root,)))
    references = tuple(
        FileReference(filename=name, partition_id="root", row_count=1)
        for job in JOBS
        for name in job.inputs
    )
    store.commit(AddFiles(references=references))
    return store


def claims_of(store, jobs_max=2, renew_every_s=60.0):
    return JobClaims(store, owner=OWNER, jobs_max=jobs_max, renew_every_s=renew_every_s)


def claimed_jobs(store):
    return sorted({ref.job_id for ref in store.refresh().references() if ref.job_id})


def test_a_few_jobs_are_claimed_at_a_time(store):
    """The next are claimed when these have been taken, and the state says who has them."""
    with claims_of(store) as claims:
        (jobs,) = claims.rounds(JOBS[:3], None)
        first = next(jobs)
        early = claimed_jobs(store)
        rest = [*jobs]

    assert early == ["job-0", "job-1"]
    assert [first, *rest] == JOBS[:3]
    assert claims.planned == 3


def test_what_is_left_is_released_at_the_end(store):
    """Whatever ended the run: an error, Ctrl-C, SIGTERM."""
    with pytest.raises(KeyboardInterrupt), claims_of(store) as claims:
        for jobs in claims.rounds(JOBS, None):
            next(jobs)
            raise KeyboardInterrupt

    assert claimed_jobs(store) == []
    assert store.refresh().claims == {}


def test_jobs_of_which_others_have_a_file_are_left_out(store):
    """Another run was faster: its jobs are not failures of this one."""
    theirs = Claim(job_id="theirs", partition_id="root", filenames=("1b",))
    store.commit(ClaimFiles(assignments=(theirs,)))

    with claims_of(store) as claims:
        (jobs,) = claims.rounds(JOBS[:3], None)
        taken = [job.job_id for job in jobs]

    assert taken == ["job-0", "job-2"]
    assert claimed_jobs(store) == ["theirs"]


def test_claims_are_renewed_while_jobs_run(store):
    """By a thread, so that a lease can be short and a job long."""
    renewed = threading.Event()

    def note(transaction):
        if isinstance(transaction, RenewClaims):
            renewed.set()

    with claims_of(Failing(store, note), renew_every_s=0.01) as claims:
        (jobs,) = claims.rounds(JOBS[:1], None)
        next(jobs)
        before = store.state().claims["job-0"]
        assert renewed.wait(PATIENCE_S)
        while store.state().claims["job-0"].renewed == before.renewed:
            renewed.wait(0.01)
        after = store.state().claims["job-0"]

    assert (after.owner, after.since) == (OWNER, before.since)
    assert after.renewed > before.renewed


def test_a_renewal_that_fails_is_tried_again(store, caplog):
    """It is logged, and the job goes on."""
    failures = [StorageFailed("no answer")]
    renewed = threading.Event()

    def fail_once(transaction):
        if not isinstance(transaction, RenewClaims):
            return None
        if failures:
            return failures.pop()
        renewed.set()
        return None

    with claims_of(Failing(store, fail_once), renew_every_s=0.01) as claims:
        (jobs,) = claims.rounds(JOBS[:1], None)
        next(jobs)
        assert renewed.wait(PATIENCE_S)

    assert "could not be renewed: no answer" in caplog.text


def test_running_jobs_end_before_a_failed_claim_is_raised(store):
    """Jobs that others work at are not killed because the next ones could not be claimed."""
    wins = iter([None, CommitContended("others were first")])

    def lose(transaction):
        return next(wins) if isinstance(transaction, ClaimFiles) else None

    with claims_of(Failing(store, lose)) as claims:
        rounds = claims.rounds(JOBS, None)
        taken = [*next(rounds)]
        with pytest.raises(CommitContended):
            next(rounds)

    assert taken == JOBS[:2]


def test_claims_that_cannot_be_released_are_logged(store, caplog):
    """They end with their lease."""

    def fail(transaction):
        return StorageFailed("no answer") if isinstance(transaction, ReleaseClaims) else None

    with claims_of(Failing(store, fail)) as claims:
        (jobs,) = claims.rounds(JOBS[:1], None)
        next(jobs)

    assert "stay until their lease ends: no answer" in caplog.text
    assert claimed_jobs(store) == ["job-0"]


def test_a_leaf_is_planned_again_once_its_inputs_were_replaced(store):
    """Whatever the name of the output is: on Spark each attempt has its own."""
    with claims_of(store) as claims:
        rounds = claims.rounds(JOBS[:1], lambda state: [] if JOBS[2] in taken else [JOBS[2]])
        taken = [*next(rounds)]
        output = FileReference(
            filename=JOBS[0].output_of("a1"), partition_id="root", row_count=2, whole_file=True
        )
        store.commit(ReplaceFiles(job_id="job-0", inputs=JOBS[0].inputs, output=output))
        taken += next(rounds)

    assert taken == [JOBS[0], JOBS[2]]


def test_rounds_end_where_jobs_fail(store):
    """A partition whose job was not committed is not planned again."""
    with claims_of(store) as claims:
        rounds = [[*jobs] for jobs in claims.rounds(JOBS[:1], lambda state: JOBS[1:2])]

    assert rounds == [JOBS[:1]]
