"""Upserts: adds rows, and deletes those of the same row keys in the same entry (rule DEL-3).

1. the rows are checked, sorted and written as an ingest writes them; a repeated key is refused
2. up to 1,000 keys are deleted as `Table.delete` does, where the table has format 2 and room for
   them; else the new files are committed as those whose keys older files have no more
   (`UpsertFiles`). One entry, and no other file is read or written: a reader sees the old rows or
   the new ones, whatever others add before the entry
3. in a table of format 1 the rows of the keys are written out of leaves. Files that others add to
   these leaves meanwhile may have the same keys: then that is done again
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from sleeper.engine.processing.known_keys import first_repeated
from sleeper.errors import CommitTooLarge, DataDamaged, InputRefused, TableChanged
from sleeper.lookup.keys import key_rows
from sleeper.model.csv_options import CsvOptions
from sleeper.model.files import FileReference
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.model.queries import key_region
from sleeper.model.ranges import Region, whole_region
from sleeper.model.row_deletes import REGIONS_MAX
from sleeper.state.file_references import FileReferences
from sleeper.state.plans.push_down import FileKeys
from sleeper.state.table_state import TableState, Transaction
from sleeper.state.transactions.deletes import DeleteRows
from sleeper.state.transactions.files import AddFiles, UpsertFiles, placed_references
from sleeper.state.transactions.preconditions import LeavesUnchanged
from sleeper.tables.ingest import IngestResult, ingest
from sleeper.tables.open_table import OpenTable
from sleeper.tables.read_rows import query_regions
from sleeper.tables.unchanged_since import UnchangedSince
from sleeper.tables.write_out import WrittenOut, divided_by_keys, until_undisturbed, write_out

_log = logging.getLogger(__name__)


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
    if state.format > 1:
        rows = sum(each.row_count for each in added.references)
        if rows <= REGIONS_MAX:
            both = [*relies_on, _deletion_of_keys(table, new), added]
            try:
                return table.store.commit_group(both, together=True).of_all()
            except TableChanged as full:
                _log.info("keys of files are left out of table %s instead: %s", table.name, full)
        try:
            return until_undisturbed(table, partial(_replacing, table, added, relies_on)).state
        except CommitTooLarge as full:
            _log.info("rows are written out of leaves of table %s instead: %s", table.name, full)
    return until_undisturbed(table, partial(_written_out, table, added, relies_on)).state


def _deletion_of_keys(table: OpenTable, new: TableState) -> DeleteRows:
    batches = _keys(table, new, whole_region(table.schema)).to_batches()
    keys = [key for batch in batches for key in key_rows(batch)]
    regions = (key_region(table.schema, each) for each in keys)
    return DeleteRows(regions=tuple(dict.fromkeys(regions)))


def _replacing(table: OpenTable, added: AddFiles, relies_on: Sequence[Transaction]) -> WrittenOut:
    """Commit new files as those whose keys older files have no more, if the table has format 2.

    Files of keys that are beside those of all others, by first and last keys, are said to replace
    nothing: readers need not look. It is refused if others come to their leaves.
    """
    state = table.store.refresh()
    added.check(state)
    if state.format < 2:  # somebody has set it back
        return _written_out(table, added, relies_on)
    placed = placed_references(added.references, state.partitions)
    apart = {each.filename for each in placed} - {
        each.filename for each in placed if _may_replace(each, state)
    }
    known = {
        leaf_id: frozenset(each.filename for each in state.references_of(leaf_id))
        for each in placed
        if each.filename in apart
        for leaf_id in [each.partition_id]
        if state.partition(leaf_id).is_leaf
    }
    whole = UpsertFiles(
        references=added.references,
        unreferenced=added.unreferenced,
        job=added.job,
        written_since=added.written_since,
        without_old_rows=frozenset(apart),
    )
    together = [*relies_on, LeavesUnchanged(known=known), whole]
    return WrittenOut(table.store.commit_group(together, together=True).of_all(), 0)


def _may_replace(reference: FileReference, state: TableState) -> bool:
    """Return whether older files may have rows of a file's keys."""
    partition = state.partition(reference.partition_id)
    if not partition.is_leaf:
        return True
    own = FileKeys.of(reference, state, None)
    if own.first is None or own.last is None:
        return True
    for each in state.references_of(partition.partition_id):
        other = FileKeys.of(each, state, None)
        if other.first is None or other.last is None:
            return True
        if own.first <= other.last and other.first <= own.last:
            return True
    return False


def _written_out(table: OpenTable, added: AddFiles, relies_on: Sequence[Transaction]) -> WrittenOut:
    """Write the keys of the new files out of leaves, and commit all together."""
    state = table.store.refresh()
    added.check(state)
    new = _only_new(state, added)
    leaf_ids = [
        leaf.partition_id
        for leaf in state.leaf_partitions()
        if any(new.references_of(leaf.partition_id))
    ]

    def beside(read: Sequence[CompactionJob]) -> Sequence[Transaction]:
        known = dict.fromkeys(leaf_ids, frozenset[str]())
        known |= {job.partition_id: frozenset(job.inputs) for job in read}
        return [*relies_on, LeavesUnchanged(known=known), added]

    return write_out(table, leaf_ids, divided_by_keys(table, partial(_keys, table, new)), beside)


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
