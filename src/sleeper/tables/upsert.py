"""Upserts: adds rows, and deletes those of the same row keys in the same entry (rule DEL-3).

1. the rows are checked, sorted and written as an ingest writes them; a repeated key is refused
2. the keys of the new files are read back
3. up to 1,000 keys are deleted as `Table.delete` does, where the table has format 2 and room for
   them: one entry, and no other file is read or written
4. the rows of more keys are hidden by ranges, or written out of leaves (`hide_keys`). Files that
   others add to these leaves meanwhile may have the same keys: then all of that is done again
5. the deletion and the new files are one entry: a reader sees the old rows or the new ones
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from sleeper.engine.processing.known_keys import first_repeated
from sleeper.errors import CommitUnknown, DataDamaged, InputRefused, TableChanged
from sleeper.lookup.keys import key_rows
from sleeper.model.csv_options import CsvOptions
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.model.queries import key_region
from sleeper.model.ranges import Region, whole_region
from sleeper.model.row_deletes import REGIONS_MAX
from sleeper.state.file_references import FileReferences
from sleeper.state.table_state import TableState, Transaction
from sleeper.state.transactions.deletes import DeleteRows
from sleeper.state.transactions.files import AddFiles, placed_references
from sleeper.state.transactions.preconditions import LeavesUnchanged
from sleeper.tables.hide_keys import HiddenKeys, plan_hidden
from sleeper.tables.ingest import IngestResult, ingest
from sleeper.tables.open_table import OpenTable
from sleeper.tables.read_rows import query_regions
from sleeper.tables.unchanged_since import UnchangedSince
from sleeper.tables.write_out import (
    WrittenOut,
    divided_by_keys,
    until_undisturbed,
    write_out,
    write_out_beside,
)


def upsert(
    table: OpenTable,
    data: object,
    job_id: str | None = None,
    *,
    csv: CsvOptions | Mapping[str, Any] | None = None,
    ignore_extra_columns: bool = False,
    set_aside: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
    if_unchanged_since: int | None = None,
) -> IngestResult:
    """Add rows in place of those that have the same row keys (`Table.upsert`)."""
    table.reader.processing.check_upsert(table.name)
    return ingest(
        table,
        data,
        job_id,
        csv=csv,
        ignore_extra_columns=ignore_extra_columns,
        set_aside=set_aside,
        progress=progress,
        commit=partial(commit_upsert, table),
        if_unchanged_since=if_unchanged_since,
    )


def commit_upsert(table: OpenTable, condition: UnchangedSince, added: AddFiles) -> TableState:
    """Commit new files, whoever wrote them, and the deletion of their keys, in one entry.

    Raises:
        InputRefused: two rows have the same key.
        RowsChanged: a leaf that gets rows has changed since the version that they rely on.
        CommitRefused, CommitContended, StorageFailed: the table is unchanged.
        CommitUnknown: they may be in the table.
        TableNotFound: the table was deleted, and the new files with it.
    """
    try:
        return _commit_both(table, condition, added)
    except DataDamaged:
        table.check_exists()
        added.check(table.store.refresh())  # a sweep or a purge may have deleted the new files
        raise


def _commit_both(table: OpenTable, condition: UnchangedSince, added: AddFiles) -> TableState:
    state = table.store.refresh()
    if not added.references:
        return table.store.commit(added)
    added.check(state)  # its leaves may be gone, and then its keys are found nowhere
    relies_on = condition.under(added, state)
    for each in relies_on:
        each.check(state)
    new = _only_new(state, added)
    _check_not_repeated(table, new)
    rows = sum(each.row_count for each in added.references)
    if rows <= REGIONS_MAX and state.format > 1:
        batches = _keys(table, new, whole_region(table.schema)).to_batches()
        keys = [key for batch in batches for key in key_rows(batch)]
        regions = tuple(dict.fromkeys(key_region(table.schema, each) for each in keys))
        both = [DeleteRows(regions=regions), added]
        done = table.store.commit_group([*relies_on, *both], together=True)
        refusals = [each for each in done.refusals if each is not None]
        if not refusals:
            return done.state
        if not isinstance(refusals[0], TableChanged):
            raise refusals[0]  # else the table has no room for so many deletions
    return until_undisturbed(table, lambda: _replaced(table, added, relies_on)).state


def _replaced(table: OpenTable, added: AddFiles, relies_on: Sequence[Transaction]) -> WrittenOut:
    """Hide the keys of the new files, or write them out of leaves, and commit all together."""
    state = table.store.refresh()
    added.check(state)
    new = _only_new(state, added)
    leaves = [leaf for leaf in state.leaf_partitions() if any(new.references_of(leaf.partition_id))]
    keys_of = partial(_keys, table, new)
    if state.format > 1:
        plan = plan_hidden(table, state, leaves, keys_of)
    else:
        plan = HiddenKeys(table, state, keys_of, to_write=[each.partition_id for each in leaves])
    plan.write()

    def beside(read: Sequence[CompactionJob]) -> Sequence[Transaction]:
        known = dict.fromkeys(plan.to_write, frozenset[str]())
        known |= {job.partition_id: frozenset(job.inputs) for job in read}
        return [*relies_on, LeavesUnchanged(known=known), *plan.transactions(), added]

    divide = divided_by_keys(table, keys_of)
    try:
        if plan.to_write:
            return write_out(table, plan.to_write, divide, beside)
        return write_out_beside(table, state, [], divide, beside(()))
    except CommitUnknown:
        raise  # the files may be in the table
    except BaseException:
        plan.discard()
        raise


def _only_new(state: TableState, added: AddFiles) -> TableState:
    """Return a state that has the new files alone."""
    assert state.at is not None  # it has partitions
    placed = placed_references(added.references, state.partitions)
    files = FileReferences.empty().changed(added=placed, at=state.at)
    return replace(state, files=files, deletes=())


def _keys(table: OpenTable, new: TableState, region: Region) -> pa.Table:
    names = [field.name for field in table.schema.row_keys]
    return query_regions(table.reader, new, [region], names, table.now_ms()).to_arrow()


def _check_not_repeated(table: OpenTable, new: TableState) -> None:
    keys = [field.name for field in (*table.schema.row_keys, *table.schema.sort_keys)]
    region = whole_region(table.schema)
    with query_regions(table.reader, new, [region], keys, table.now_ms()) as rows:
        repeated = first_repeated(rows)
    if repeated is not None:
        raise InputRefused(
            f"two rows of the input have the key {repeated}, and an upsert has one row for each. "
            "Nothing was changed. Leave one of them out"
        )
