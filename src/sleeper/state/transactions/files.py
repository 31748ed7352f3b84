"""The transactions that change a table's files, their references, and who claims them.

The cost of each is proportional to its own size, not to the table's. They keep the invariant that
every row is referenced once (rule FRF-3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self

from sleeper.errors import (
    FileAlreadyExists,
    FileHasReferences,
    FileNotTracked,
    FileReferenceAlreadyExists,
    FileReferenceAssignedToJob,
    FileReferenceNotAssignedToJob,
    FileReferenceNotFound,
    JobAlreadyCommitted,
    NewFilesTooOld,
    NewReferenceSameAsOldReference,
    PartitionNotInTree,
    TableChanged,
)
from sleeper.model.files import ClaimOwner, ClaimRecord, FileReference
from sleeper.model.partitions import PartitionTree
from sleeper.model.row_deletes import KeyFile, RowDelete
from sleeper.state.file_references import FileReferences
from sleeper.state.table_state import (
    CommittedJob,
    CommittedJobs,
    JobRecord,
    TableState,
    Transaction,
)

# ---------------------------------------------------------------- placement
#
# Checks and corrects the partitions of references to files.


def placed_references(
    references: Sequence[FileReference], tree: PartitionTree | None
) -> Sequence[FileReference]:
    """Return references to new files, with those to merged partitions moved to their parents."""
    if not (tree and tree.merged) or not any(ref.partition_id in tree.merged for ref in references):
        return references
    placed = [
        replace(ref, partition_id=tree.surviving_partition(ref.partition_id)) for ref in references
    ]
    moved = {
        ref.filename
        for before, ref in zip(references, placed, strict=True)
        if before.partition_id != ref.partition_id
    }
    kept = [ref for ref in placed if ref.filename not in moved]
    for of_one_file in references_by_file(ref for ref in placed if ref.filename in moved).values():
        united = unite_references(of_one_file)
        kept += [replace(united[0], whole_file=True)] if len(united) == 1 else united
    return kept


def unite_references(references: Iterable[FileReference]) -> list[FileReference]:
    """Merge references so that there is one for each file and partition, with the sum of rows."""
    united: dict[tuple[str, str], FileReference] = {}
    for reference in references:
        where = (reference.filename, reference.partition_id)
        other = united.setdefault(where, reference)
        if other is not reference:
            united[where] = replace(
                other,
                row_count=other.row_count + reference.row_count,
                row_count_estimated=other.row_count_estimated or reference.row_count_estimated,
            )
    return [*united.values()]


def references_by_file(references: Iterable[FileReference]) -> dict[str, list[FileReference]]:
    """Return the references to each file."""
    by_filename: dict[str, list[FileReference]] = {}
    for reference in references:
        by_filename.setdefault(reference.filename, []).append(reference)
    return by_filename


def check_placement(
    references: Sequence[FileReference], tree: PartitionTree | None, below: str | None = None
) -> None:
    """Check that one file's references are in the tree, under `below`, and share no rows."""
    places = Counter(reference.partition_id for reference in references)
    for partition_id, count in places.items():
        filename = references[0].filename
        if count > 1:
            raise FileReferenceAlreadyExists(
                f"{filename!r} has {count} references on partition {partition_id!r}. "
                "Its rows would be read several times. Give it one reference."
            )
        if tree is None or partition_id not in tree:
            raise PartitionNotInTree(
                f"{filename!r} cannot be referenced on partition {partition_id!r}: the table's "
                "tree has no such partition. Read the table's state, then place the file again."
            )
        if below is None and len(places) == 1:
            continue
        above = tree.ids_upwards(partition_id)[1:]
        if below is not None and below not in above:
            raise PartitionNotInTree(
                f"{filename!r} cannot be pushed from partition {below!r} to {partition_id!r}, "
                "which is not below it. Plan it again from the newest state."
            )
        shared = [ancestor_id for ancestor_id in above if ancestor_id in places]
        if shared:
            raise FileReferenceAlreadyExists(
                f"{filename!r} would be referenced on partition {partition_id!r} and on its "
                f"ancestor {shared[0]!r}: rows would be read twice. Keep one of the two."
            )


