"""Claims of compaction jobs on their input files: made, renewed, listed and released.

1. a run claims the inputs of a few jobs at a time (`JobClaims`), so a killed process leaves few
2. a thread of the run renews its claims while jobs run; a claim ends a lease after that
3. the commit of a job ends its claim, and the end of the run releases what is left
4. claims whose lease has ended are released by the next compaction, any by `release_claims`
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from threading import Event, Thread
from typing import Protocol, Self

from sleeper.errors import BadRequest, SleeperError
from sleeper.html.values import NotebookHtml
from sleeper.model.files import ClaimOwner
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.state.commit_changes import claim_changes, claim_groups, in_groups
from sleeper.state.plans.claims import (
    HeldClaim,
    expired_claims,
    held_claims,
    inputs_are_free,
    inputs_are_held,
    inputs_remain,
)
from sleeper.state.state_store import StateStore, commit_planned
from sleeper.state.table_state import TableState
from sleeper.state.transactions.files import Claim, ClaimFiles, ReleaseClaims, RenewClaims
from sleeper.tables.open_table import OpenTable

_NO_LIMIT = sys.maxsize
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseResult(NotebookHtml):
    """The released claims.

    Attributes:
        claims: The jobs and the files that were released.
        transaction: The table's transaction number afterwards.
    """

    claims: tuple[HeldClaim, ...]
    transaction: int


def claims(table: OpenTable) -> tuple[HeldClaim, ...]:
    """Return the claims of compaction jobs (`Table.claims`)."""
    state, now = table.store.refresh(), table.context.clock.now()
    return held_claims(state, lease_of(table), max(now, state.at or now))


def release_claims(
    table: OpenTable, job_id: str | None = None, *, expired_only: bool = False
) -> ReleaseResult:
    """Release claims of one job, of all, or of those whose lease has ended."""
    if not expired_only:
        return release_jobs(job_id, lease_of(table), store=table.store)
    if job_id is not None:
        raise BadRequest("give release_claims a job_id or expired_only=True, not both")
    return release_expired_jobs(lease_of(table), store=table.store)


class ClaimsWatch(Protocol):
    """Follows the claims of a run, and says when there are enough."""

    def room(self) -> int:
        """Return how many more jobs may be claimed now; at 0 no more are, and the run ends."""
        ...

    def claimed(self, jobs: Sequence[CompactionJob]) -> None:
        """Take note that the files of these jobs were claimed."""
        ...


def lease_of(table: OpenTable) -> timedelta:
    """Return how long a claim of a table is valid without renewal."""
    return timedelta(minutes=table.properties.compaction.lease_minutes)


def release_expired_jobs(lease: timedelta, *, store: StateStore) -> ReleaseResult:
    """Release files of jobs whose lease has ended, in one commit if the store takes as much.

    If such a job is still running, its commit is refused. Its work is lost, but no row is doubled.

    Raises:
        CommitContended, CommitUnknown, StorageFailed: try again.
    """
    state = store.refresh()
    return _release(
        expired_claims(state, lease, store.time()), state.number, store, "its lease has ended"
    )


def expired_released(state: TableState, lease: timedelta, now: datetime) -> TableState:
    """Return the state as `release_expired_jobs` would leave it; nothing is committed."""
    expired = expired_claims(state, lease, now)
    return ReleaseClaims(claims=tuple(each.claim for each in expired)).fold(state, now)


def release_jobs(job_id: str | None, lease: timedelta, *, store: StateStore) -> ReleaseResult:
    """Release files of one job, or of all jobs, even if they are running.

    Args:
        job_id: The job; None for all jobs.
        lease: How long a claim is valid without renewal.
        store: The table's state.

    Raises:
        CommitContended, CommitUnknown, StorageFailed: try again.
    """
    state = store.refresh()
    held = held_claims(state, lease, store.time())
    claims = [each for each in held if job_id is None or each.job_id == job_id]
    return _release(claims, state.number, store, "by request")


def _release(
    claims: Sequence[HeldClaim], number: int, store: StateStore, why: str
) -> ReleaseResult:
    for group in claim_groups((each.claim for each in claims), store.changes_max):
        number = store.commit(ReleaseClaims(claims=group)).number
    for each in claims:
        _log.warning(
            "released %d files of compaction job %s of %s, claimed %d s ago: %s",
            len(each.filenames),
            each.job_id,
            each.owner or "an unknown process",
            each.age_s,
            why,
        )
    return ReleaseResult(claims=tuple(claims), transaction=number)


class JobClaims:
    """The claims of one compaction run; remaining claims are released at its end.

    Use it in a `with` statement.

    Args:
        store: The table's state.
        owner: The process that runs the jobs.
        jobs_max: Jobs claimed together: enough that workers do not wait for the next claim.
        renew_every_s: Seconds between renewals; a small part of the lease.
        room: Asked before each claim: how many more jobs may be claimed; 0 ends the run.
        claimed: Called with the jobs of each claim that was committed.

    Attributes:
        planned: Number of jobs planned so far.
    """

    def __init__(
        self,
        store: StateStore,
        *,
        owner: ClaimOwner,
        jobs_max: int,
        renew_every_s: float,
        room: Callable[[], int] = lambda: _NO_LIMIT,
        claimed: Callable[[Sequence[CompactionJob]], None] = lambda jobs: None,
    ) -> None:
        self._store = store
        self._owner, self._jobs_max, self._renew_every_s = owner, jobs_max, renew_every_s
        self._room = room
        self._tell_claimed = claimed
        self._tried: dict[str, CompactionJob] = {}
        self._failure: SleeperError | None = None
        self._ended = Event()
        self._renewals = Thread(target=self._renew, name="renew claims", daemon=True)
        self.planned = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._renewals.is_alive():
            self._renewals.join()
        self._release_what_is_left()

    def rounds(
        self,
        jobs: Sequence[CompactionJob],
        plan_again: Callable[[TableState], Sequence[CompactionJob]] | None,
    ) -> Iterator[Iterator[CompactionJob]]:
        """Yield the jobs of each round; each is claimed shortly before it is yielded.

        Jobs with an input that another process claimed or changed are left out.

        Args:
            jobs: The jobs of the first round.
            plan_again: Plans the next round when all jobs of a round have ended, until there
                are no jobs. Partitions where a job failed to commit are left out. None for one
                round.

        Raises:
            CommitContended, CommitUnknown, StorageFailed: jobs of a round could not be
                claimed; raised at the end of the round.
        """
        left_out: set[str] = set()
        while jobs:
            self.planned += len(jobs)
            yield self._claimed(jobs)
            if self._failure is not None:
                raise self._failure
            if plan_again is None or self._room() <= 0:
                return
            state = self._store.refresh()
            left_out |= {job.partition_id for job in jobs if inputs_remain(state, job)}
            jobs = [job for job in plan_again(state) if job.partition_id not in left_out]

    def _claimed(self, jobs: Iterable[CompactionJob]) -> Iterator[CompactionJob]:
        waiting = iter(jobs)
        while (room := self._room()) > 0:
            batch = [*islice(waiting, min(room, self._jobs_max))]
            if not batch:
                return
            try:
                for group in in_groups(batch, _changes_of, self._store.changes_max):
                    yield from self._claim(group)
            except SleeperError as failure:  # raised when the running jobs have ended
                _log.warning("no more compaction jobs can be claimed: %s", failure)
                self._failure = failure
                return

    def _claim(self, jobs: Sequence[CompactionJob]) -> list[CompactionJob]:
        def plan(state: TableState) -> tuple[list[CompactionJob], ClaimFiles | None]:
            free = [job for job in jobs if inputs_are_free(state, job)]
            claims = tuple(map(_claim_of, free))
            return free, ClaimFiles(assignments=claims, owner=self._owner) if free else None

        self._tried |= {job.job_id: job for job in jobs}
        claimed, _ = commit_planned(self._store, plan)
        for job in jobs:
            if job not in claimed:
                _log.info("job %s is left out: others have taken its files", job.job_id)
        if claimed and self._renewals.ident is None:
            self._renewals.start()
        if claimed:
            self._tell_claimed(claimed)
        return claimed

    def _renew(self) -> None:
        while not self._ended.wait(self._renew_every_s):
            held = [*self._store.state().claims.keys() & self._tried.keys()]
            if not held:
                continue
            try:
                for job_ids in in_groups(sorted(held), lambda _: 1, self._store.changes_max):
                    self._store.commit(RenewClaims(job_ids=job_ids))
                _log.debug("renewed the claims of %d compaction jobs", len(held))
            except SleeperError as failure:
                _log.warning("claims of compaction jobs could not be renewed: %s", failure)

    def _release_what_is_left(self) -> None:
        if not self._tried:
            return
        try:
            state = self._store.refresh()
            left = [job for job in self._tried.values() if inputs_are_held(state, job)]
            if left:
                for claims in claim_groups(map(_claim_of, left), self._store.changes_max):
                    self._store.commit(ReleaseClaims(claims=claims))
                _log.info("released the files of %d compaction jobs that did not run", len(left))
        except SleeperError as failure:
            _log.warning("claims of compaction jobs stay until their lease ends: %s", failure)


def _changes_of(job: CompactionJob) -> int:
    return claim_changes(_claim_of(job))


def _claim_of(job: CompactionJob) -> Claim:
    return Claim(job_id=job.job_id, partition_id=job.partition_id, filenames=job.inputs)


def claims_of_run(table: OpenTable, jobs_max: int, watch: ClaimsWatch | None = None) -> JobClaims:
    """Return the claims of a run of this process, which end with it."""
    context = table.context
    claims = partial(
        JobClaims,
        table.store,
        owner=ClaimOwner(host=context.host, pid=os.getpid(), worker_id=context.new_id()),
        jobs_max=jobs_max,
        renew_every_s=lease_of(table).total_seconds() / 3,
    )
    return claims() if watch is None else claims(room=watch.room, claimed=watch.claimed)
