"""Deletes the rows that meet a condition in SQL, whatever their keys (rule DEL-2).

1. leaves that have such rows are found: of each, rows are read up to the first one
2. the files of these leaves are claimed, so that no compaction replaces them meanwhile; one that
   runs there loses them, and its work
3. the other rows of each leaf are written to a new file, and counted
4. the new files replace the claimed ones in one entry: all of them or none

The condition is asked of rows as readers see them: united, where the table aggregates. No reader
has to know of it, so tables of format 1 have it too. Memory is that of a query.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sleeper.engine.reading.regions import row_groups
from sleeper.engine.writing.data_file import write_data_file
from sleeper.engine.writing.write_settings import write_settings
from sleeper.errors import (
    CommitContended,
    CommitRefused,
    CommitTooLarge,
    CommitUnknown,
    DataDamaged,
    FileReferenceNotAssignedToJob,
    FileReferenceNotFound,
    NewFilesTooOld,
    QueryInvalid,
)
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.model.partitions import Partition
from sleeper.model.queries import NOT_GIVEN
from sleeper.state.new_files import SweepGuard
from sleeper.state.plans.claims import inputs_are_held
from sleeper.state.table_state import TableState
from sleeper.state.transactions.files import ReplaceFiles
from sleeper.tables.claims import release_claims
from sleeper.tables.compact import claims_of_run, delete_output
from sleeper.tables.delete_rows import RowDeletion
from sleeper.tables.open_table import OpenTable
from sleeper.tables.push_down import push_down_references
from sleeper.tables.read_rows import query_regions
from sleeper.tables.sql import TableVersion, query_where

_log = logging.getLogger(__name__)

_ATTEMPTS_MAX: Final = 5
_CHUNK_ROWS: Final = 32_768


def delete_where(table: OpenTable, where: str, **asked: object) -> RowDeletion:
    """Delete the rows that meet a condition (`Table.delete`).

    Raises:
        QueryInvalid: the condition does not fit the table, or something else is asked for beside.
        CommitTooLarge: the state store cannot replace as many files at once.
        CommitContended: others took the files in each attempt. Nothing was deleted.
    """
    beside = [name for name, value in asked.items() if value is not NOT_GIVEN]
    if beside:
        raise QueryInvalid(
            f"delete takes where= alone, and not {beside[0]}= beside it: write conditions on keys "
            'into it, such as where="id = 5 AND day < 3"'
        )
    refusal: CommitRefused | None = None
    for _ in range(_ATTEMPTS_MAX):
        state = table.store.refresh()
        try:
            leaves = _leaves_with_rows(table, state, where)
            if not leaves:
                return RowDeletion(transaction=state.number, regions=0, rows=0)
            return _deleted(table, where, leaves)
        except (CommitTooLarge, NewFilesTooOld):
            raise
        except CommitRefused as again:
            _log.info("deleting rows of table %s again: %s", table.name, again)
            refusal = again
        finally:
            table.undo_commit_if_deleted()
    raise CommitContended(
        f"others compacted or split the same files of table {table.name!r} in each of "
        f"{_ATTEMPTS_MAX} attempts; nothing was deleted. Try again. The last time: {refusal}"
    )


def _leaves_with_rows(table: OpenTable, state: TableState, where: str) -> list[str]:
    """Return the ids of the leaves that have a row which meets the condition."""
    version = TableVersion(table.name, table.reader, state, table.now_ms())
    key = table.schema.names[:1]
    found = []
    try:
        for leaf in state.leaf_partitions():
            rows = query_where(version, where, regions=[leaf.region], columns=key, ordered=False)
            with rows:
                if any(batch.num_rows for batch in rows):
                    found.append(leaf.partition_id)
    except DataDamaged as missing:
        if table.store.refresh().number == state.number:
            raise
        raise FileReferenceNotFound("the table was changed while it was read") from missing
    return found


def _deleted(table: OpenTable, where: str, leaf_ids: Sequence[str]) -> RowDeletion:
    """Write the rows that stay in some leaves, and commit all of it or nothing.

    Raises:
        CommitRefused: others changed these leaves meanwhile. Nothing was deleted.
    """
    _take_over(table, leaf_ids)
    jobs = _jobs(table, table.store.refresh(), leaf_ids)
    guard = table.sweep_guard()
    with claims_of_run(table, len(jobs)) as held:
        claimed = [job for some in held.rounds(jobs, None) for job in some]
        if len(claimed) < len(jobs):
            raise FileReferenceNotAssignedToJob("others have claimed files of the same leaves")
        state, now_ms = table.store.refresh(), table.now_ms()
        written: list[_Rewritten] = []
        try:
            for job in claimed:
                version = TableVersion(table.name, table.reader, _only_inputs(state, job), now_ms)
                written.append(_rewritten(table, version, job, where))
            return _committed(table, state.number, written, guard)
        except CommitUnknown:
            raise  # the files may be in the table
        except BaseException as failure:
            for each in written:
                delete_output(each.transaction.output.filename, table.files)
            if isinstance(failure, DataDamaged):
                now = table.store.refresh()
                if not all(inputs_are_held(now, job) for job in claimed):
                    raise FileReferenceNotAssignedToJob(
                        "files were replaced meanwhile"
                    ) from failure
            raise


def _take_over(table: OpenTable, leaf_ids: Sequence[str]) -> None:
    """Release the claims of compactions on leaves, and move what is above them down to them."""
    state = table.store.refresh()
    above = {each for leaf in leaf_ids for each in state.tree.ids_upwards(leaf)}
    jobs = {
        reference.job_id
        for partition_id in above
        for reference in state.files.references_on(partition_id)
        if reference.job_id is not None
    }
    for job_id in sorted(jobs):
        release_claims(table, job_id)
    push_down_references(table)


def _jobs(table: OpenTable, state: TableState, leaf_ids: Sequence[str]) -> list[CompactionJob]:
    """Return a job for each leaf, of all its files."""
    jobs = []
    for leaf_id in leaf_ids:
        if leaf_id not in state.tree or not state.partition(leaf_id).is_leaf:
            raise FileReferenceNotAssignedToJob(f"leaf {leaf_id} was split or merged meanwhile")
        on_leaf = {each.filename for each in state.files.references_on(leaf_id)}
        if on_leaf != {each.filename for each in state.references_of(leaf_id)}:
            raise FileReferenceNotAssignedToJob(f"files above leaf {leaf_id} are claimed")
        if on_leaf:
            inputs = tuple(sorted(on_leaf))
            new_id = table.context.new_id()
            jobs.append(CompactionJob(job_id=new_id, partition_id=leaf_id, inputs=inputs))
    return jobs


def _only_inputs(state: TableState, job: CompactionJob) -> TableState:
    """Return the state without files that came to the leaf of a job since it was planned."""
    others = [
        (reference.filename, reference.partition_id)
        for reference in state.references_of(job.partition_id)
        if reference.job_id != job.job_id
    ]
    assert state.at is not None  # files were claimed
    return replace(state, files=state.files.changed(removed=others, at=state.at))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rewritten:
    """A leaf that was written anew; `rows` of it were left out."""

    transaction: ReplaceFiles
    rows: int


def _rewritten(
    table: OpenTable, version: TableVersion, job: CompactionJob, where: str
) -> _Rewritten:
    """Write the rows of a leaf that do not meet the condition.

    Raises:
        QueryInvalid: the condition does not always give the same.
    """
    state, regions = version.state, [_partition(version.state, job).region]
    key = table.schema.names[:1]
    gone = query_where(version, where, regions=regions, columns=key, ordered=False).count()
    rows = query_regions(table.reader, state, regions, key, version.now_ms).count()
    # On lines of its own, for it may end with a comment.
    stays, columns = f"(\n{where}\n) IS NOT TRUE", table.arrow_schema.names
    kept = query_where(version, stays, regions=regions, columns=columns)
    settings = write_settings(table.properties.parquet)
    with kept, table.files.open_output(job.output) as output:
        chunks = row_groups(kept, _CHUNK_ROWS)
        written = write_data_file(output, chunks, table.schema, table.arrow_schema, settings)
    if written.row_count + gone != rows:
        delete_output(job.output, table.files)
        raise QueryInvalid(
            f"{where!r} was met by {gone:,} of {rows:,} rows of leaf {job.partition_id}, and not "
            f"met by {written.row_count:,}. Nothing was deleted: a condition must give the same "
            "each time, so it cannot have random() or now()"
        )
    reference = written.reference(job.output, job.partition_id, table.schema)
    output_reference = replace(reference, sequence=state.number)
    replaced = ReplaceFiles(job_id=job.job_id, inputs=job.inputs, output=output_reference)
    return _Rewritten(transaction=replaced, rows=gone)


def _partition(state: TableState, job: CompactionJob) -> Partition:
    return state.partition(job.partition_id)


def _committed(
    table: OpenTable, number: int, written: Sequence[_Rewritten], guard: SweepGuard
) -> RowDeletion:
    """Commit what was written in one entry, but for leaves from which nothing was left out."""
    changed = [each for each in written if each.rows]
    for each in written:
        if not each.rows:
            delete_output(each.transaction.output.filename, table.files)
    if not changed:
        return RowDeletion(transaction=number, regions=0, rows=0)
    guard.check([each.transaction.output.filename for each in changed], table.store.time())
    done = table.store.commit_group([each.transaction for each in changed], together=True)
    for refusal in done.refusals:
        if refusal is not None:
            raise refusal
    total = sum(each.rows for each in changed)
    return RowDeletion(transaction=done.state.number, regions=0, rows=total)
