"""Makes a data file of a Parquet file that DataFusion has written, in one pass over it.

Pages get checksums, and the file a sketch, page sums and a seal. What a reference says of the file
is read from the file: the number of rows from its footer, the keys from its first and last row
group. The sketch of a file with many pages has the first key of each page, from the page index, so
that no row is decoded.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.engine.native.column_options import BOUND_BYTES, plain_name
from sleeper.engine.writing.data_file import (
    FORMAT,
    WrittenFile,
    check_sizes,
    row_key_of,
)
from sleeper.engine.writing.sketch_bytes import SKETCHED_ROWS_MAX, SketchBuilder, sketch_bytes
from sleeper.engine.writing.stored_sketch import sketch_place_bytes
from sleeper.errors import StorageFailed
from sleeper.lookup.parquet.checked_copy import CheckedCopy, FileLabels
from sleeper.lookup.parquet.compact_protocol import Field, read_fields, read_struct
from sleeper.lookup.parquet.footer import TAIL_BYTES, footer_length
from sleeper.lookup.parquet.page_index import PageLocations, read_column_index
from sleeper.lookup.parquet.sealed_output import SealedOutput
from sleeper.model.schema import Schema
from sleeper.ports.objects import Output

_PAGES_MIN = 256  # with fewer, the keys of all rows are read for the sketch
_NUMBERS = {1: "<i4", 2: "<i8"}  # by Parquet's physical type


def finish_file(path: Path, output: Output, schema: Schema, arrow_schema: pa.Schema) -> WrittenFile:
    """Copy a file of DataFusion's to `output` as a data file; the caller must close `output`.

    Args:
        path: The file, whose columns have plain names. It has rows, in key order.
        output: Where the data file goes.
        schema: The table's.
        arrow_schema: The same for Arrow.

    Raises:
        AssertionError: the rows are not in key order, or the columns are others, which is a bug.
        BadRequest: readers would refuse a column of it.
        StorageFailed: the file cannot be read, or the output cannot be written.
    """
    sealed = SealedOutput(output)
    with path.open("rb") as file:

        def read(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
            return [_read_at(file.fileno(), *place, path) for place in ranges]

        copy = CheckedCopy(read, os.fstat(file.fileno()).st_size, sealed)
        check_sizes(copy.footer, schema)
        copy.write_pages()
        keys = _Keys(path, schema, arrow_schema)
        sketch, offset = keys.sketch(copy, read), sealed.tell()
        if sketch:
            sealed.write(sketch)
        sealed.hold()
        copy.write_end(_labels(copy, schema, arrow_schema))
    footer = sealed.seal(sketch_place_bytes(offset, len(sketch)) if sketch else b"")
    assert footer is not None, "a file was sealed before it was held"
    return WrittenFile(
        row_count=footer.row_count,
        first_key=row_key_of(keys.first, 0, schema),
        last_key=row_key_of(keys.last, 0, schema),
        size_bytes=sealed.size_bytes,
    )


class _Keys:
    """The row keys of a file.

    Attributes:
        first, last: A table of its first, and of its last row.
    """

    def __init__(self, path: Path, schema: Schema, arrow_schema: pa.Schema) -> None:
        self._schema = schema
        fields = [arrow_schema.field(name) for name in schema.row_key_names]
        self._arrow_schema = pa.schema(fields)
        self._file = pq.ParquetFile(path, pre_buffer=False)
        self._groups = self._file.num_row_groups
        self.first = self._read(0).slice(0, 1)
        last = self._read(self._groups - 1)
        self.last = last.slice(last.num_rows - 1)

    def sketch(self, copy: CheckedCopy, read: Any) -> bytes:
        """Return the sketch of the file, and check that its rows are in key order.

        A file with few rows has none.
        """
        groups = range(self._groups)
        pages = [copy.locations(group)[0] for group in groups]
        indexes = read([copy.footer.chunks[group][0].column_index for group in groups])
        _check_order(copy, pages, indexes)
        count = sum(len(each.offsets) for each in pages)
        if len(self._schema.row_keys) == 1 and count >= _PAGES_MIN:
            minimums = [low for index in indexes for low in read_struct(index)[0][2]]
            physical = copy.footer.leaves[0].physical_type
            if physical in _NUMBERS or max(map(len, minimums)) < BOUND_BYTES:
                return self._of_pages(minimums, physical, pages)
        builder = SketchBuilder(self._schema)
        for group in groups:
            builder.add(self._read(group))
        return b"" if builder.has_every_row else builder.to_bytes()

    def _of_pages(
        self, minimums: Sequence[bytes], physical_type: int, pages: Sequence[PageLocations]
    ) -> bytes:
        """Return a sketch of the first keys of pages, which are their least ones."""
        (field,) = self._arrow_schema
        if physical_type in _NUMBERS:
            plain = pa.array(np.frombuffer(b"".join(minimums), _NUMBERS[physical_type]))
        else:
            plain = pa.array(minimums, pa.binary())
        counts = np.concatenate([each.row_counts for each in pages])
        starts = np.cumsum(counts) - counts
        step = -(-len(starts) // SKETCHED_ROWS_MAX)
        rows = pa.table([plain[::step].cast(field.type)], self._arrow_schema)
        weights = np.diff(starts[::step], append=counts.sum())
        if weights[-1] > 1:  # the last row represents itself
            rows = pa.concat_tables([rows, self.last])
            weights = np.append(weights, 1)
            weights[-2] -= 1
        return sketch_bytes(rows, weights, self._schema)

    def _read(self, group: int) -> pa.Table:
        names = [plain_name(number) for number in range(len(self._arrow_schema))]
        table = self._file.read_row_group(group, columns=names, use_threads=False)
        return pa.Table.from_arrays(
            [
                column.cast(field.type)
                for column, field in zip(table.columns, self._arrow_schema, strict=True)
            ],
            schema=self._arrow_schema,
        )


def _check_order(
    copy: CheckedCopy, pages: Sequence[PageLocations], indexes: Sequence[bytes]
) -> None:
    """Check that the first row key ascends from page to page."""
    before = None
    for locations, index in zip(pages, indexes, strict=True):
        bounds = read_column_index(
            index,
            physical_type=copy.footer.leaves[0].physical_type,
            pages=len(locations.offsets),
            ordered=True,
        )
        first, last = bounds.minimums[0], bounds.minimums[-1]
        assert before is None or before <= first, "rows of a data file are out of order"
        before = last


def _labels(copy: CheckedCopy, schema: Schema, arrow_schema: pa.Schema) -> FileLabels:
    """Return names and metadata as in files that pyarrow writes."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, arrow_schema.with_metadata(FORMAT)).close()
    data = sink.getvalue().to_pybytes()
    length = footer_length(data[-TAIL_BYTES:], len(data))
    wanted, _ = read_fields(data, len(data) - TAIL_BYTES - length)
    by_number = {number: value for number, _, value in wanted}
    _, written = copy.fields[2]
    _, named = by_number[2]
    _, pairs = by_number[5]
    metadata = [({n: v for n, _, v in pair}) for pair in pairs]
    return FileLabels(
        schema=[_renamed(*pair) for pair in zip(written, named, strict=True)],
        metadata=[(pair[1], pair[2]) for pair in metadata],
        sorted_columns=len(schema.keys),
    )


def _renamed(written: Sequence[Field], named: Sequence[Field]) -> Sequence[Field]:
    """Return a schema element with its name in data files.

    Only decimals may be stored in another form, which every reader knows.
    """
    have = {number: value for number, _, value in written}
    want = {number: value for number, _, value in named}
    assert have.get(5) == want.get(5), f"DataFusion wrote other columns: {have} for {want}"
    if have.get(1) == want.get(1) and have.get(2) == want.get(2):
        assert have.get(3, 0) == want.get(3, 0), f"DataFusion wrote {have} for {want}"
        return named
    return [(number, kind, want[4] if number == 4 else value) for number, kind, value in written]


def _read_at(descriptor: int, offset: int, length: int, path: Path) -> bytes:
    try:
        data = os.pread(descriptor, length, offset)
        while len(data) < length:
            more = os.pread(descriptor, length - len(data), offset + len(data))
            if not more:
                raise StorageFailed(
                    f"the temp file {path} of a merge was truncated. Nothing was written: try again"
                )
            data += more
    except OSError as error:
        raise StorageFailed(
            f"the temp file {path} of a merge cannot be read: {error}. Nothing was written. "
            "Repair the disk, or set another folder by TMPDIR"
        ) from error
    return data