_NOTHING_KNOWN = FileReference(filename="", partition_id="", row_count=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddFiles(Transaction):
    """Adds new files and the job that wrote them (rule STS-5).

    A partition that was split since then accepts references (rule PRT-13). References to a
    partition that was merged with its sibling go to their parent.

    Attributes:
        references: Every reference of every new file; a file may have several.
        unreferenced: New files without references: they are garbage.
        job: Recorded with the files, so that the same job adds nothing when it runs again.
        written_since: No file was written before this time, by the storage's clock; None in
            entries of older versions.

    Raises (from `check`):
        JobAlreadyCommitted: the job was committed before, with its files.
        FileAlreadyExists: the table tracks one of the files.
        FileReferenceAlreadyExists: a file is twice on a partition, or on it and its ancestor.
        PartitionNotInTree: a reference is for a partition that does not exist.
        NewFilesTooOld: a sweep of orphans may have deleted the files.
    """

    references: tuple[FileReference, ...] = ()
    unreferenced: tuple[str, ...] = ()
    job: CommittedJob | None = None
    written_since: datetime | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "references", as_given(self.references))
        both = {ref.filename for ref in self.references} & set(self.unreferenced)
        if both:
            raise ValueError(f"files are added both with and without references: {sorted(both)}")

    def check(self, state: TableState) -> None:
        """Check that job and files are new, and that the partitions of references exist."""
        self._check_job(state)
        self._check_swept(state)
        references = placed_references(self.references, state.partitions)
        by_file = references_by_file(references)
        for filename in (*by_file, *self.unreferenced):
            if state.files.is_tracked(filename):
                raise FileAlreadyExists(
                    f"file {filename!r} is in the table already: {state.whereabouts(filename)}. "
                    "Nothing was added. Write new data to files with new names."
                )
        for of_one_file in by_file.values():
            check_placement(of_one_file, state.partitions)

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Add the files and record the job."""
        return _added((self,), state, at)

    def _check_job(self, state: TableState) -> None:
        committed = state.jobs.find(self.job.job_id) if self.job else None
        if self.job is not None and committed is not None:
            raise JobAlreadyCommitted(self.job.job_id, committed.number)

    def _check_swept(self, state: TableState) -> None:
        swept = state.swept_before
        if self.references and swept and self.written_since and self.written_since < swept:
            raise NewFilesTooOld(
                f"a sweep of orphans has deleted what was written before {swept}, and these files "
                f"were written since {self.written_since}. Nothing was added. Run the job again, "
                "in smaller parts or with a larger sleeper.table.gc.orphan.age.minutes."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertFiles(AddFiles):
    """Adds new files, and deletes all rows that have their row keys from older ones (format 2).

    No other file is read or changed: readers leave the old rows out, and so do compactions, whose
    outputs are free of them.

    Attributes:
        without_old_rows: Those of the files of whose keys no older file has a row.

    Raises (from `check`):
        TableChanged: the table has format 1 now, or the same entry has added files to a leaf
            before: they are not older.
    """

    without_old_rows: frozenset[str] = frozenset()

    def check(self, state: TableState) -> None:
        """Check as for other new files, that the table has format 2, and that all are older."""
        super(UpsertFiles, self).check(state)
        check_rows_may_go(state)
        placed = placed_references(self.references, state.partitions)
        places = [state.partition(each.partition_id).region for each in placed]
        for leaf, _ in state.tree.leaves_overlapping(places) if places else ():
            if any(
                each.sequence == state.number for each in state.references_of(leaf.partition_id)
            ):
                raise TableChanged(
                    f"the same entry adds rows to leaf {leaf.partition_id!r}, which may have the "
                    "same keys. Nothing was changed. Commit the upsert in an entry of its own"
                )

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Add the files, and record the deletion where a leaf has older ones."""
        files = [each for each in self.references if each.filename not in self.without_old_rows]
        return with_keys_deleted(super(UpsertFiles, self).fold(state, at), state, files)


def with_keys_deleted(
    state: TableState, before: TableState, files: Sequence[FileReference]
) -> TableState:
    """Return a state with the deletion of the keys of files, where leaves have older ones.

    Args:
        state: The state with these files.
        before: The state without them.
        files: The files, and the partitions of their keys.
    """
    by_partition: dict[str, tuple[KeyFile, ...]] = {}
    for each in placed_references(files, state.partitions):
        if each.row_count:
            known = by_partition.get(each.partition_id, ())
            found = KeyFile(each.filename, each.row_count)
            by_partition[each.partition_id] = (*known, found)
    left = {
        partition_id: found
        for partition_id, found in by_partition.items()
        if before.is_yet_to_obey(
            RowDelete(state.number, key_files={partition_id: found}), before.files
        )
    }
    if not left:
        return state
    return replace(state, deletes=(*state.deletes, RowDelete(state.number, key_files=left)))


