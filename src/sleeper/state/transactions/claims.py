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
    """Files of one partition that a compaction job is to read.

    Attributes:
        job_id: The job that claims them.
        partition_id: Where they are referenced.
        filenames: Which; a repeated name counts once.
    """

    job_id: str
    partition_id: str
    filenames: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFiles(Transaction):
    """Claims file references for compaction jobs, all or none (rule STS-7).

    Attributes:
        assignments: The jobs and their files.
        owner: Who runs the jobs; None in entries of before claims had owners.

    Raises (from `check`):
        FileReferenceNotFound: a partition does not reference one of the files.
        FileReferenceAssignedToJob: a reference is claimed already, or twice in here.
    """

    assignments: tuple[Claim, ...]
    owner: ClaimOwner | None = None

    def check(self, state: TableState) -> None:
        """Check that every reference is there and unclaimed."""
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
    """Renews the leases of compaction jobs that still run (ours).

    Jobs that have lost their claims are left out: they are refused when they commit.

    Attributes:
        job_ids: The jobs.
    """

    job_ids: tuple[str, ...]

    def check(self, state: TableState) -> None:
        """Refuse nothing."""

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Note the time in the records of the jobs."""
        renewed = {
            job_id: replace(state.claims[job_id], renewed=at)
            for job_id in self.job_ids
            if job_id in state.claims
        }
        return replace(state, claims={**state.claims, **renewed}) if renewed else state


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseClaims(Transaction):
    """Frees file references that compaction jobs have claimed (ours: upstream's locks stay).

    What another job has claimed meanwhile, and what is gone, is left alone: to release twice
    changes nothing. A job that runs nevertheless is refused when it commits.

    Attributes:
        claims: The claims, as they were made.
    """

    claims: tuple[Claim, ...]

    def check(self, state: TableState) -> None:
        """Refuse nothing."""

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Free the references."""
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
    """Return records without those of jobs that have no claims any longer."""
    if claims.keys().isdisjoint(job_ids):
        return claims
    return {job_id: record for job_id, record in claims.items() if job_id not in job_ids}


def check_unclaimed(reference: FileReference) -> None:
    """Check that no job is about to replace a reference.

    Raises:
        FileReferenceAssignedToJob: one is.
    """
    if reference.job_id is not None:
        raise FileReferenceAssignedToJob(
            f"{reference.filename!r} on partition {reference.partition_id!r} is claimed by job "
            f"{reference.job_id!r}. Wait until that job has committed, then plan again."
        )
