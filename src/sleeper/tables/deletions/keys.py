"""Deletes rows by their keys: for readers to leave out (`regions`), or written out of leaves.

Readers are told of at most 1,000 deleted keys and ranges: to leave more out of each read would be
slow. The rows of more keys are written out of their leaves (rule DEL-2). Keys are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

import pyarrow as pa

from sleeper.engine.processing.known_keys import keys_inside
from sleeper.errors import QueryInvalid, TableChanged
from sleeper.lookup.keys import key_batch
from sleeper.model.queries import NOT_GIVEN, asked_by
from sleeper.model.row_deletes import REGIONS_MAX
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
        return _written_out(table, keys, condition, job)
    regions = deleted_regions(table, **asked)
    try:
        return delete_rows(table, regions, beside(condition, regions, job))
    except TableChanged:  # there is no room for more
        if not is_keys:
            raise
        return _written_out(table, keys, condition, job)


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


def _written_out(
    table: OpenTable, keys: object, condition: UnchangedSince, job: AddFiles | None
) -> RowDeletion:
    """Write the rows of any number of complete row keys out of their leaves."""
    known = pa.Table.from_batches([key_batch(keys, table.schema, table.arrow_schema)])
    divide = divided_by_keys(table, lambda leaf: keys_inside(known, leaf))

    def attempt() -> WrittenOut:
        state = table.store.refresh()
        touched = [
            leaf for leaf in state.leaf_partitions() if keys_inside(known, leaf.region).num_rows
        ]
        regions = [leaf.region for leaf in touched]
        condition.check(state, regions)
        leaves = [leaf.partition_id for leaf in touched]
        leaves = [each for each in leaves if any(state.references_of(each))]
        return write_out_beside(table, state, leaves, divide, beside(condition, regions, job))

    done = until_undisturbed(table, attempt)
    return RowDeletion(transaction=done.state.number, regions=known.num_rows, rows=done.rows)
