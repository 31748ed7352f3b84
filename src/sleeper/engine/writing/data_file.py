"""Writes data files: sorted rows as Parquet, in a layout for look-ups by key (rule FMT-1).

They have small pages with checksums and an index, row groups limited by rows and bytes, Bloom
filters for row keys, a seal over footer, indexes and filters, and a sketch.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.engine.arrow_schema import columns_with_statistics, stored_schema
from sleeper.engine.sketches.stored_sketch import SketchBuilder, sketch_place_bytes
from sleeper.engine.sorting.key_order import key_at
from sleeper.engine.writing.column_layout import file_layouts, pyarrow_options
from sleeper.engine.writing.write_settings import WriteSettings
from sleeper.errors import BadRequest
from sleeper.lookup.parquet.footer import TAIL_BYTES, Footer, footer_length, read_footer
from sleeper.lookup.parquet.pages import is_bomb
from sleeper.lookup.parquet.seal import RunningChecksums, page_sums_bytes, seal_bytes
from sleeper.model.files import FileReference, key_to_text
from sleeper.model.keys import checked_value
from sleeper.model.schema import Schema
from sleeper.ports.objects import Output

# ---------------------------------------------------------------- sealed output
#
# The stream that a data file is written through: it adds page sums and a seal.


class ByteStream(Protocol):
    """A binary stream to write to."""

    def write(self, data: bytes | memoryview, /) -> int:
        """Write all of `data` and return its length in bytes."""

    def flush(self) -> None:
        """Pass on what is buffered."""

    def close(self) -> None:
        """End the stream."""


class SealedOutput:
    """A stream for `pyarrow.parquet.ParquetWriter` that puts page sums and a seal into the file.

    Each page must be written by itself, as pyarrow does. Call `hold` just before the writer is
    closed: from then on bytes are kept in memory (the filters, the indexes, the footer, and the
    last row group if it is not flushed yet). `seal` writes them with sums and seal, and `close`
    closes the stream below as well. The writer must have been closed by then.

    Attributes:
        size_bytes: Bytes that were passed on.
    """

    def __init__(self, output: ByteStream) -> None:
        self._output: ByteStream | None = output
        self._position = 0
        self.size_bytes = 0
        self._checksums = RunningChecksums()
        self._held: bytearray | None = None
        self._held_start = 0
        self.closed = False

    def write(self, data: bytes | memoryview, /) -> int:
        """Write bytes to the underlying stream; after `hold`, keep them in memory."""
        size = memoryview(data).nbytes
        self._position += size
        sums = self._checksums
        sums.value = crc32(data, sums.value)
        sums.positions.append(self._position)
        sums.values.append(sums.value)
        if self._held is not None:
            self._held += data
        elif self._output is not None:
            self.size_bytes += size
            self._output.write(data)
        return size

    def tell(self) -> int:
        """How many bytes were written, without sums and seal."""
        return self._position

    def flush(self) -> None:
        """Flush bytes that are not kept in memory."""
        if self._output is not None:
            self._output.flush()

    def hold(self) -> None:
        """Keep what comes from now on, until `seal` or `close`."""
        if self._held is None:
            self._held, self._held_start = bytearray(), self._position

    def give_up(self) -> None:
        """Pass nothing on any more: pyarrow writes a footer even to a file that was given up."""
        self._output, self._held = None, None

    def close(self) -> None:
        """Write the kept bytes, with sums and seal, and close the underlying stream."""
        if self.closed:
            return
        self.closed = True
        output = self._output
        self.seal()
        if output is not None:
            output.close()

    def seal(self, before_sums: bytes = b"") -> Footer | None:
        """Write what was kept, with sums and seal; the stream below stays open.

        Args:
            before_sums: More bytes, between the page indexes and the page sums.

        Returns:
            The file's footer; None if nothing was kept.
        """
        if self._held is None or self._output is None:
            return None
        tail, self._held = bytes(self._held), None
        start = self._held_start
        footer_start = len(tail) - TAIL_BYTES - footer_length(tail, self._position)
        footer = read_footer(tail[footer_start:-TAIL_BYTES], start + footer_start)
        sums = page_sums_bytes(footer, tail, start, self._checksums)
        seal = seal_bytes(footer, footer_start, tail, start)
        end = tail[:footer_start] + before_sums + sums + seal + tail[footer_start:]
        self.size_bytes += len(end)
        self._output.write(end)
        self._output.flush()
        return footer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()


FORMAT = {b"sleeper.format": b"1"}

FILTER_FALSE_POSITIVES = 0.01
"""False positive rate of Bloom filters. A tenth of it needs half more bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """The properties of a written data file, from its rows.

    Attributes:
        row_count: Rows in it.
        first_key: The row key of its first row, one value per row key field; () without rows.
        last_key: The row key of its last row.
        size_bytes: Its size.
    """

    row_count: int
    first_key: tuple[Any, ...]
    last_key: tuple[Any, ...]
    size_bytes: int

    def reference(self, filename: str, partition_id: str, schema: Schema) -> FileReference:
        """Return a reference to the whole file, with the file's attributes."""
        return FileReference(
            filename=filename,
            partition_id=partition_id,
            row_count=self.row_count,
            size_bytes=self.size_bytes,
            schema_id=schema.number,
            first_key=key_to_text(self.first_key, schema),
            last_key=key_to_text(self.last_key, schema),
        )


def write_data_file(
    output: Output,
    chunks: Iterable[pa.Table],
    schema: Schema,
    arrow_schema: pa.Schema,
    settings: WriteSettings,
) -> WrittenFile:
    """Write rows in key order as one data file; the caller must close `output`.

    One row group and the Bloom filters of all row groups are in memory.
    """
    with DataFileWriter(output, schema, arrow_schema, settings) as writer:
        for chunk in chunks:
            writer.add(chunk)
        return writer.close()


