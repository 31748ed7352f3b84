"""A table as a dataset that DuckDB reads: columns and conditions are pushed down to the reader.

DuckDB asks the dataset for a scanner of some columns, with those of its conditions that pyarrow
evaluates as it does; pyarrow evaluates them here, on every row. What the conditions say about row
keys narrows what is read, if `expression_conditions` understands the whole expression.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Never

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from sleeper.engine.sql.other_engines.expression_conditions import condition_of
from sleeper.engine.sql.scans.scanned_table import ScannedTable
from sleeper.state.plans.key_conditions import UNKNOWN, Condition

_BATCHES_AHEAD = 2


class DuckdbDataset(pads.InMemoryDataset):  # type: ignore[misc]
    """The rows of one state of a table.

    Its own C++ object has no rows, so all other methods that read are refused.

    Args:
        table: The table.
    """

    def __init__(self, table: ScannedTable) -> None:
        super().__init__([], schema=table.arrow_schema)
        self._table = table

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's own word
        **_: Any,
    ) -> pads.Scanner:
        """Return the scanner of rows that meet a condition."""
        names = [*(self.schema.names if columns is None else columns)]
        needed = self._needed(names, filter)
        condition = UNKNOWN if filter is None else condition_of(filter, self.schema)
        schema = pa.schema([self.schema.field(name) for name in needed])
        return pads.Scanner.from_batches(
            self._batches(needed, condition),
            schema=schema,
            columns=names,
            filter=filter,
            batch_readahead=_BATCHES_AHEAD,
        )

    def _batches(self, names: Sequence[str], condition: Condition) -> Iterator[pa.RecordBatch]:
        with self._table.narrowed(condition).rows(names) as rows:
            yield from rows

    def _needed(self, names: Sequence[str], condition: pc.Expression | None) -> list[str]:
        """Return the columns to read: those of the result, and those of a condition."""
        needed = [name for name in self.schema.names if name in names] or [self._table.key]
        if condition is None or _fits(condition, self.schema, needed):
            return needed
        read = [*self.schema.names]
        for name in self.schema.names:
            without = [each for each in read if each != name]
            if name not in needed and _fits(condition, self.schema, without):
                read = without
        return read

    def get_fragments(self, filter: object = None) -> Never:  # noqa: A002 - as above
        """Refuse: there are none."""
        self._not_here(filter)

    def _not_here(self, *_: object, **__: object) -> Never:
        """Refuse what nobody needs: pyarrow's own would read an empty dataset."""
        raise NotImplementedError(
            "this dataset is for DuckDB, which calls scanner(); use Table.query() for Arrow"
        )

    to_table = to_batches = head = take = count_rows = _not_here
    filter = sort_by = join = join_asof = replace_schema = _not_here


def _fits(condition: pc.Expression, schema: pa.Schema, names: Sequence[str]) -> bool:
    """Return whether a condition needs no other columns than these."""
    columns = pa.schema([schema.field(name) for name in names])
    try:
        pads.Scanner.from_batches(iter(()), schema=columns, filter=condition)
    except pa.ArrowInvalid:
        return False
    return True
