"""The transactions that claim compaction inputs, and release them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from sleeper.errors import FileReferenceAssignedToJob, FileReferenceNotFound
from sleeper.model.files import FileReference
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
    """Claims file references for compaction jobs, all or none (spec STS-7).

    Raises (from `check`):
        FileReferenceNotFound: a partition does not reference one of the files.
        FileReferenceAssignedToJob: a reference is claimed already, or twice in here.
    """

    assignments: tuple[Claim, ...]

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
        return replace(state, files=files)


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
        if not freed:
            return state
        files = state.files.changed(removed=freed, added=freed.values(), at=at)
        return replace(state, files=files)


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
