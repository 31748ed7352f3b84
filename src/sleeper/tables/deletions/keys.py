"""Deletes rows by their keys, for readers to leave out: by `regions`, or by files of many keys.

An entry names at most 1,000 keys and ranges. More keys are written to a file for each leaf, whose
keys older files have lost, as those of an upsert. In a table of format 1, whose readers would show
the rows, these are written out of their leaves (rule DEL-2). Keys are in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sized
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from sleeper.engine.arrow_schema import row_key_columns
from sleeper.engine.processing.known_keys import keys_inside
from sleeper.engine.writing.data_file import write_data_file
from sleeper.engine.writing.discard import discard_files
from sleeper.engine.writing.write_settings import write_settings
from sleeper.errors import CommitTooLarge, CommitUnknown, QueryInvalid, TableChanged
from sleeper.lookup.keys import key_batch
from sleeper.model import paths
from sleeper.model.files import FileReference
from sleeper.model.partitions import Partition
from sleeper.model.queries import NOT_GIVEN, asked_by
from sleeper.model.row_deletes import REGIONS_MAX
from sleeper.state.table_state import TableState
from sleeper.state.transactions.deletes import DeleteKeys
from sleeper.state.transactions.files import AddFiles
from sleeper.tables.deletions.regions import Described, RowDeletion, delete_rows, deleted_regions
from sleeper.tables.open_table import OpenTable
from sleeper.tables.unchanged_since import UnchangedSince, beside
from sleeper.tables.write_out import (
    WrittenOut,
    divided_by_keys,
    until_undisturbed,
    write_out_beside,
)

_log = logging.getLogger(__name__)


def delete_by_keys(
    table: OpenTable,
    job: AddFiles | None = None,
    *,
    if_unchanged_since: int | None = None,
    **asked: Any,
) -> RowDeletion:
    """Delete rows by keys, ranges, regions or a prefix, as `Table.delete` asks for them.

    Args:
        table: The table.
        job: The id of the deletion, which is committed in the same entry.
        if_unchanged_since: As for `Table.delete`.
        asked: Its other arguments.

    Raises:
        RowsChanged: a leaf that the deletion is about has changed since. Nothing was deleted.
        QueryInvalid: they do not fit the schema, or one region is the whole key space.
        BadRequest: there are too many regions, or the table has format 1 and few keys are given.
        TableChanged: the table has no room for as many regions.
        CommitTooLarge: the state store cannot replace as many files at once.
        CommitContended: others took the files in each attempt. Nothing was deleted.
    """
    keys = asked["keys"]
    if keys is not NOT_GIVEN:
        keys = asked["keys"] = listed_keys(table, keys)
    condition = UnchangedSince.of(table, if_unchanged_since)
    is_keys = asked_by(**asked) == "keys"
    if is_keys and _are_many(keys):
        return _delete_many(table, keys, condition, job)
    regions = deleted_regions(table, **asked)
    try:
        return delete_rows(table, regions, beside(condition, regions, job))
    except TableChanged:  # there is no room for more
        if not is_keys:
            raise
        return _delete_many(table, keys, condition, job)


def check_deletable(table: Described, **asked: Any) -> None:
    """Check arguments of `Table.delete` that name keys, as far as the schema says what is wrong.

    Raises:
        QueryInvalid: they do not fit the schema, or one region is the whole key space.
        BadRequest: there are too many regions.
    """
    if asked_by(**asked) == "keys" and _are_many(asked["keys"]):
        key_batch(asked["keys"], table.schema, table.arrow_schema)
    else:
        deleted_regions(table, **asked)


def listed_keys(table: Described, keys: Any) -> Any:
    """Return keys as a list or an array; those of a table by the names of its row key columns.

    Raises:
        QueryInvalid: a table lacks a row key column, or has a null in one.
    """
    if isinstance(keys, Iterator):
        return [*keys]
    if not (hasattr(keys, "__arrow_c_stream__") and hasattr(keys, "columns")):
        return keys
    given, names = pa.table(keys), [field.name for field in table.schema.row_keys]
    if missing := [name for name in names if name not in given.column_names]:
        raise QueryInvalid(
            f"the table of keys has no column {missing[0]!r}; its columns are "
            f"{given.column_names}, and the row keys are {names}"
        )
    if len(names) == 1:
        return given.column(names[0]).combine_chunks()
    return given.select(names).to_pylist()


def _are_many(keys: Any) -> bool:
    """Return whether these are more keys than readers can be told of, as far as can be counted."""
    return isinstance(keys, Sized) and len(keys) > REGIONS_MAX and not isinstance(keys, str | bytes)


def _delete_many(
    table: OpenTable, keys: object, condition: UnchangedSince, job: AddFiles | None
) -> RowDeletion:
    """Delete the rows of any number of complete row keys."""
    known = pa.Table.from_batches([key_batch(keys, table.schema, table.arrow_schema)])
    if table.store.refresh().format > 1:
        try:
            done = until_undisturbed(table, partial(_in_files, table, known, condition, job))
            rows = None if done.state.format > 1 else done.rows
            return RowDeletion(transaction=done.state.number, regions=known.num_rows, rows=rows)
        except CommitTooLarge as full:
            _log.info("rows are written out of leaves of table %s instead: %s", table.name, full)
    done = until_undisturbed(table, partial(_written_out, table, known, condition, job))
    return RowDeletion(transaction=done.state.number, regions=known.num_rows, rows=done.rows)


def _leaves_with(known: pa.Table, state: TableState) -> list[tuple[Partition, pa.Table]]:
    """Return the leaves of keys, with the keys inside each."""
    found = [(leaf, keys_inside(known, leaf.region)) for leaf in state.leaf_partitions()]
    return [(leaf, keys) for leaf, keys in found if keys.num_rows]


def _in_files(
    table: OpenTable, known: pa.Table, condition: UnchangedSince, job: AddFiles | None
) -> WrittenOut:
    """Write the keys of each leaf that has files to a file, and commit their deletion."""
    state = table.store.refresh()
    if state.format < 2:  # somebody has set it back
        return _written_out(table, known, condition, job)
    leaves = _leaves_with(known, state)
    regions = [leaf.region for leaf, _ in leaves]
    condition.check(state, regions)
    settings, guard = write_settings(table.properties.parquet), table.sweep_guard()
    keys_alone = replace(table.schema, sort_keys=(), values=(), columns=())
    columns = row_key_columns(table.schema, table.arrow_schema)
    written = list[FileReference]()
    try:
        for leaf, keys in leaves:
            if not any(state.references_of(leaf.partition_id)):
                continue
            name = paths.data_file(leaf.partition_id, table.context.new_id())
            with table.files.open_output(name) as output:
                file = write_data_file(output, [keys], keys_alone, columns, settings)
            written.append(file.reference(name, leaf.partition_id, keys_alone))
        names = [each.filename for each in written]
        since = guard.check(names, table.store.time())
        files = [DeleteKeys(references=tuple(written), written_since=since)] if written else []
        together = [*beside(condition, regions, job), *files]
        if together:
            state = table.store.commit_group(together, together=True).of_all()
        return WrittenOut(state, 0)
    except CommitUnknown:
        raise  # the deletion may be in the table
    except BaseException:
        discard_files([each.filename for each in written], table.files)
        raise


def _written_out(
    table: OpenTable, known: pa.Table, condition: UnchangedSince, job: AddFiles | None
) -> WrittenOut:
    """Write the rows of keys out of their leaves."""
    state = table.store.refresh()
    touched = [leaf for leaf, _ in _leaves_with(known, state)]
    regions = [leaf.region for leaf in touched]
    condition.check(state, regions)
    leaves = [leaf.partition_id for leaf in touched]
    leaves = [each for each in leaves if any(state.references_of(each))]
    divide = divided_by_keys(table, partial(keys_inside, known))
    return write_out_beside(table, state, leaves, divide, beside(condition, regions, job))
