"""Deletes rows as a DELETE statement says: by row keys if its condition is about them alone.

1. the condition is planned as that of a question; comparisons, IN, BETWEEN and LIKE 'prefix%' on
   row keys, with AND, OR and NOT, become regions of keys
2. if each row of these regions meets it, the regions are deleted (`regions`): one entry, and
   no file is read or written
3. any other condition is tested row by row (`where`), and so is what readers cannot be told:
   for a table of format 1, more than 1,000 regions, all keys, or a table without room
4. rows that went by their keys are counted in the version before
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sleeper.engine.rows import Rows
from sleeper.engine.sql.statements import exact_read
from sleeper.errors import SleeperError, TableChanged
from sleeper.model.ranges import Region, whole_region
from sleeper.model.row_deletes import REGIONS_MAX
from sleeper.tables.deletions.regions import delete_rows
from sleeper.tables.deletions.where import delete_where
from sleeper.tables.open_table import OpenTable
from sleeper.tables.read_rows import query_regions
from sleeper.tables.sql import deletion_answer, regions_read, scanned_table
from sleeper.tables.table_version import TableVersion
from sleeper.tables.unchanged_since import UnchangedSince

_log = logging.getLogger(__name__)


def delete_by_statement(
    table: OpenTable, where: str, if_unchanged_since: int | None = None
) -> Rows:
    """Delete the rows that meet the condition of a DELETE statement (`Table.sql`).

    Returns:
        One row with how many went as `deleted`: null where they could not be counted afterwards.

    Raises:
        RowsChanged: a leaf that the deletion is about has changed since. Nothing was deleted.
        QueryInvalid: the condition does not fit the table.
        CommitTooLarge: the state store cannot replace as many files at once.
        CommitContended: others took the files in each attempt. Nothing was deleted.
    """
    condition = UnchangedSince.of(table, if_unchanged_since)
    version = TableVersion.newest(table)
    regions = _regions(version, where) if version.state.format > 1 else None
    if regions:
        try:
            number = delete_rows(table, regions, condition.over(regions)).transaction
        except TableChanged:
            _log.info("table %s has no room for deleted keys: its files are written", table.name)
        else:
            return deletion_answer(_counted(table, number, regions), number)
    done = delete_where(table, where, if_unchanged_since=condition.number)
    return deletion_answer(done.rows, done.transaction)


def _regions(version: TableVersion, where: str) -> tuple[Region, ...] | None:
    """Return the regions whose rows all meet a condition; None if readers cannot be told them."""
    read = exact_read(scanned_table(version), where, temp_folder=version.reading.temp_folder)
    if read is None:
        return None
    asked = dict.fromkeys(regions_read(read))
    regions = tuple(each for each in asked if not any(side.is_empty for side in each.ranges))
    if len(regions) > REGIONS_MAX or whole_region(version.reading.schema) in regions:
        return None
    return regions


def _counted(table: OpenTable, number: int, regions: Sequence[Region]) -> int | None:
    """Return how many rows a deletion hid; the transaction is the one after which it is so."""
    try:
        if not any(each.number == number for each in table.store.at(number).deletes):
            return 0  # no file could have such rows, so the log got no entry
        before = table.store.at(number - 1)
        key = table.schema.names[:1]
        return query_regions(table.reader, before, regions, key, table.now_ms()).count()
    except SleeperError as failure:  # the rows are deleted, whatever becomes of the number
        _log.warning("rows of table %s are deleted and not counted: %s", table.name, failure)
        return None
