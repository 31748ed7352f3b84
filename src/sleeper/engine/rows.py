"""Rows: the result of a query, as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Never, Self

import pyarrow as pa

from sleeper.engine.panics import translated_panics
from sleeper.engine.python_values import python_rows
from sleeper.engine.row_grid import row_grid
from sleeper.errors import BadRequest
from sleeper.html.markup import Markup, counted, element
from sleeper.html.values import NotebookHtml
from sleeper.model.other_names import OF_TABLE, no_such_attribute

if TYPE_CHECKING:  # seldom used, and slow to import
    import pandas as pd
    import polars as pl

    from sleeper.model.schema import Schema

FIRST_ROWS: Final = 20
"""How many rows a notebook shows."""


class Rows(NotebookHtml):
    """The rows of one result, in key order unless asked otherwise, with the requested columns.

    Iteration yields batches of rows (`pyarrow.RecordBatch`); `rows()` yields the rows themselves.

    The result of a range is a stream: it is read from the files during iteration, and only once.
    After that, query again or keep the table that `to_arrow` returned. The result of one key is in
    memory and may be read several times. Other libraries accept both by the Arrow PyCapsule
    interface: `polars.DataFrame(rows)`, `pyarrow.table(rows)`. pandas does not: use `to_pandas`.

    Args:
        batches: The stream. Closing these rows closes it.
        schema: The schema of every batch.
        transaction: The transaction number of the state that was read.
        counter: Counts the rows of the stream without reading it; None if nothing can.
        known_count: Returns the number of rows of the stream if that needs no file, else None.
        rows_read: As the attribute.

    Attributes:
        transaction: The transaction number of the state that was read.
        rows_read: Returns how many rows of tables a statement has read so far, also while another
            thread waits for its first row; None where nothing counts them.

    Raises (from all methods that read):
        BadRequest: a stream is read a second time.
        DataDamaged: a file of the table is missing or damaged.
    """

    __slots__ = (
        *("_batches", "_counter", "_known_count", "_schema", "_table"),
        *("rows_read", "transaction"),
    )

    def __init__(
        self,
        batches: Iterator[pa.RecordBatch],
        schema: pa.Schema,
        transaction: int,
        *,
        counter: Callable[[], int] | None = None,
        known_count: Callable[[], int | None] = lambda: None,
        rows_read: Callable[[], int] | None = None,
    ) -> None:
        self.rows_read = rows_read
        self._batches: Iterator[pa.RecordBatch] | None = batches
        self._counter = counter
        self._known_count = known_count
        self._schema = schema
        self._table: pa.Table | None = None
        self.transaction = transaction

    @classmethod
    def from_table(cls, table: pa.Table, *, transaction: int) -> Self:
        """Return rows that are in memory and may be read several times."""
        rows = cls(iter(()), table.schema, transaction)
        rows._table = table
        return rows

    @property
    def schema(self) -> pa.Schema:
        """The columns, with their Arrow types."""
        return self._schema

    @property
    def in_memory(self) -> bool:
        """True if all rows are in memory; False for a stream."""
        return self._table is not None

    def begun(self) -> Self:
        """Read the first batch of a stream now, and the others during iteration."""
        if self._table is None and self._batches is not None:
            self._batches = _begun(self._batches)
        return self

    def peek(self, count: int) -> pa.Table | None:
        """Return up to `count` first rows, which a stream still has; None if it was read or closed.

        Of a stream, the batches with these rows are read now and kept until they are read again.
        """
        if self._table is not None:
            return self._table.slice(0, count)
        batches, self._batches = self._batches, None
        if batches is None:
            return None
        read: list[pa.RecordBatch] = []
        missing = count
        while missing > 0 and (batch := next(batches, None)) is not None:
            read.append(batch)
            missing -= batch.num_rows
        self._batches = _rejoined(read, batches)
        return pa.Table.from_batches(read, self._schema).slice(0, count)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._table is not None:
            return iter(self._table.to_batches())
        batches, self._batches = self._batches, None
        if batches is None:
            raise BadRequest(
                "these rows were read or closed before: they are a stream, which can be read once. "
                "Query again, or keep the table that to_arrow() returns."
            )
        return batches

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows as a reader of batches; nothing is read yet."""
        return pa.RecordBatchReader.from_batches(self._schema, iter(self))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the rows to a library by the Arrow PyCapsule interface.

        If an error occurs while they are read, the library gets its text and raises its own class.
        """
        return self.reader().__arrow_c_stream__(requested_schema)

    def __array__(self, *_: object, **__: object) -> Never:
        """Refuse the conversion to one NumPy array, which `pandas.DataFrame(rows)` calls.

        Raises:
            BadRequest: always; without this pandas makes a frame of one cell.
        """
        raise BadRequest(
            "rows are columns of several types, not one array: use rows.to_pandas() for a "
            "DataFrame, or rows.to_arrow().column(name).to_numpy() for one column"
        )

    def to_arrow(self) -> pa.Table:
        """Read all rows into an Arrow table."""
        if self._table is not None:
            return self._table
        return pa.Table.from_batches(iter(self), self._schema)

    def to_pandas(self) -> pd.DataFrame:
        """Read all rows into a pandas DataFrame; maps become dicts.

        Raises:
            BadRequest: pandas is not installed, or a stream is read a second time.
        """
        if find_spec("pandas") is None:
            raise BadRequest(
                "to_pandas() needs pandas, which is not installed: "
                "pip install 'sleeper-store[pandas]', or use to_arrow() or to_polars()"
            )
        return self.to_arrow().to_pandas(maps_as_pydicts="lossy")

    @translated_panics("polars")
    def to_polars(self) -> pl.DataFrame:
        """Read all rows into a polars DataFrame."""
        import polars  # noqa: PLC0415, ICN001 - not needed before

        return polars.DataFrame(self.to_arrow())

    def to_pylist(self) -> list[dict[str, Any]]:
        """Read all rows into dicts; maps become dicts too."""
        return python_rows(self.to_arrow())

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as dicts, one by one, in the memory of a batch; maps become dicts too.

        Iteration over the result itself yields batches of Arrow, which are far faster to work with.
        """
        batches = iter(self)
        try:
            for batch in batches:
                yield from python_rows(batch)
        finally:
            _close(batches)

    def count(self) -> int:
        """Return the exact number of rows.

        Rows of a query are counted without reading them where the state knows their number, else by
        page indexes and a few keys, and they stay unread. Where a filter, an aggregation or a
        function decides, keys and what these need are read. Other streams are read, and not kept.
        """
        if self._table is not None:
            return int(self._table.num_rows)
        if self._counter is not None and self._batches is not None:
            return self._counter()
        return sum(batch.num_rows for batch in self)

    def known_count(self) -> int | None:
        """Return the exact number of rows if it is known without reading a file, else None."""
        if self._table is not None:
            return int(self._table.num_rows)
        return None if self._batches is None else self._known_count()

    def __len__(self) -> int:
        """Return the exact number of rows, if it is known without reading a file.

        Iteration yields batches of rows; this counts rows, as `len` of an Arrow table does.

        Raises:
            TypeError: it is not known; `count()` finds it.
        """
        count = self.known_count()
        if count is None:
            raise TypeError(
                "the number of these rows is not known without reading files: use rows.count()"
            )
        return count

    def limited(self, limit: int) -> Self:
        """Return the first rows, up to a number of them; a stream is read through the result only.

        Reading stops, and the stream is closed, when so many rows are read.
        """
        if self._table is not None:
            return self.from_table(self._table.slice(0, limit), transaction=self.transaction)
        batches, counter, known_count = iter(self), self._counter, self._known_count
        return type(self)(
            _first_rows(batches, limit),
            self._schema,
            self.transaction,
            counter=None if counter is None else lambda: min(limit, counter()),
            known_count=lambda: None if (rows := known_count()) is None else min(limit, rows),
            rows_read=self.rows_read,
        )

    def close(self) -> None:
        """Stop reading and release files and memory. A second call does nothing."""
        batches, self._batches = self._batches, None
        _close(batches)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _html(self) -> Markup:
        """Return the first rows; reading goes on from the first row afterwards."""
        found = self.peek(FIRST_ROWS + 1)
        if found is None:
            return element("p", "These rows were read or closed before. Query again to see them.")
        if found.num_rows > FIRST_ROWS:
            caption = f"The first {FIRST_ROWS} rows; more are not read yet"
            if (rows := self.known_count()) is not None:
                caption = f"The first {FIRST_ROWS} of {counted(rows, 'row')}"
        else:
            caption = counted(found.num_rows, "row")
        caption += f", of transaction {self.transaction:,}"
        return element("div", row_grid(found.slice(0, FIRST_ROWS), caption), class_="scroll")

    def __repr__(self) -> str:
        if self._table is not None:
            state = f"{self._table.num_rows:,} rows in memory"
        else:
            state = "a stream, read or closed" if self._batches is None else "a stream, not read"
        columns = ", ".join(f"{field.name}: {field.type}" for field in self._schema)
        return f"<Rows of transaction {self.transaction}: {state}; {columns or 'no columns'}>"


