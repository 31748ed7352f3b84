"""Plans compaction jobs: which files of a leaf are merged, and why others are not (CMP-3 to CMP-8).

Sizes are row counts. A strategy looks at one leaf at a time: at its unclaimed references, the
smallest first. References of split partitions are pushed down before.

Jobs of one leaf whose files are small are joined, unless the size of a batch was set: a job may
have as many small files as are read into memory at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sleeper.html.values import NotebookHtml
from sleeper.model.files import FileReference
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.model.known_properties.maintenance import CompactionProperties
from sleeper.model.row_deletes import REGIONS_MAX, KeyFile
from sleeper.state.commit_changes import inputs_max
from sleeper.state.plans.queries import hidden_in, key_files_of
from sleeper.state.table_state import TableState

Files = Sequence[FileReference]

SMALL_FILES_MAX: Final = 1_000
SMALL_FILE_BYTES: Final = 1 << 20
SMALL_JOB_BYTES: Final = 32 << 20
"""Small files in a joined job, at most; the bytes of each, and of all. The engine reads so many at
once into memory (`engine/reading/small_files.py`)."""
_KEY_FILES_MAX: Final = 16
_REPLACED_MAX: Final = 0.5
"""A file is written anew once the keys of more files are deleted from it, or of files that have
more rows than this share of its own. Readers compare its rows with all of these keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """Settings from the table's properties `sleeper.table.compaction.*`.

    Attributes:
        strategy: `SizeRatioCompactionStrategy` or `BasicCompactionStrategy`.
        batch_files: Files in a job, at most.
        size_ratio: A job's other files together have at least so many times its largest one's rows.
        partition_jobs_max: Maximum number of jobs on one leaf; for the size ratio strategy.
        creation_limit: Maximum number of outstanding jobs in the whole table.
        store_files: Files in a job, at most, that the table's state store can replace in one
            commit, if `batch_files` was more; None if it was not.
        small_files: Small files in a job, at most; 0 if they are not joined.
    """

    strategy: str
    batch_files: int
    size_ratio: int
    partition_jobs_max: int
    creation_limit: int
    store_files: int | None = None
    small_files: int = 0

    @classmethod
    def of(
        cls,
        properties: CompactionProperties,
        changes_max: int | None = None,
        *,
        joins_small: bool = False,
    ) -> CompactionSettings:
        """Return the settings of a table's properties.

        Args:
            properties: The properties.
            changes_max: How many changes the table's state store takes in one commit.
            joins_small: Whether jobs of small files are joined.
        """
        wanted, most = properties.batch_files, SMALL_FILES_MAX
        if changes_max is not None:
            most = min(most, inputs_max(changes_max))
        allowed = wanted if changes_max is None else min(wanted, inputs_max(changes_max))
        return cls(
            strategy=properties.strategy,
            batch_files=allowed,
            store_files=allowed if allowed < wanted else None,
            size_ratio=properties.size_ratio,
            partition_jobs_max=properties.partition_jobs_max,
            creation_limit=properties.creation_limit,
            small_files=most if joins_small else 0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafPlan(NotebookHtml):
    """The plan for one leaf's files.

    Attributes:
        partition_id: The leaf.
        unclaimed: Its references that no job has claimed.
        claimed: Its references that a job has claimed.
        jobs: Jobs to create, in the order of the strategy.
        reason: Why these jobs, or why none, as a clause.
    """

    partition_id: str
    unclaimed: int
    claimed: int
    jobs: tuple[CompactionJob, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan(NotebookHtml):
    """The compaction jobs to create, and the reasons leaf by leaf.

    Attributes:
        leaves: Every leaf that references files, in key order.
        held_back: Number of jobs left out because too many are outstanding.
    """

    leaves: tuple[LeafPlan, ...]
    held_back: int = 0

    @property
    def jobs(self) -> tuple[CompactionJob, ...]:
        """All jobs to create."""
        return tuple(job for leaf in self.leaves for job in leaf.jobs)


def plan_compactions(
    state: TableState,
    settings: CompactionSettings,
    *,
    all_files: bool = False,
    only: Callable[[FileReference], bool] = lambda reference: True,
    schema_id: int = 1,
    new_id: Callable[[], str],
) -> CompactionPlan:
    """Plan the compaction jobs of a table.

    Args:
        state: The table, with its references pushed down.
        settings: How files are chosen.
        all_files: Merge also the files that the strategy leaves out, including a single part of a
            file, and a single file with deleted rows or older columns (CMP-8). Plan again when the
            jobs have ended, until each leaf has one file.
        only: Whether a reference may be compacted.
        schema_id: The number of the schema that jobs write files by. Files of newer ones are left
            to a run that knows their columns.
        new_id: Makes random ids of jobs. If not all jobs may be created, the ids decide which.

    Files with deleted rows are written anew, whatever the strategy says, once the table has a
    quarter of the deletions that it may have, or once upserts have replaced much of them.

    Source: rules CMP-3 to CMP-8.
    """
    outstanding: set[str] = set()
    many_deletes = sum(len(each.regions) for each in state.deletes) >= REGIONS_MAX // 4
    leaves = []
    referenced = state.files.partition_ids()
    for leaf in state.leaf_partitions():
        if leaf.partition_id not in referenced:
            continue
        references = state.files.references_on(leaf.partition_id)
        here = {ref.job_id for ref in references if ref.job_id is not None}
        outstanding |= here
        known = (ref for ref in references if ref.schema_number <= schema_id and only(ref))
        free = sorted((ref for ref in known if ref.job_id is None), key=lambda ref: ref.row_count)
        groups, reason = _groups(free, len(here), settings)
        key_files = {
            each.filename: key_files_of(state, each.sequence, leaf.partition_id) for each in free
        }
        to_clean = [
            each
            for each in free
            if key_files[each.filename] or hidden_in(state, each.sequence, [leaf.region])
        ]
        burdened = [each for each in free if _has_many(each, key_files[each.filename])]
        if all_files:
            outdated = [each for each in free if each.schema_number < schema_id]
            groups, reason = _with_the_rest(
                groups, free, reason, settings.batch_files, [*to_clean, *outdated]
            )
        elif many_deletes or burdened:
            wanted = to_clean if many_deletes else burdened
            groups, reason = _with_the_deleted(groups, reason, settings.batch_files, wanted)
        groups = _joined(groups, settings)
        if groups and settings.store_files is not None:
            told = f"the table's state store replaces at most {settings.store_files} files at once"
            reason = f"{reason}; {told}" if reason else told
        jobs = tuple(_job(new_id(), leaf.partition_id, group) for group in groups)
        leaves.append(
            LeafPlan(
                partition_id=leaf.partition_id,
                unclaimed=len(free),
                claimed=len(references) - len(free),
                jobs=jobs,
                reason=reason,
            )
        )
    return _limited(leaves, settings.creation_limit - len(outstanding))


def _has_many(reference: FileReference, key_files: Sequence[KeyFile]) -> bool:
    """Return whether upserts have replaced much of a file, or were many."""
    replaced = sum(each.row_count for each in key_files)
    return len(key_files) > _KEY_FILES_MAX or replaced > _REPLACED_MAX * reference.row_count


def _groups(free: Files, jobs_there: int, settings: CompactionSettings) -> tuple[list[Files], str]:
    """Return the files of each job on one leaf, and why."""
    if not free:
        return [], "jobs have claimed all of its files"
    if not any(ref.row_count for ref in free):
        return [], "none of its files has rows"
    if settings.strategy == "BasicCompactionStrategy":
        groups = _full_batches(free, settings.batch_files)
        return groups, "" if groups else f"fewer than {settings.batch_files} files"
    room = settings.partition_jobs_max - jobs_there
    if room <= 0:
        return [], f"{jobs_there} jobs run there, which is the maximum"
    if len(free) == 1:
        return [], "it has one file, and no other to merge it with"
    if settings.batch_files <= settings.size_ratio:
        return [], (
            f"a job may have {settings.batch_files} files, and none so small meets the size ratio "
            f"of {settings.size_ratio}"
        )
    groups = _by_size_ratio(free, settings)
    if not groups:
        return [], f"each file is too large beside those with fewer rows ({_ratio(settings)})"
    left = len(groups) - room
    return groups[:room], f"{left} more wait for jobs that run there" if left > 0 else ""


def _ratio(settings: CompactionSettings) -> str:
    return f"{settings.size_ratio} times its rows are more than theirs"


def _full_batches(free: Files, batch_files: int) -> list[Files]:
    """Return consecutive full groups; a smaller remainder is left out (rule CMP-4)."""
    ends = range(batch_files, len(free) + 1, batch_files)
    groups = (free[end - batch_files : end] for end in ends)
    return [group for group in groups if group[-1].row_count and _changes_something(group)]


def _by_size_ratio(free: Files, settings: CompactionSettings) -> list[Files]:
    """Return groups by size ratio (rule CMP-5), without limits on jobs."""

    def meets(files: Files) -> bool:
        smaller = sum(ref.row_count for ref in files[:-1])
        largest = files[-1].row_count
        return len(files) > 1 and 0 < settings.size_ratio * largest <= smaller

    while len(free) > 1 and not meets(free):
        free = free[:-1]
    if len(free) <= 1:
        return []
    if len(free) <= settings.batch_files:
        return [free]
    groups = []
    place = 0
    while place < len(free):
        batch = free[place : place + settings.batch_files]
        if meets(batch):
            groups.append(batch)
            place += len(batch)
        else:
            place += 1
    return groups


def _with_the_rest(
    groups: list[Files], free: Files, reason: str, batch_files: int, to_renew: Files
) -> tuple[list[Files], str]:
    """Add groups for the remaining files (CMP-8).

    A single whole file is not rewritten, unless it is one `to_renew`.
    """
    batches = _rest(groups, free, batch_files)
    more = [batch for batch in batches if _changes_something(batch) or batch[0] in to_renew]
    if len(free) == 1 and not more:
        return groups, "it has one file already"
    return [*groups, *more], "all files were requested" if more else reason


def _with_the_deleted(
    groups: list[Files], reason: str, batch_files: int, to_clean: Files
) -> tuple[list[Files], str]:
    """Add groups for the remaining files that have deleted rows."""
    more = _rest(groups, to_clean, batch_files)
    return [*groups, *more], "files have many deleted rows" if more else reason


def _rest(groups: list[Files], files: Files, batch_files: int) -> list[Files]:
    """Return groups of those files that are in none of `groups`."""
    taken = {ref.filename for group in groups for ref in group}
    rest = [ref for ref in files if ref.filename not in taken]
    return [rest[start : start + batch_files] for start in range(0, len(rest), batch_files)]


def _joined(groups: list[Files], settings: CompactionSettings) -> list[Files]:
    """Join groups of small files.

    Files are joined in the order of their names: leaves that share files have them in the same
    jobs, so that a run reads each file once.
    """
    small = [group for group in groups if all(map(_is_small, group))]
    if not settings.small_files or len(small) < 2:
        return groups
    joined, job, size = list[Files](), list[FileReference](), 0
    for ref in sorted((ref for group in small for ref in group), key=lambda ref: ref.filename):
        size += ref.size_bytes or 0
        if job and (size > SMALL_JOB_BYTES or len(job) == settings.small_files):
            joined.append(job)
            job, size = [], ref.size_bytes or 0
        job.append(ref)
    return [*joined, job, *(group for group in groups if group not in small)]


def _is_small(ref: FileReference) -> bool:
    return ref.size_bytes is not None and ref.size_bytes <= SMALL_FILE_BYTES


def _changes_something(files: Files) -> bool:
    """Return False for a single whole file: it would be written again, and again afterwards."""
    return len(files) > 1 or not files[0].whole_file


def _job(job_id: str, partition_id: str, files: Files) -> CompactionJob:
    """Return a job on files in the order of their names, which is the order queries read them."""
    names = sorted(ref.filename for ref in files)
    return CompactionJob(job_id=job_id, partition_id=partition_id, inputs=tuple(names))


def _limited(leaves: list[LeafPlan], allowed: int) -> CompactionPlan:
    """Keep the allowed number of jobs: those with the smallest ids, which are random (CMP-7)."""
    plan = CompactionPlan(leaves=tuple(leaves))
    jobs = plan.jobs
    if len(jobs) <= allowed:
        return plan
    kept = set(sorted(job.job_id for job in jobs)[: max(0, allowed)])
    fewer = [
        replace(
            leaf,
            jobs=tuple(job for job in leaf.jobs if job.job_id in kept),
            reason="this table has the maximum number of outstanding jobs",
        )
        if any(job.job_id not in kept for job in leaf.jobs)
        else leaf
        for leaf in leaves
    ]
    return CompactionPlan(leaves=tuple(fewer), held_back=len(jobs) - len(kept))