class DataFileWriter:
    """Writes one data file, chunk by chunk. The caller must close or abort the output.

    If a `with` block ends without `close`, the file is incomplete, and nothing more is written to
    the output.
    """

    def __init__(
        self,
        output: Output,
        schema: Schema,
        arrow_schema: pa.Schema,
        settings: WriteSettings,
    ) -> None:
        self._schema = schema
        self._settings = settings
        self._output = SealedOutput(output)
        # pyarrow counts its position by itself, so our bytes must pass through its stream as well.
        self._stream = pa.PythonFile(self._output, mode="w")
        self._arrow_schema = stored_schema(schema, arrow_schema).with_metadata(FORMAT)
        self._parquet: Any = None
        self._sketch = SketchBuilder(schema)
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._row_count = 0
        self._first_key: tuple[Any, ...] = ()
        self._last_key: tuple[Any, ...] | None = None
        self._last_row_key: tuple[Any, ...] = ()

    def add(self, rows: pa.Table) -> None:
        """Write more rows, in key order, none below those before.

        Raises:
            AssertionError: the first row is below the last one written, which is a bug.
        """
        if not rows.num_rows:
            return
        self._check_order(rows)
        self._sketch.add(rows)
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        self._row_count += rows.num_rows
        if self._waiting_rows >= self._group_rows():
            self._write_groups(all_rows=False)

    def close(self) -> WrittenFile:
        """Finish the file, seal it, and return its properties.

        Raises:
            BadRequest: readers would refuse a column of it.
        """
        self._write_groups(all_rows=True)
        parquet = self._opened(self._arrow_schema.empty_table())
        sketch_place = self._write_sketch()
        self._output.hold()
        parquet.close()
        footer = self._output.seal(sketch_place)
        assert footer is not None, "a file was sealed before it was held"
        _check_sizes(footer)
        return WrittenFile(
            row_count=self._row_count,
            first_key=self._first_key,
            last_key=self._last_row_key,
            size_bytes=self._output.size_bytes,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._output.give_up()
        if self._parquet is not None:
            with suppress(Exception):  # buffered data is discarded
                self._parquet.close()

    def _write_sketch(self) -> bytes:
        """Write the sketch, if one is needed, and return the bytes that name its place."""
        if self._sketch.has_every_row:
            return b""
        sketch, offset = self._sketch.to_bytes(), self._output.tell()
        self._stream.write(sketch)
        return sketch_place_bytes(offset, len(sketch))

    def _check_order(self, rows: pa.Table) -> None:
        names, before = self._schema.key_names, self._last_key
        if before is None:
            self._first_key = _row_key(rows, 0, self._schema)
        else:
            after = key_at(rows, 0, names)
            assert before <= after, f"rows for a data file out of order: {after} after {before}"
        self._last_key = key_at(rows, rows.num_rows - 1, names)
        self._last_row_key = _row_key(rows, rows.num_rows - 1, self._schema)

    def _group_rows(self) -> int:
        """Return the rows of a row group, by the mean size of the buffered rows."""
        size = max(1, self._waiting_bytes)
        by_bytes = self._settings.row_group_bytes * self._waiting_rows // size
        return int(max(1, min(self._settings.row_group_rows, by_bytes)))

    def _write_groups(self, *, all_rows: bool) -> None:
        if not self._waiting:
            return
        step = self._group_rows()
        rows = pa.concat_tables(self._waiting)
        whole = rows.num_rows if all_rows else rows.num_rows // step * step
        parquet = self._opened(rows.slice(0, step))
        for start in range(0, whole, step):
            group = rows.slice(start, min(step, whole - start))
            parquet.write_table(group.replace_schema_metadata(FORMAT), step)
        rest = rows.slice(whole)
        self._waiting = [rest] if rest.num_rows else []
        self._waiting_rows, self._waiting_bytes = rest.num_rows, rest.nbytes

    def _opened(self, first_group: pa.Table) -> Any:
        """Return the Parquet writer, made with the first row group, which decides the layout."""
        if self._parquet is None:
            layouts = file_layouts(first_group, self._schema, self._arrow_schema, self._settings)
            options = pyarrow_options(layouts, self._settings)
            if self._settings.bloom_filter:
                size = {"ndv": max(1, first_group.num_rows), "fpp": FILTER_FALSE_POSITIVES}
                options["bloom_filter_options"] = {f.name: size for f in self._schema.row_keys}
            self._parquet = pq.ParquetWriter(
                self._stream,
                self._arrow_schema,
                write_statistics=columns_with_statistics(self._arrow_schema),
                write_page_index=True,
                sorting_columns=[
                    pq.SortingColumn(place) for place in range(len(self._schema.keys))
                ],
                **options,
            )
        return self._parquet


def _check_sizes(footer: Footer) -> None:
    """Refuse what readers would not accept, so that no row is lost in a table."""
    for group in footer.chunks:
        for leaf, chunk in zip(footer.leaves, group, strict=True):
            if is_bomb(chunk.uncompressed_size, chunk.size):
                raise BadRequest(
                    f"column {leaf.path[0]!r} has values of {chunk.uncompressed_size:,} bytes in "
                    f"one row group that compress to {chunk.size:,}. Readers refuse more than "
                    "256 MiB that compress to less than a thousandth. Cut such values into "
                    "smaller ones, or compress them before they are ingested."
                )


def _row_key(rows: pa.Table, row: int, schema: Schema) -> tuple[Any, ...]:
    """Return the row key of a row, as Python values."""
    return tuple(
        checked_value(field, rows.column(field.name)[row].as_py()) for field in schema.row_keys
    )
