"""Queries of one table: a request, and its rows in one state.

1. `checked_query` checks what a caller asks for, before anything is read
2. the table's handle chooses a state: the newest, one that is young enough, or an old version
3. `Query.rows` reads that state: keys and ranges (`read_rows`), or rows that meet a condition, by
   the SQL engine (`sql`)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sleeper.engine.rows import Rows
from sleeper.errors import QueryInvalid
from sleeper.lookup.keys import key_batch, key_rows
from sleeper.model.queries import (
    NOT_GIVEN,
    NotGiven,
    RegionRequest,
    asked_by,
    asked_regions,
    checked_limit,
    key_region,
)
from sleeper.model.ranges import Region
from sleeper.model.schema import Schema
from sleeper.state.table_state import TableState
from sleeper.tables.open_table import OpenTable
from sleeper.tables.read_rows import query_key, query_keys, query_regions


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The rows that one query asks for. `rows` may be called for several states.

    Attributes:
        key: A row key, or a prefix of one; or
        keys: complete row keys; or
        regions: where rows are read.
        where: A condition in SQL on rows of `keys` or `regions`.
        limit: The most rows to return.
        columns: The columns to return, in this order; None for all.
        ordered: False for rows of regions in any order.
    """

    key: object = NOT_GIVEN
    keys: Sequence[object] | None = None
    regions: Sequence[Region] | None = None
    where: str | None = None
    limit: int | None = None
    columns: Sequence[str] | None = None
    ordered: bool = True

    def rows(self, table: OpenTable, state: TableState) -> Rows:
        """Return the rows in a state of the table.

        Raises:
            QueryInvalid: a key, the condition or the columns do not fit the schema.
            DataDamaged: a file of the table is missing or wrong.
        """
        rows = self._all_rows(table, state)
        return rows if self.limit is None else rows.limited(self.limit)

    def _all_rows(self, table: OpenTable, state: TableState) -> Rows:
        now_ms = table.now_ms()
        if self.where is not None:
            from sleeper.tables.sql import query_where
            from sleeper.tables.table_version import TableVersion

            return query_where(
                TableVersion(table.name, table.reader, state, now_ms),
                self.where,
                regions=self.regions,
                keys=self.keys,
                columns=self.columns,
                ordered=self.ordered,
            )
        if self.keys is not None:
            return query_keys(table.reader, state, self.keys, self.columns, now_ms)
        if self.regions is None:
            return query_key(table.reader, state, self.key, self.columns, now_ms)
        return query_regions(
            table.reader,
            state,
            self.regions,
            self.columns,
            now_ms,
            ordered=self.ordered,
            rows_max=self.limit,
        )


def checked_query(
    schema: Schema,
    *,
    key: object = NOT_GIVEN,
    keys: Any = NOT_GIVEN,
    range: RegionRequest | NotGiven = NOT_GIVEN,  # noqa: A002 - the field's own word
    regions: Iterable[RegionRequest] | NotGiven = NOT_GIVEN,
    prefix: Mapping[str, str | bytes] | NotGiven = NOT_GIVEN,
    where: str | None = None,
    limit: int | None = None,
    columns: Sequence[str] | None = None,
    ordered: bool = True,
) -> Query:
    """Return the query that arguments of `Table.query` ask for; of all rows without any.

    Raises:
        QueryInvalid: they do not fit each other, or the schema.
    """
    limit = checked_limit(limit)
    if not isinstance(ordered, bool):
        raise QueryInvalid(f"ordered must be True or False, not {ordered!r}")
    way = asked_by(key=key, keys=keys, range=range, regions=regions, prefix=prefix)
    if way == "keys":
        return Query(keys=_listed(keys), where=where, limit=limit, columns=columns)
    if way == "key" and prefix is NOT_GIVEN and where is None:
        return Query(key=key, limit=limit, columns=columns)
    inside = asked_regions(schema, range, regions, key=key, prefix=prefix)
    return Query(regions=inside, where=where, limit=limit, columns=columns, ordered=ordered)


def regions_asked_for(
    schema: Schema,
    arrow_schema: pa.Schema,
    *,
    key: object = NOT_GIVEN,
    keys: Any = NOT_GIVEN,
    range: RegionRequest | NotGiven = NOT_GIVEN,  # noqa: A002 - the field's own word
    regions: Iterable[RegionRequest] | NotGiven = NOT_GIVEN,
    prefix: Mapping[str, str | bytes] | NotGiven = NOT_GIVEN,
) -> list[Region]:
    """Return the regions that arguments of a verb ask for; the whole table without any.

    Raises:
        QueryInvalid: they do not fit each other, or the schema.
    """
    if asked_by(key=key, keys=keys, range=range, regions=regions, prefix=prefix) == "keys":
        whole = key_rows(key_batch(_listed(keys), schema, arrow_schema))
        return [key_region(schema, each) for each in whole]
    return asked_regions(schema, range, regions, key=key, prefix=prefix)


def _listed(keys: Any) -> Any:
    """Return keys as something that can be read twice."""
    return list(keys) if isinstance(keys, Iterator) else keys
