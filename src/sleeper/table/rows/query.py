"""`Table.query` and `Table.count`: reads rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
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
    checked_max_age,
)
from sleeper.operations.reading.query import query_key, query_keys, query_regions
from sleeper.state.table_state import TableState
from sleeper.table.handle import OpenedTable, TableHandle

with late_imports():
    from sleeper.operations.history import old_versions


def query(
    self: TableHandle,
    *,
    key: object = NOT_GIVEN,
    keys: Any = NOT_GIVEN,
    range: RegionRequest | NotGiven = NOT_GIVEN,  # noqa: A002 - the field's own word
    regions: Iterable[RegionRequest] | NotGiven = NOT_GIVEN,
    columns: Sequence[str] | None = None,
    as_of: int | None = None,
    ordered: bool = True,
    max_age: float | timedelta | None = None,
) -> Rows:
    """Read rows by key or key range, in key order; all rows without either.

    None for key, keys, range or regions is refused; an empty list returns no rows.

    Args:
        key: One row key: a value, a tuple for composite keys, or {field: value}. A prefix
            of a composite key finds all rows that start with it.
        keys: Many complete row keys: a list, or an Arrow or NumPy array.
        range: {field: (min, max)}, meaning [min, max), or {field: (min, min_inclusive, max,
            max_inclusive)}; None is no limit. For any of the row key fields.
        regions: Several such ranges; a row in two of them is returned once.
        columns: The columns to return, in this order; all without it.
        as_of: A transaction number: reads the table as it was after that transaction.
        ordered: False to read a range, or all rows, in any order: files are read in parallel and
            not merged, and keys only if they are asked for.
        max_age: Seconds, or a `timedelta`: within so long after a look for newer commits this
            handle does not look again, and may miss what other processes changed. None takes the
            table's property; 0 looks (docs/buckets.md).

    Returns:
        Rows with exactly the requested columns. Iterate over it, or call `.to_arrow()`,
        `.to_pandas()`, `.to_polars()` or `.to_pylist()`. Rows are read during iteration.

    Raises:
        QueryInvalid: a field, value, range or column does not fit the schema.
        VersionNotFound: there is no transaction `as_of`, or its files were deleted.
        DataDamaged: a file of the table is missing or wrong.
        TableNotFound: the table was deleted.

    Source: rules QRY-1 to QRY-6, QRY-21.
    """
    asked = asked_by(key=key, keys=keys, range=range, regions=regions)
    number, age_s = checked_as_of(as_of), checked_max_age(max_age)
    if not isinstance(ordered, bool):
        raise QueryInvalid(f"ordered must be True or False, not {ordered!r}")
    read: Callable[..., Rows]
    if asked == "key":
        read = partial(query_key, key=key)
    elif asked == "keys":
        read = partial(query_keys, keys=list(keys) if isinstance(keys, Iterator) else keys)
    else:
        found = asked_regions(self.schema, range, regions)
        read = partial(query_regions, regions=found, ordered=ordered)
    now_ms = int(self._context.now().timestamp() * 1000)
    answer = partial(_answer, partial(read, columns=columns, now_ms=now_ms))
    return self._answered(answer, age_s) if number is None else _as_of(self, answer, number)


def count(
    self: TableHandle,
    *,
    key: object = NOT_GIVEN,
    keys: Any = NOT_GIVEN,
    range: RegionRequest | NotGiven = NOT_GIVEN,  # noqa: A002 - the field's own word
    regions: Iterable[RegionRequest] | NotGiven = NOT_GIVEN,
    as_of: int | None = None,
) -> int:
    """Return the exact number of rows that `query` returns for the same arguments.

    Without a filter, an aggregation or a function this reads no rows: the table's state knows how
    many rows whole leaves have, and page indexes and a few keys tell the rest.

    Args and Raises: as `query`.

    Source: rule QRY-21.
    """
    columns = [self.schema.names[0]]
    asked = {"key": key, "keys": keys, "range": range, "regions": regions}
    given = {name: value for name, value in asked.items() if value is not NOT_GIVEN}
    with query(self, **given, columns=columns, as_of=as_of) as rows:
        return rows.count()


def _answer(read: Callable[..., Rows], opened: OpenedTable, state: TableState) -> Rows:
    return read(opened.reader, state)


def _as_of(
    self: TableHandle, answer: Callable[[OpenedTable, TableState], Rows], number: int
) -> Rows:
    opened = self._current()
    version = opened.store.at(number)
    answered = partial(answer, opened, version)
    return old_versions.read_version(answered, version, store=opened.store, files=opened.files)
