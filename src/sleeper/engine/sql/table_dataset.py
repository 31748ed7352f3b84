"""A table as a dataset of pyarrow, which is how DataFusion reads rows from Python as a stream.

DataFusion asks the dataset for a scanner and for fragments, and each fragment for a scanner of its
own. None of them is an object of pyarrow's C++ library: that has no rows, and whoever read it would
get an empty table. So every public method that reads is replaced here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Never

import pyarrow as pa
import pyarrow.dataset as pads

from sleeper.engine.rows import Rows
from sleeper.engine.sql.streams import OpenScans, ScanStream

Read = Callable[[Sequence[str]], Rows]
"""Returns the rows of a table with some columns."""


class SqlScanner:
    """The scan of some columns.

    Attributes:
        projected_schema: The columns.
    """

    def __init__(self, schema: pa.Schema, open_stream: Callable[[], ScanStream]) -> None:
        self.projected_schema = schema
        self._open_stream = open_stream

    def to_batches(self) -> ScanStream:
        """Return the rows."""
        return self._open_stream()


class _Fragment:
    """All rows of a table, as the only fragment of its dataset."""

    def __init__(self, dataset: TableDataset) -> None:
        self._dataset = dataset

    def scanner(
        self,
        schema: pa.Schema,
        *,
        columns: list[str] | None = None,
        filter: object = None,  # noqa: A002 - the protocol's own word
        batch_size: int | None = None,
    ) -> SqlScanner:
        return self._dataset.scanner(columns=columns, filter=filter)


class TableDataset(pads.InMemoryDataset):  # type: ignore[misc]
    """The rows of a table, for DataFusion only.

    Args:
        schema: The table's columns.
        read: Returns the rows.
        scans: Gets the streams.

    Attributes:
        columns_asked: The columns that some scan needs.
    """

    def __init__(self, schema: pa.Schema, read: Read, scans: OpenScans) -> None:
        super().__init__([], schema=schema)
        self._read = read
        self._scans = scans
        self.columns_asked = set[str]()

    def get_fragments(self, filter: object = None) -> list[_Fragment]:  # noqa: A002 - as above
        """Return one fragment."""
        _refuse_filter(filter)
        return [_Fragment(self)]

    def scanner(
        self,
        columns: list[str] | None = None,
        filter: object = None,  # noqa: A002 - as above
    ) -> SqlScanner:
        """Return the scanner of some columns."""
        _refuse_filter(filter)
        names = self.schema.names if columns is None else columns
        self.columns_asked.update(names or self.schema.names[:1])
        schema = pa.schema([self.schema.field(name) for name in names])
        return SqlScanner(schema, lambda: self._scans.open(lambda: self._rows(names)))

    def _rows(self, names: Sequence[str]) -> Rows:
        if names:
            return self._read(names)
        with self._read(self.schema.names[:1]) as rows:  # count(*): how many rows, not which
            counted = pa.Table.from_arrays([pa.nulls(rows.count())], names=["counted"]).select([])
            return Rows.from_table(counted, transaction=rows.transaction)

    def _not_here(self, *_: object, **__: object) -> Never:
        """Refuse what nobody needs: pyarrow's own would read an empty dataset."""
        raise NotImplementedError("this dataset is read by scanner() and get_fragments() only")

    to_table = to_batches = head = take = count_rows = filter = sort_by = join = join_asof = (
        _not_here
    )
    replace_schema = _not_here


def _refuse_filter(filter: object) -> None:  # noqa: A002 - as above
    """Check that no condition was pushed down: it would have to be evaluated here (see plans)."""
    if filter is not None:
        raise AssertionError(f"DataFusion pushed a condition into a scan: {filter}")
