"""The transactions that claim compaction inputs, renew claims, and release them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from sleeper.errors import FileReferenceAssignedToJob, FileReferenceNotFound
from sleeper.model.files import ClaimOwner, ClaimRecord, FileReference
from sleeper.state.table_state import TableState, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Files of one partition that a compaction job claims as inputs.

    Attributes:
        job_id: The job.
        partition_id: The partition that references the files.
        filenames: The files; a repeated name counts once.
    """

    job_id: str
    partition_id: str
    filenames: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFiles(Transaction):
    """Claims file references for compaction jobs, all or none (rule STS-7).

    Attributes:
        assignments: The jobs and their files.
        owner: The process that runs the jobs; None in entries of older versions.

    Raises (from `check`):
        FileReferenceNotFound: a partition does not reference one of the files.
        FileReferenceAssignedToJob: a reference is already claimed, or occurs twice here.
    """

    assignments: tuple[Claim, ...]
    owner: ClaimOwner | None = None

    def check(self, state: TableState) -> None:
        """Check that every reference exists and is unclaimed."""
        claimed: dict[tuple[str, str], FileReference] = {}
        for assignment in self.assignments:
            for filename in dict.fromkeys(assignment.filenames):
                where = (filename, assignment.partition_id)
                reference = state.files.reference(*where)
                if reference is None:
                    raise FileReferenceNotFound(state.missing_reference(*where))
                check_unclaimed(claimed.get(where, reference))
                claimed[where] = replace(reference, job_id=assignment.job_id)

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Claim the references."""
        claimed: dict[tuple[str, str], FileReference] = {}
        for assignment in self.assignments:
            for filename in assignment.filenames:
                where = (filename, assignment.partition_id)
                reference = state.files.reference(*where)
                if reference is None:
                    raise LookupError(state.missing_reference(*where))
                claimed[where] = replace(reference, job_id=assignment.job_id)
        if not claimed:
            return state
        files = state.files.changed(removed=claimed, added=claimed.values(), at=at)
        if self.owner is None:
            return replace(state, files=files)
        record = ClaimRecord(owner=self.owner, since=at, renewed=at)
        jobs = {each.job_id: record for each in self.assignments if each.filenames}
        return replace(state, files=files, claims={**state.claims, **jobs})


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewClaims(Transaction):
    """Renews the leases of running compaction jobs (ours).

    Jobs that have lost their claims are skipped: their commits will be refused.

    Attributes:
        job_ids: The jobs.
    """

    job_ids: tuple[str, ...]

    def check(self, state: TableState) -> None:
        """Accept every state."""

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Record the time of renewal for the jobs."""
        renewed = {
            job_id: replace(state.claims[job_id], renewed=at)
            for job_id in self.job_ids
            if job_id in state.claims
        }
        return replace(state, claims={**state.claims, **renewed}) if renewed else state


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseClaims(Transaction):
    """Releases file references that compaction jobs have claimed (upstream's claims do not end).

    References that another job has claimed since, or that no longer exist, are skipped, so a
    second release changes nothing. If the job is still running, its commit is refused.

    Attributes:
        claims: The claims, as they were made.
    """

    claims: tuple[Claim, ...]

    def check(self, state: TableState) -> None:
        """Refuse nothing."""

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Release the references."""
        freed: dict[tuple[str, str], FileReference] = {}
        for claim in self.claims:
            for filename in claim.filenames:
                where = (filename, claim.partition_id)
                reference = state.files.reference(*where)
                if reference is not None and reference.job_id == claim.job_id:
                    freed[where] = replace(reference, job_id=None)
        claims = without_jobs(state.claims, {claim.job_id for claim in self.claims})
        if not freed and claims is state.claims:
            return state
        files = state.files.changed(removed=freed, added=freed.values(), at=at)
        return replace(state, files=files, claims=claims)


def without_jobs(
    claims: Mapping[str, ClaimRecord], job_ids: Collection[str]
) -> Mapping[str, ClaimRecord]:
    """Return the records of claims without some jobs."""
    if claims.keys().isdisjoint(job_ids):
        return claims
    return {job_id: record for job_id, record in claims.items() if job_id not in job_ids}


def check_unclaimed(reference: FileReference) -> None:
    """Check that no job has claimed a reference.

    Raises:
        FileReferenceAssignedToJob: a job has claimed it.
    """
    if reference.job_id is not None:
        raise FileReferenceAssignedToJob(
            f"{reference.filename!r} on partition {reference.partition_id!r} is claimed by job "
            f"{reference.job_id!r}. Wait until that job has committed, then plan again."
        )
