"""Writes rows out of leaves: their other rows get new files, all in one entry (rule DEL-2).

1. the files of some leaves are claimed, so that no compaction replaces them meanwhile; one that
   runs there loses them, and its work
2. the rows of each leaf that stay are written to a new file
3. the new files replace the claimed ones in one entry, with whatever else belongs to it: all of it
   or nothing

Rows are those that readers see: united, where the table aggregates. No reader has to know of it, so
tables of format 1 have it too. Memory is that of a query, and of what tells which rows stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

import pyarrow as pa

from sleeper.engine.processing.known_keys import RowsWithoutKeys
from sleeper.engine.reading.regions import row_groups
from sleeper.engine.writing.data_file import write_data_file
from sleeper.engine.writing.discard import discard_files
from sleeper.engine.writing.write_settings import write_settings
from sleeper.errors import (
    CommitContended,
    CommitRefused,
    CommitTooLarge,
    CommitUnknown,
    DataDamaged,
    FileReferenceNotAssignedToJob,
    JobAlreadyCommitted,
    NewFilesTooOld,
    PartitionNotInTree,
    RowsChanged,
    TableChanged,
)
from sleeper.model.files import FileReference
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.model.ranges import Region
from sleeper.state.file_references import FileReferences
from sleeper.state.table_state import TableState, Transaction
from sleeper.state.transactions.files import ReplaceFiles
from sleeper.tables.claims import claims_of_run, release_claims
from sleeper.tables.open_table import OpenTable
from sleeper.tables.push_down import push_down_references
from sleeper.tables.read_rows import query_regions
from sleeper.tables.table_version import TableVersion

_log = logging.getLogger(__name__)

CHUNK_ROWS: Final = 32_768
"""So many rows are written at a time."""
_ATTEMPTS_MAX: Final = 5
_PAUSE_MAX_S: Final = 60.0
_FINAL = (CommitTooLarge, JobAlreadyCommitted, NewFilesTooOld, PartitionNotInTree, RowsChanged)
"""What another attempt would end with too."""


@dataclass(frozen=True, slots=True)
class Staying:
    """The rows of a leaf that stay.

    Attributes:
        chunks: The rows, in key order.
        gone: Called with how many were written when they were; returns how many did not stay.
        always: Whether files are replaced of which all rows stay, too.
    """

    chunks: Iterable[pa.Table]
    gone: Callable[[int], int]
    always: bool = False


Divide = Callable[[TableVersion, Region], AbstractContextManager[Staying]]
"""Divides the rows of a leaf, as one version has it."""


@dataclass(frozen=True, slots=True)
class WrittenOut:
    """The state after rows were written out of leaves, and how many rows went."""

    state: TableState
    rows: int


def until_undisturbed(table: OpenTable, attempt: Callable[[], WrittenOut]) -> WrittenOut:
    """Try again where others changed the same leaves meanwhile.

    Two that write the same leaves take their claims from each other. So each waits before another
    attempt, for a random time that grows as attempts last longer and become more: one of them ends.

    Raises:
        CommitTooLarge: the state store cannot replace as many files at once.
        CommitContended: others took the files in each attempt. Nothing was committed.
    """
    refusal, took_s = CommitRefused(), 0.0
    clock = table.context.clock
    for before in range(_ATTEMPTS_MAX):
        if before:
            clock.sleep(_pause_s(table.context.new_id(), before, took_s))
        begun_s = clock.ticks_s()
        try:
            return attempt()
        except _FINAL:
            raise
        except CommitRefused as again:
            _log.info("writing leaves of table %s again: %s", table.name, again)
            refusal, took_s = again, clock.ticks_s() - begun_s
        finally:
            table.undo_commit_if_deleted()
    raise CommitContended(
        f"others changed the same leaves of table {table.name!r} in each of {_ATTEMPTS_MAX} "
        f"attempts; nothing was committed. Try again. The last time: {refusal}"
    )


def _pause_s(chance: str, attempts: int, took_s: float) -> float:
    """Return how long to wait: up to twice the last attempt after one, four times after two.

    Args:
        chance: A random text.
        attempts: How many attempts there were.
        took_s: How long the last one took, in seconds.
    """
    share = int.from_bytes(sha256(chance.encode()).digest()[:8]) / 2.0**64
    return share * min(_PAUSE_MAX_S, took_s * 2.0**attempts)


def divided_by_keys(table: OpenTable, keys_of: Callable[[Region], pa.Table]) -> Divide:
    """Return what leaves the rows of keys out.

    Args:
        table: The table.
        keys_of: Returns the row keys inside a leaf.
    """

    @contextmanager
    def divide(version: TableVersion, leaf: Region) -> Iterator[Staying]:
        columns = table.arrow_schema.names
        every = query_regions(version.reading, version.state, [leaf], columns, version.now_ms)
        with every:
            kept = RowsWithoutKeys(row_groups(every, CHUNK_ROWS), keys_of(leaf))
            yield Staying(kept, lambda _: kept.left_out)

    return divide


def write_out(
    table: OpenTable,
    leaf_ids: Sequence[str],
    divide: Divide,
    beside: Callable[[Sequence[CompactionJob]], Sequence[Transaction]] = lambda jobs: (),
    *,
    only: Collection[str] | None = None,
) -> WrittenOut:
    """Write the rows of leaves that stay, and commit the new files in one entry.

    Args:
        table: The table.
        leaf_ids: The leaves.
        divide: Says which rows stay. Leaves of which all do keep their files.
        beside: Returns what is committed in the same entry, before the new files, given the leaves
            and their files that were read.
        only: The files that are written anew; None for all of these leaves.

    Raises:
        CommitRefused: others changed these leaves meanwhile. Nothing was committed.
    """
    _take_over(table, leaf_ids)
    jobs = _jobs(table, table.store.refresh(), leaf_ids, only)
    guard = table.sweep_guard()
    with claims_of_run(table, max(1, len(jobs))) as held:
        claimed = [job for some in held.rounds(jobs, None) for job in some]
        if len(claimed) < len(jobs):
            raise FileReferenceNotAssignedToJob("others have claimed files of the same leaves")
        state, now_ms = table.store.refresh(), table.now_ms()
        _check_held(state, claimed)
        written: list[_Rewritten] = []
        try:
            for job in claimed:
                version = TableVersion(table.name, table.reader, _only_inputs(state, job), now_ms)
                if (rewritten := _rewritten(table, version, job, divide)) is not None:
                    written.append(rewritten)
            guard.check([each.transaction.output.filename for each in written], table.store.time())
            files = [each.transaction for each in written]
            after = _committed_together(table, [*beside(claimed), *files]) or state
            return WrittenOut(after, sum(each.rows for each in written))
        except CommitUnknown:
            raise  # the files may be in the table
        except BaseException as failure:
            discard_files([each.transaction.output.filename for each in written], table.files)
            if isinstance(failure, DataDamaged):  # or files were replaced, and deleted
                _check_held(table.store.refresh(), claimed)
            raise


def write_out_beside(
    table: OpenTable,
    state: TableState,
    leaf_ids: Sequence[str],
    divide: Divide,
    beside: Sequence[Transaction],
) -> WrittenOut:
    """Write rows out of leaves; where there are none, commit what is beside them alone.

    Raises:
        CommitRefused: others changed these leaves meanwhile, or what is beside is refused. Nothing
            was committed.
    """
    if leaf_ids:
        return write_out(table, leaf_ids, divide, lambda _: beside)
    return WrittenOut(_committed_together(table, beside) or state, 0)


def _committed_together(table: OpenTable, transactions: Sequence[Transaction]) -> TableState | None:
    if not transactions:
        return None
    return table.store.commit_group(transactions, together=True).of_all()


def _take_over(table: OpenTable, leaf_ids: Sequence[str]) -> None:
    """Release the claims of compactions on leaves, and move what is above them down to them."""
    state = table.store.refresh()
    above = {
        each for leaf in leaf_ids if leaf in state.tree for each in state.tree.ids_upwards(leaf)
    }
    jobs = {
        reference.job_id
        for partition_id in above
        for reference in state.files.references_on(partition_id)
        if reference.job_id is not None
    }
    for job_id in sorted(jobs):
        release_claims(table, job_id)
    push_down_references(table)


def _jobs(
    table: OpenTable, state: TableState, leaf_ids: Sequence[str], only: Collection[str] | None
) -> list[CompactionJob]:
    """Return a job for each leaf, of all its files or of those that are asked for."""

    def wanted(references: Iterable[FileReference]) -> list[FileReference]:
        return [each for each in references if only is None or each.filename in only]

    jobs = []
    for leaf_id in leaf_ids:
        if leaf_id not in state.tree or not state.partition(leaf_id).is_leaf:
            raise FileReferenceNotAssignedToJob(f"leaf {leaf_id} was split or merged meanwhile")
        references = wanted(state.files.references_on(leaf_id))
        check_columns(table, leaf_id, references)
        on_leaf = {each.filename for each in references}
        if on_leaf != {each.filename for each in wanted(state.references_of(leaf_id))}:
            raise FileReferenceNotAssignedToJob(f"files above leaf {leaf_id} are claimed")
        if on_leaf:
            inputs = tuple(sorted(on_leaf))
            new_id = table.context.new_id()
            jobs.append(CompactionJob(job_id=new_id, partition_id=leaf_id, inputs=inputs))
    return jobs


def check_columns(table: OpenTable, leaf_id: str, references: Iterable[FileReference]) -> None:
    """Check that a table was opened with all columns that files of a leaf have.

    Raises:
        TableChanged: it was not.
    """
    if any(each.schema_number > table.schema.number for each in references):
        raise TableChanged(f"leaf {leaf_id} has files with columns that were added meanwhile")


def _check_held(state: TableState, jobs: Sequence[CompactionJob]) -> None:
    """Check that nobody has released the claims of jobs since they were made.

    Raises:
        CommitRefused: somebody has.
    """
    for job in jobs:
        if not state.is_assigned(job.job_id, job.partition_id, job.inputs):
            raise FileReferenceNotAssignedToJob(f"claims on leaf {job.partition_id} were released")


def _only_inputs(state: TableState, job: CompactionJob) -> TableState:
    """Return the state with the files of a job alone.

    Others may have come to the leaf since it was planned. If it was split since, there are files on
    the leaves below it, too.
    """
    inputs = [
        reference
        for reference in state.files.references_on(job.partition_id)
        if reference.job_id == job.job_id
    ]
    assert state.at is not None  # files were claimed
    files = FileReferences.empty().changed(added=inputs, at=state.at)
    return replace(state, files=files)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rewritten:
    """A leaf that was written anew; `rows` of it were left out."""

    transaction: ReplaceFiles
    rows: int


def _rewritten(
    table: OpenTable, version: TableVersion, job: CompactionJob, divide: Divide
) -> _Rewritten | None:
    """Write the rows of a leaf that stay; None if all do, and nothing was written."""
    settings = write_settings(table.properties.parquet)
    with divide(version, version.state.partition(job.partition_id).region) as staying:
        with table.files.open_output(job.output) as output:
            written = write_data_file(
                output, staying.chunks, table.schema, table.arrow_schema, settings
            )
        try:
            gone = staying.gone(written.row_count)
        except BaseException:
            discard_files([job.output], table.files)
            raise
    if not gone and not staying.always:
        discard_files([job.output], table.files)
        return None
    reference = written.reference(job.output, job.partition_id, table.schema)
    output_reference = replace(reference, sequence=version.state.number)
    replaced = ReplaceFiles(job_id=job.job_id, inputs=job.inputs, output=output_reference)
    return _Rewritten(transaction=replaced, rows=gone)