class WholeTable:
    """What a table tells of all its rows, here and on a server: it is the base of both classes."""

    if TYPE_CHECKING:
        schema: Schema

        def query(self) -> Rows:
            """Return all rows."""

        def count(self) -> int:
            """Return the number of rows."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in the order in which rows are returned."""
        return [*self.schema.columns]

    def __len__(self) -> int:
        """Return the exact number of rows, as `count()` does."""
        return self.count()

    if not TYPE_CHECKING:  # an editor would take every name

        def __getattr__(self, name: str) -> Never:
            raise no_such_attribute(self, name, OF_TABLE)

    def __getitem__(self, key: object) -> Never:
        """Refuse a key, and the number of a row, which iteration over the table asks for.

        Raises:
            BadRequest: always.
        """
        if isinstance(key, int) and not key:
            raise BadRequest("a table is not iterated itself: use table.rows(), which yields dicts")
        raise BadRequest(
            f"a table has no [{key!r:.100}]: for a row use query(key=...), for columns "
            "query(columns=[...]), for the first rows head()"
        )

    def __bool__(self) -> bool:
        """Return True, also for a table without rows: a table is there."""
        return True

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield all rows as dicts, in key order, one by one, in the memory of a batch."""
        return self.query().rows()

    def to_arrow(self) -> pa.Table:
        """Read all rows into an Arrow table, in key order; they must fit into memory."""
        return self.query().to_arrow()

    def to_pandas(self) -> pd.DataFrame:
        """Read all rows into a pandas DataFrame, in key order; they must fit into memory.

        Raises:
            BadRequest: pandas is not installed.
        """
        return self.query().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Read all rows into a polars DataFrame, in key order; they must fit into memory.

        `scan_polars` reads only what is needed.
        """
        return self.query().to_polars()


def _first_rows(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """Yield the first rows, then close `batches`; without a limit above 0 nothing is read."""
    try:
        left = limit
        while left and (batch := next(batches, None)) is not None:
            yield batch.slice(0, left)
            left -= min(left, batch.num_rows)
    finally:
        _close(batches)


def _begun(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the first batch; return an iterator of all, which closes `batches` when it is closed."""
    first = next(batches, None)
    return _rejoined([] if first is None else [first], batches)


def _rejoined(
    read: Sequence[pa.RecordBatch], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield what was read and then the others; closing it closes `batches`."""
    try:
        yield from read
        yield from batches
    finally:
        _close(batches)


def _close(batches: Iterator[pa.RecordBatch] | None) -> None:
    """Close a stream, if it can be closed."""
    close = getattr(batches, "close", None)
    if close is not None:
        close()
