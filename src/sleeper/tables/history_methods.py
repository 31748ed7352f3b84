"""`Table.history`, `Table.kept_versions` and `Table.diff`: what changed, and when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sleeper.engine.rows import Rows
from sleeper.errors import QueryInvalid
from sleeper.model.queries import checked_as_of, checked_limit
from sleeper.state.stores.kept_versions import KeptVersions
from sleeper.tables import diff as differences
from sleeper.tables import history as log_history
from sleeper.tables import versions
from sleeper.tables.handle import TableHandle


def history(self: TableHandle, limit: int | None = None) -> tuple[log_history.HistoryEntry, ...]:
    """Return what the table's transactions did, the newest first.

    Args:
        limit: How many of the last transactions; all without it. Only these are read.

    Raises:
        QueryInvalid: `limit` is not a number of transactions.
        BadRequest: the table's state store keeps no log of transactions.
        TableNotFound: the table was deleted.
    """
    last = checked_limit(limit)
    return log_history.read_history(self._current().store, self.schema, last)


def kept_versions(self: TableHandle) -> KeptVersions:
    """Return which versions of the table can be read by `as_of`: the first and the newest.

    Raises:
        TableNotFound: the table was deleted.
    """
    return versions.kept(self._current().store)


def diff(
    self: TableHandle,
    before: int | datetime,
    after: int | datetime | None = None,
    *,
    columns: Sequence[str] | None = None,
) -> Rows:
    """Return the rows that ingests added between two versions, in key order.

    Rows are as they were added: the table's filters are applied, its aggregations are not. Rows
    that a compaction wrote anew are not among them, because they were in the table before.

    Args:
        before: A transaction number, or an aware datetime, which means the last transaction at or
            before it. Its rows are not returned; 0, or a time before the first, is the empty table.
        after: The same, for the last transaction whose rows are returned; the newest without it.
        columns: The columns to return, in this order; all without it.

    Returns:
        The rows; `.transaction` is the number of `after`.

    Raises:
        QueryInvalid: `before` is later than `after`, or an argument has the wrong type.
        VersionNotFound: there is no such transaction, or files of it were deleted since.
        BadRequest: the table's state store keeps no log of transactions.
        TableNotFound: the table was deleted.
    """
    first, last = checked_as_of(before, "before"), checked_as_of(after, "after")
    if first is None:
        raise QueryInvalid("before must be a transaction number or an aware datetime, not None")
    opened, state = self._newest()
    return differences.added_rows(
        opened.reader,
        opened.store,
        versions.number_of(opened.store, first, or_none=True),
        state.number if last is None else versions.number_of(opened.store, last),
        columns,
        now_ms=int(self._context.now().timestamp() * 1000),
    )
