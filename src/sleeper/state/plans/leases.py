"""Finds compaction jobs that hold claims, since when, and those whose lease has ended."""

from __future__ import annotations

from datetime import datetime, timedelta

from sleeper.language.value_classes import dataclass
from sleeper.model.files import ClaimOwner
from sleeper.state.table_state import TableState
from sleeper.state.transactions.claims import Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldClaim:
    """Files of one partition that a compaction job has claimed.

    Attributes:
        job_id: The job.
        partition_id: The partition.
        filenames: The files.
        owner: The process that runs the job; None if an older version made the claim.
        since: When it claimed them.
        age_s: Seconds since then.
        renewed: When it last renewed the claim.
        lease_ends: When its lease ends: from then on any compaction run may release the files.
    """

    job_id: str
    partition_id: str
    filenames: tuple[str, ...]
    owner: ClaimOwner | None
    since: datetime
    age_s: int
    renewed: datetime
    lease_ends: datetime

    @property
    def claim(self) -> Claim:
        """The claim, as `ReleaseClaims` takes it."""
        return Claim(job_id=self.job_id, partition_id=self.partition_id, filenames=self.filenames)


def held_claims(state: TableState, lease: timedelta, now: datetime) -> tuple[HeldClaim, ...]:
    """Return all claims, ordered by job id: one for each job and partition.

    Args:
        state: The table.
        lease: How long a claim is valid without renewal.
        now: The current time.
    """
    names: dict[tuple[str, str], list[str]] = {}
    claimed: dict[tuple[str, str], datetime] = {}
    for partition_id, totals in state.files.totals().items():
        if not totals.references_on_jobs:
            continue
        for reference in state.files.references_on(partition_id):
            if reference.job_id is not None and reference.updated is not None:
                where = (reference.job_id, partition_id)
                names.setdefault(where, []).append(reference.filename)
                claimed[where] = max(reference.updated, claimed.get(where, reference.updated))
    found = []
    for (job_id, partition_id), since in sorted(claimed.items()):
        record = state.claims.get(job_id)
        renewed = max(since, record.renewed) if record else since
        found.append(
            HeldClaim(
                job_id=job_id,
                partition_id=partition_id,
                filenames=tuple(names[job_id, partition_id]),
                owner=record.owner if record else None,
                since=since,
                age_s=max(0, round((now - since).total_seconds())),
                renewed=renewed,
                lease_ends=renewed + lease,
            )
        )
    return tuple(found)


def expired_claims(state: TableState, lease: timedelta, now: datetime) -> tuple[HeldClaim, ...]:
    """Return the claims whose lease has ended."""
    return tuple(each for each in held_claims(state, lease, now) if each.lease_ends < now)