def check_rows_may_go(state: TableState) -> None:
    """Check that readers of a table know of rows that are deleted.

    Raises:
        TableChanged: the table has format 1.
    """
    if state.format < 2:
        raise TableChanged(
            "rows of a table of format 1 cannot be deleted, because readers before format 2 "
            "would show them. Nothing was deleted. Upgrade it first (`sleeper table upgrade`)."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceFiles(Transaction):
    """Commits a compaction: removes its input references and adds one output reference (STS-8).

    An input that no partition references any longer is garbage from `at` on. Readers see the
    change atomically.

    Attributes:
        job_id: The compaction job, which has claimed every input.
        inputs: The files it read on the partition of `output`; a repeated name counts once.
        output: The reference to the file it wrote; it becomes unclaimed.
        task_id: The task that ran it, for the job tracker; given with `run_id`, or neither.
        run_id: The run of the job, for the job tracker.
        rows_removed: Rows of the partition that the inputs had, by their references; None until it
            is committed, and in entries of earlier versions.

    Raises:
        NewReferenceSameAsOldReference: the output has the name of an input.
        ValueError: there is no input, or only one of `task_id` and `run_id`.

    Raises (from `check`):
        FileNotTracked: the table does not track an input, or no longer.
        FileReferenceNotFound: an input was moved or already replaced.
        FileReferenceNotAssignedToJob: an input is not claimed by this job.
        FileAlreadyExists: the table tracks the output already.
    """

    job_id: str
    inputs: tuple[str, ...]
    output: FileReference
    task_id: str | None = None
    run_id: str | None = None
    rows_removed: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        (output,) = as_given([self.output])
        object.__setattr__(self, "output", replace(output, job_id=None))
        if not self.inputs:
            raise ValueError(f"compaction job {self.job_id!r} has no input")
        if (self.task_id is None) != (self.run_id is None):
            raise ValueError("task_id and run_id must be given together, or not at all")
        if self.output.filename in self.inputs:
            raise NewReferenceSameAsOldReference(
                f"compaction job {self.job_id!r} writes {self.output.filename!r}, which it also "
                "reads. Give its output a name of its own, such as the job's id."
            )

    def check(self, state: TableState) -> None:
        """Check that this job has claimed the inputs, and that the output is new."""
        partition_id = self.output.partition_id
        for filename in dict.fromkeys(self.inputs):
            self._check_claim(_reference(state, filename, partition_id))
        if state.files.is_tracked(self.output.filename):
            raise FileAlreadyExists(
                f"compaction job {self.job_id!r} wrote {self.output.filename!r}, which is in the "
                f"table already: {state.whereabouts(self.output.filename)}. Leave that file alone."
            )

    def recorded(self, state: TableState) -> Self:
        """Return the compaction with the rows that it takes out."""
        partition_id = self.output.partition_id
        inputs = [_reference(state, name, partition_id) for name in dict.fromkeys(self.inputs)]
        return replace(self, rows_removed=sum(each.row_count for each in inputs))

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Replace the inputs by the output."""
        files = state.files.changed(
            removed=[(filename, self.output.partition_id) for filename in self.inputs],
            added=[_new(self.output, state.number, at)],
            at=at,
        )
        claims = without_jobs(state.claims, {self.job_id})
        return replace(state.with_files(files, [self.output.partition_id], at), claims=claims)

    def _check_claim(self, reference: FileReference) -> None:
        if reference.job_id != self.job_id:
            claim = (
                f"is claimed by job {reference.job_id!r}" if reference.job_id else "is unclaimed"
            )
            raise FileReferenceNotAssignedToJob(
                f"{reference.filename!r} on partition {reference.partition_id!r} {claim}, so job "
                f"{self.job_id!r} cannot replace it. Drop this job and plan compactions again."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencePush:
    """One reference, and the references below its partition that replace it.

    Attributes:
        filename: The file.
        partition_id: The partition that references it now.
        into: References to the same file on partitions below, without common rows.

    Raises:
        ValueError: `into` is empty, or names another file.
    """

    filename: str
    partition_id: str
    into: tuple[FileReference, ...]

    def __post_init__(self) -> None:
        # Attributes of the file itself are taken from the reference that is replaced.
        known = (ref.about_file(_NOTHING_KNOWN) for ref in as_given(self.into))
        object.__setattr__(self, "into", tuple(known))
        others = {ref.filename for ref in self.into} - {self.filename}
        if others or not self.into:
            raise ValueError(
                f"references that replace {self.filename!r} must be to that file: {sorted(others)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFileReferences(Transaction):
    """Moves references of split partitions down the tree (rule STS-6).

    Raises (from `check`):
        FileNotTracked: the table does not track the file.
        FileReferenceNotFound: the partition does not reference it, or no longer.
        FileReferenceAssignedToJob: a job has claimed the old reference.
        FileReferenceAlreadyExists: a new reference exists already, or would share rows.
        PartitionNotInTree: a new reference is not below the old one.
    """

    pushes: tuple[ReferencePush, ...]

    def check(self, state: TableState) -> None:
        """Check that old references exist and are unclaimed, and that new ones are below them."""
        removed: set[tuple[str, str]] = set()
        added: set[tuple[str, str]] = set()
        for push in self.pushes:
            where = (push.filename, push.partition_id)
            if where in removed:
                raise FileReferenceNotFound(
                    f"{push.filename!r} on partition {push.partition_id!r} is pushed down twice "
                    "in one transaction. Name it once."
                )
            check_unclaimed(_reference(state, *where))
            check_placement(push.into, state.partitions, below=push.partition_id)
            for new in push.into:
                self._check_free(state, new, added)
                added.add((new.filename, new.partition_id))
            removed.add(where)

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Replace the old references by the new ones.

        A file that has no row in a leaf is no longer referenced there, so a deletion may be obeyed.
        """
        if not self.pushes:
            return state
        removed = [(push.filename, push.partition_id) for push in self.pushes]
        added = []
        for push in self.pushes:
            old = state.files.reference(push.filename, push.partition_id)
            if old is None:
                raise LookupError(state.missing_reference(push.filename, push.partition_id))
            added += [new.about_file(old) for new in push.into]
        for new in added:
            state.partition(new.partition_id)  # raises if it does not exist
        files = state.files.changed(removed=removed, added=added, at=at)
        return state.with_files(files, (push.partition_id for push in self.pushes), at)

    @staticmethod
    def _check_free(state: TableState, new: FileReference, added: set[tuple[str, str]]) -> None:
        where = (new.filename, new.partition_id)
        if where in added or state.files.reference(*where) is not None:
            raise FileReferenceAlreadyExists(
                f"partition {new.partition_id!r} references {new.filename!r} already. "
                "Nothing was pushed down. Plan it again from the newest state."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFiles(Transaction):
    """Removes files that the garbage collector has deleted from the state (rule STS-9).

    Raises (from `check`):
        FileNotTracked: the table does not track one of them.
        FileHasReferences: a partition references one of them, or older files have yet to leave
            out its keys.
    """

    filenames: tuple[str, ...]

    def check(self, state: TableState) -> None:
        """Check that the files are tracked and unreferenced."""
        key_files = state.key_files() if state.deletes else {}
        for filename in self.filenames:
            if not state.files.is_tracked(filename):
                raise FileNotTracked(
                    f"the table does not track {filename!r}: it was collected before. "
                    "List the files that are ready for collection again."
                )
            references = state.files.references_to(filename)
            if references:
                raise FileHasReferences(
                    f"{filename!r} has {len(references)} references, so it is not garbage; "
                    f"{state.whereabouts(filename)}. Keep the file."
                )
            if filename in key_files:
                raise FileHasReferences(
                    f"{filename!r} has the keys of an upsert, whose old rows other files still "
                    "have, so it is not garbage. Keep the file."
                )

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Remove the files."""
        if not self.filenames:
            return state
        return replace(state, files=state.files.changed(forgotten=self.filenames, at=at))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearFiles(Transaction):
    """Removes every file, and the records of the jobs that wrote them (rule STS-2).

    Records of jobs are removed too, so that a cleared table can be loaded again under the same ids.

    Attributes:
        rows_removed: Rows that the table had; None as in `ReplaceFiles`.
        files_removed: Files that it had, with those that no partition references.
    """

    rows_removed: int | None = field(default=None, compare=False)
    files_removed: int | None = field(default=None, compare=False)

    def check(self, state: TableState) -> None:
        """Refuse nothing."""

    def recorded(self, state: TableState) -> Self:
        """Return the change with the rows and files that it removes."""
        rows = sum(each.rows for each in state.files.totals().values())
        return replace(self, rows_removed=rows, files_removed=state.files.file_count)

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Remove all files and all jobs."""
        if state.has_no_files and state.jobs.last is None:
            return state
        return replace(
            state, files=FileReferences.empty(), jobs=CommittedJobs(), claims={}, deletes=()
        )


def fold_added(added: Sequence[AddFiles], state: TableState, at: datetime) -> TableState:
    """Return the state after several of an entry's transactions, as `fold` of each would.

    All in one step: a state has mappings that each step copies.
    """
    names = [{reference.filename for reference in each.references} for each in added]
    are_apart = len(set().union(*names)) == sum(map(len, names))
    if are_apart and not any(each.unreferenced for each in added):
        return _added(added, state, at)
    for each in added:
        state = each.fold(state, at)
    return state


def _added(added: Sequence[AddFiles], state: TableState, at: datetime) -> TableState:
    references: list[FileReference] = []
    unreferenced = [name for each in added for name in each.unreferenced]
    records: dict[str, JobRecord] = {}
    for each in added:
        placed = placed_references(each.references, state.partitions)
        for reference in placed:
            if state.partitions is None or reference.partition_id not in state.partitions:
                raise LookupError(
                    f"there is no partition {reference.partition_id!r} for {reference.filename!r}"
                )
        references += (_new(reference, state.number, at) for reference in placed)
        if each.job is not None:
            count = len({reference.filename for reference in placed})
            record = each.job.record(number=state.number, at=at, files=count)
            records.pop(each.job.job_id, None)  # the last one of an id is the last of all
            records[each.job.job_id] = record
    changes: dict[str, Any] = {}
    if references or unreferenced:
        changes["files"] = state.files.changed(added=references, unreferenced=unreferenced, at=at)
    if records:
        changes["jobs"] = state.jobs.with_jobs(records)
    return replace(state, **changes) if changes else state


def _new(reference: FileReference, number: int, at: datetime) -> FileReference:
    """Return a reference to a new file with its sequence, by default this transaction."""
    sequence = number if reference.sequence is None else reference.sequence
    return replace(reference, sequence=sequence, updated=at)


def as_given(references: Iterable[FileReference]) -> tuple[FileReference, ...]:
    """Return references without `updated`, which those that were read from a state have (STS-5)."""
    return tuple(ref if ref.updated is None else replace(ref, updated=None) for ref in references)


def _reference(state: TableState, filename: str, partition_id: str) -> FileReference:
    reference = state.files.reference(filename, partition_id)
    if reference is not None:
        return reference
    if not state.files.is_tracked(filename):
        raise FileNotTracked(
            f"the table does not track {filename!r} on partition {partition_id!r} or any other: "
            "it was replaced and collected. Drop the job and plan again."
        )
    raise FileReferenceNotFound(state.missing_reference(filename, partition_id))


# ---------------------------------------------------------------- sweeps
#
# The transaction that a sweep of orphans commits before it deletes files (ours).


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOrphans(Transaction):
    """Forbids adding files that were written before a time, because a sweep deletes such files.

    The log decides which comes first. If a job has added its files before, the sweep sees them and
    keeps them. A job that commits after the sweep is refused.

    Attributes:
        before: The time, by the storage's clock (aware, UTC).
    """

    before: datetime

    def check(self, state: TableState) -> None:
        """Refuse nothing."""

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Record the time, if it is later than that of earlier sweeps."""
        if state.swept_before is not None and state.swept_before >= self.before:
            return state
        return replace(state, swept_before=self.before)


# ---------------------------------------------------------------- claims
#
# The transactions that claim compaction inputs, renew claims, and release them.


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
            names = [*dict.fromkeys(assignment.filenames)]
            references = state.files.references_named(names, assignment.partition_id)
            for filename, reference in zip(names, references, strict=True):
                where = (filename, assignment.partition_id)
                if reference is None:
                    raise FileReferenceNotFound(state.missing_reference(*where))
                check_unclaimed(claimed.get(where, reference))
                claimed[where] = replace(reference, job_id=assignment.job_id)

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Claim the references."""
        claimed: dict[tuple[str, str], FileReference] = {}
        for assignment in self.assignments:
            names = assignment.filenames
            references = state.files.references_named(names, assignment.partition_id)
            for filename, reference in zip(names, references, strict=True):
                where = (filename, assignment.partition_id)
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
