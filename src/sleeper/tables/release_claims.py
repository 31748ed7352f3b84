"""Releases the claims of compaction jobs: of those whose lease has ended, or of any."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from sleeper.language.value_classes import dataclass
from sleeper.state.plans.leases import HeldClaim, expired_claims, held_claims
from sleeper.state.state_store import StateStore
from sleeper.state.stores.commit_sizes import claim_groups
from sleeper.state.table_state import TableState
from sleeper.state.transactions.claims import ReleaseClaims

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseResult:
    """The released claims.

    Attributes:
        claims: The jobs and the files that were released.
        transaction: The table's transaction number afterwards.
    """

    claims: tuple[HeldClaim, ...]
    transaction: int


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
