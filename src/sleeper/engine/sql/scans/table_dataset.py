"""A table as a dataset of pyarrow, which is how DataFusion reads rows from Python as a stream.

DataFusion asks the dataset for a scanner and for fragments, and each fragment for a scanner of its
own. None of them is an object of pyarrow's C++ library: that has no rows, and whoever read it would
get an empty table. So every public method that reads is replaced here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Never

import pyarrow as pa
import pyarrow.dataset as pads

from sleeper.engine.sql.scans.streams import ScanStream

OpenScan = Callable[[str, Sequence[str]], Callable[[], ScanStream]]
"""Plans the scan of a table, given its name and columns; returns what begins it."""


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
    """All rows of a table, as the only fragment of its dataset.

    It belongs to the statement for which it was made, whatever the dataset is used for since.
    """

    def __init__(self, schema: pa.Schema, open_scan: Callable[[list[str]], SqlScanner]) -> None:
        self._schema = schema
        self._open_scan = open_scan

    def scanner(
        self,
        schema: pa.Schema,
        *,
        columns: list[str] | None = None,
        filter: object = None,  # noqa: A002 - the protocol's own word
        batch_size: int | None = None,
    ) -> SqlScanner:
        _refuse_filter(filter)
        return self._open_scan(self._schema.names if columns is None else columns)


class TableDataset(pads.InMemoryDataset):  # type: ignore[misc]
    """The rows of a table, for DataFusion only.

    Args:
        name: The table's name.
        schema: The table's columns.

    Attributes:
        open_scan: Plans the scans of the statement that is being planned.
    """

    def __init__(self, name: str, schema: pa.Schema) -> None:
        super().__init__([], schema=schema)
        self.name = name
        self.open_scan: OpenScan | None = None

    def get_fragments(self, filter: object = None) -> list[_Fragment]:  # noqa: A002 - as above
        """Return one fragment."""
        _refuse_filter(filter)
        return [_Fragment(self.schema, partial(self._scanner, self._planned()))]

    def scanner(
        self,
        columns: list[str] | None = None,
        filter: object = None,  # noqa: A002 - as above
    ) -> SqlScanner:
        """Return the scanner of some columns."""
        _refuse_filter(filter)
        return self._scanner(self._planned(), self.schema.names if columns is None else columns)

    def _planned(self) -> OpenScan:
        if self.open_scan is None:
            raise AssertionError(f"no statement reads {self.name!r} now")
        return self.open_scan

    def _scanner(self, open_scan: OpenScan, names: list[str]) -> SqlScanner:
        schema = pa.schema([self.schema.field(name) for name in names])
        return SqlScanner(schema, open_scan(self.name, names))

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
