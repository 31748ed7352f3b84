"""Takes files back from compaction jobs that have not ended in time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from logging import getLogger

from sleeper.planning.leases import expired_claims
from sleeper.state.state_store import StateStore
from sleeper.state.transactions.claims import Claim, ReleaseClaims

_LOG = getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseResult:
    """What was released.

    Attributes:
        claims: The jobs that lost their files, and which.
        transaction: The table's transaction number afterwards.
    """

    claims: tuple[Claim, ...]
    transaction: int


def release_expired_jobs(before: datetime, *, store: StateStore) -> ReleaseResult:
    """Release files that were claimed before a time, in one commit; or do nothing.

    A job that is still running is refused when it commits: it has done its work in vain, and no
    row is doubled.

    Raises:
        CommitContended, CommitUnknown, StorageFailed: try again.
    """
    state = store.refresh()
    claims = expired_claims(state, before)
    if not claims:
        return ReleaseResult(claims=(), transaction=state.number)
    after = store.commit(ReleaseClaims(claims=claims))
    for claim in claims:
        _LOG.warning(
            "took %d files back from compaction job %s, which did not end in time",
            len(claim.filenames),
            claim.job_id,
        )
    return ReleaseResult(claims=claims, transaction=after.number)
