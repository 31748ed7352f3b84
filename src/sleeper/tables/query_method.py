"""`Table.query`, `Table.head` and `Table.count`: reads rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sleeper.engine.rows import Rows
from sleeper.errors import QueryInvalid
from sleeper.language.late_imports import late_imports
from sleeper.model.queries import (
    NOT_GIVEN,
    NotGiven,
    RegionRequest,
    asked_by,
    asked_regions,
    checked_as_of,
    checked_limit,
    checked_max_age,
)
from sleeper.state.table_state import TableState
from sleeper.tables.handle import OpenedTable, TableHandle
from sleeper.tables.query import query_key, query_keys, query_regions

with late_imports():
    from sleeper.tables import sql, versions
    from sleeper.tables import versions as old_versions


def query(
    self: TableHandle,
    *,
    key: object = NOT_GIVEN,
    keys: Any = NOT_GIVEN,
    range: RegionRequest | NotGiven = NOT_GIVEN,  # noqa: A002 - the field's own word
    regions: Iterable[RegionRequest] | NotGiven = NOT_GIVEN,
    prefix: Mapping[str, str | bytes] | NotGiven = NOT_GIVEN,
    where: str | None = None,
    limit: int | None = None,
    columns: Sequence[str] | None = None,
    as_of: int | datetime | None = None,
    ordered: bool = True,
    max_age: float | timedelta | None = None,
) -> Rows:
    """Read rows by key or key range, in key order; all rows without either.

    None for key, keys, range, regions or prefix is refused; an empty list returns no rows.

    Args:
        key: One row key: a value, a tuple for composite keys, or {field: value}. The first
            fields of a composite key find all rows that have them.
        keys: Many complete row keys: a list, or an Arrow or NumPy array.
        range: {field: (min, max)}, meaning [min, max), or {field: (min, min_inclusive, max,
            max_inclusive)}; None is no limit. For any of the row key fields.
        regions: Several such ranges; a row in two of them is returned once.
        prefix: {field: how its values begin}, for string and bytes fields of the row key; alone,
            or with key, range or regions of other fields.
        where: A condition in SQL over any fields, such as "n > 1 AND name LIKE 'a%'"; alone, or
            with the others. Conditions on row keys narrow what is read (docs/guide/sql.md).
        limit: The most rows to return; reading stops there.
        columns: The columns to return, in this order; all without it.
        as_of: A transaction number, or an aware datetime, which means the last transaction at or
            before it: reads the table as it was after that transaction.
        ordered: False to read a range, or all rows, in any order: files are read in parallel and
            not merged, and keys only if they are asked for.
        max_age: Seconds, or a `timedelta`: within so long after a look for newer commits this
            handle does not look again, and may miss what other processes changed. None takes the
            table's property; 0 looks (docs/buckets.md).

    Returns:
        Rows with exactly the requested columns; they are read during iteration, or by
        `.to_arrow()`, `.to_pandas()`, `.to_polars()` or `.to_pylist()`.

    Raises:
        QueryInvalid: a field, value, range or column does not fit the schema.
        VersionNotFound: there is no transaction `as_of`, or its files were deleted.
        DataDamaged: a file of the table is missing or wrong.
        TableNotFound: the table was deleted.

    Source: rules QRY-1 to QRY-6, QRY-21, QRY-22.
    """
    as_of, age_s, rows_max = checked_as_of(as_of), checked_max_age(max_age), checked_limit(limit)
    if not isinstance(ordered, bool):
        raise QueryInvalid(f"ordered must be True or False, not {ordered!r}")
    asked: dict[str, Any] = {"key": key, "keys": keys, "key_range": range, "regions": regions}
    asked |= {"prefix": prefix, "where": where}
    read = _read_of(self, ordered=ordered, rows_max=rows_max, **asked)
    read = partial(read, columns=columns)
    return answered_rows(self, read, as_of=as_of, max_age_s=age_s, limit=rows_max)


def answered_rows(
    self: TableHandle,
    read: Callable[..., Rows],
    *,
    as_of: int | datetime | None = None,
    max_age_s: float | None = None,
    limit: int | None = None,
) -> Rows:
    """Return what `read` reads of the newest state, or of the state after a transaction.

    Args:
        read: Called with the table's readers, a state, and `now_ms`; maybe twice.
        as_of: The transaction's number, or an aware time.
        max_age_s: How long ago the last look for newer commits may be.
        limit: The most rows to return.
    """
    now_ms = int(self._context.now().timestamp() * 1000)
    answer = partial(_answer, partial(read, now_ms=now_ms), limit)
    return self._answered(answer, max_age_s) if as_of is None else _as_of(self, answer, as_of)


def _read_of(
    self: TableHandle,
    *,
    ordered: bool,
    rows_max: int | None,
    key: object,
    keys: Any,
    key_range: object,
    regions: object,
    prefix: object,
    where: str | None,
) -> Callable[..., Rows]:
    """Return what reads the requested rows of a state."""
    asked = asked_by(key=key, keys=keys, range=key_range, regions=regions, prefix=prefix)
    if asked == "keys":
        chosen = list(keys) if isinstance(keys, Iterator) else keys
        if where is not None:
            return partial(sql.query_where, keys=chosen, where=where, name=self.name)
        return partial(query_keys, keys=chosen)
    if asked == "key" and prefix is NOT_GIVEN and where is None:
        return partial(query_key, key=key)
    found = asked_regions(self.schema, key_range, regions, key=key, prefix=prefix)
    if where is not None:
        narrowed = partial(sql.query_where, where=where, name=self.name)
        return partial(narrowed, regions=found, ordered=ordered)
    return partial(query_regions, regions=found, ordered=ordered, rows_max=rows_max)


def head(self: TableHandle, n: int = 5) -> Rows:
    """Return the first rows in key order, `n` of them; little more is read.

    Raises:
        QueryInvalid: `n` is not a number of rows.
    """
    if n is None:
        raise QueryInvalid("n must be a number of rows, not None; query() returns all rows")
    return query(self, limit=n)


def count(
    self: TableHandle,
    *,
    key: object = NOT_GIVEN,
    keys: Any = NOT_GIVEN,
    range: RegionRequest | NotGiven = NOT_GIVEN,  # noqa: A002 - the field's own word
    regions: Iterable[RegionRequest] | NotGiven = NOT_GIVEN,
    prefix: Mapping[str, str | bytes] | NotGiven = NOT_GIVEN,
    where: str | None = None,
    as_of: int | datetime | None = None,
) -> int:
    """Return the exact number of rows that `query` returns for the same arguments.

    Without a filter, an aggregation or a function this reads no rows: the table's state knows how
    many rows whole leaves have, and page indexes and a few keys tell the rest. A condition `where`
    on values reads the columns that it needs.

    Args and Raises: as `query`.

    Source: rule QRY-21.
    """
    columns = [self.schema.names[0]]
    asked = {"key": key, "keys": keys, "range": range, "regions": regions, "prefix": prefix}
    given = {name: value for name, value in asked.items() if value is not NOT_GIVEN}
    with query(self, **given, where=where, columns=columns, as_of=as_of, ordered=False) as rows:
        return rows.count()


def _answer(
    read: Callable[..., Rows], rows_max: int | None, opened: OpenedTable, state: TableState
) -> Rows:
    rows = read(opened.reader, state)
    return rows if rows_max is None else rows.limited(rows_max)


def _as_of(
    self: TableHandle, answer: Callable[[OpenedTable, TableState], Rows], as_of: int | datetime
) -> Rows:
    opened = self._current()
    version = versions.version_as_of(opened.store, as_of)
    answered = partial(answer, opened, version)
    return old_versions.read_version(answered, version, store=opened.store, files=opened.files)
