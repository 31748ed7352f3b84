"""Writes rows to a file of a user, batch by batch.

The file becomes visible when it is complete; on failure there is none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from errno import ENOSPC, EROFS
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal, get_args

import pyarrow as pa

from sleeper.engine.arrow_schema import columns_with_statistics
from sleeper.engine.panics import translated_panics
from sleeper.engine.reading.regions import row_groups
from sleeper.engine.rows import Rows
from sleeper.engine.writing.few_json_lines import few_json_lines
from sleeper.errors import AlreadyExists, QueryInvalid, StorageFailed, StorageFull, StorageReadOnly

if TYPE_CHECKING:
    import polars as pl

    from sleeper.engine.writing.data_file import ByteStream


# ---------------------------------------------------------------- unfinished file
#
# A file of a user that is written to a temp file and renamed when it is complete and durable.


class UnfinishedFile:
    """A hidden temp file beside the final path, which no other process writes to.

    `appear` renames it and `discard` deletes it. A killed process leaves `.NAME.PID-N.unfinished`.

    Attributes:
        path: The final path.
        file: The open temp file.

    Raises:
        StorageFailed: the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hidden, self.file = _created(path)

    def appear(self, *, replace: bool) -> None:
        """Make the file durable, and rename it to its final path.

        Args:
            replace: True to replace an existing file; otherwise the path must not exist, even
                if it was created since.

        Raises:
            AlreadyExists: the path exists.
            StorageFailed: the file cannot be written.
        """
        try:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            if replace:
                self._hidden.replace(self.path)
            else:
                _link(self._hidden, self.path)
            _sync_folder(self.path.parent)
        except FileExistsError:
            raise taken(self.path) from None
        except OSError as error:
            raise write_failure(self.path, error) from error
        finally:
            self.discard()

    def discard(self) -> None:
        """Delete the temp file; does nothing after `appear`."""
        with suppress(OSError):
            self.file.close()
        with suppress(OSError):
            self._hidden.unlink(missing_ok=True)


def taken(path: Path) -> AlreadyExists:
    """Return the error that a file exists already."""
    return AlreadyExists(f"{path} is there already: name a file that does not exist yet")


def write_failure(path: Path, error: OSError) -> StorageFailed:
    """Return our error for a failure to write a user's file."""
    kinds = {ENOSPC: StorageFull, EROFS: StorageReadOnly}
    kind = kinds.get(error.errno or 0, StorageFailed)
    return kind(f"cannot write {path}: {error.strerror or error}")


def _created(path: Path) -> tuple[Path, IO[bytes]]:
    for number in count():
        hidden = path.with_name(f".{path.name}.{os.getpid()}-{number}.unfinished")
        try:
            return hidden, hidden.open("xb")
        except FileExistsError:  # of another thread, or of a killed process
            continue
        except OSError as error:
            raise write_failure(path, error) from error
    raise AssertionError("numbers do not end")


def _link(hidden: Path, path: Path) -> None:
    """Rename a file to its final path, if the path does not exist."""
    try:
        path.hardlink_to(hidden)
    except FileExistsError:
        raise
    except OSError:  # the file system has no hard links
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        hidden.replace(path)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # makes the name durable
    finally:
        os.close(descriptor)


OutputFormat = Literal["parquet", "csv", "arrow", "json"]
FORMATS: Final = get_args(OutputFormat)

_ROW_GROUP_ROWS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetLayout:
    """The layout of a Parquet file of a user.

    Attributes:
        compression: Compression of pages; `uncompressed` for none.
        row_group_bytes: Approximate bytes in memory of a row group, which has at most 100,000
            rows; None for 100,000 rows.
        page_bytes: Approximate bytes of a page; None for the library's default.
    """

    compression: str = "zstd"
    row_group_bytes: int | None = None
    page_bytes: int | None = None


DEFAULT_LAYOUT: Final = ParquetLayout()


def write_rows(rows: Rows, path: Path, output_format: OutputFormat) -> int:
    """Write `rows` to `path` and return their number.

    Args:
        rows: The rows, which are read to the end, a batch at a time.
        path: The file; an existing one is replaced at the end. Of two concurrent writers,
            the one that ends last wins.
        output_format: `parquet` (zstd), `arrow` (an IPC file), `csv` (with a header), or
            `json`: one object a line. In the last two bytes are base64, and lengths of time ISO
            8601; maps are objects in JSON. CSV has no lists and maps.

    Raises:
        QueryInvalid: CSV cannot contain the lists or maps of the rows.
        StorageFailed: the file cannot be written.
        DataDamaged: a file of the table is missing or damaged.
    """
    with rows:
        unfinished = UnfinishedFile(path)
        try:
            row_count = stream_rows(rows, unfinished.file, output_format)
            unfinished.appear(replace=True)
        except OSError as error:
            raise write_failure(path, error) from error
        finally:
            unfinished.discard()
    return row_count


def stream_rows(rows: Rows, file: ByteStream, output_format: OutputFormat) -> int:
    """Write `rows` to an open file, such as standard output, and return their number.

    Raises: as `write_rows`, but errors of the file itself are not translated.
    """
    write = {"parquet": _parquet, "csv": _csv, "arrow": _arrow, "json": _json_lines}[output_format]
    return write(rows, rows.schema, file)


def stream_parquet(rows: Rows, file: ByteStream, layout: ParquetLayout) -> int:
    """Write `rows` to an open Parquet file, and return their number.

    Raises: as `stream_rows`.
    """
    return _parquet(rows, rows.schema, file, layout)


def _parquet(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    file: ByteStream,
    layout: ParquetLayout = DEFAULT_LAYOUT,
) -> int:
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import, and only this needs it

    row_count = 0
    with pq.ParquetWriter(
        file,
        schema,
        compression="none" if layout.compression == "uncompressed" else layout.compression,
        data_page_size=layout.page_bytes,
        write_page_index=True,
        write_statistics=columns_with_statistics(schema),
    ) as writer:
        for group in row_groups(batches, _ROW_GROUP_ROWS):
            writer.write_table(group, row_group_size=_rows_in_group(group, layout))
            row_count += group.num_rows
    return row_count


def _rows_in_group(rows: pa.Table, layout: ParquetLayout) -> int | None:
    """Return the number of rows of each row group of a table; None for all its rows."""
    if layout.row_group_bytes is None:
        return None
    row_count: int = layout.row_group_bytes * rows.num_rows // max(1, rows.nbytes)
    return max(1, row_count)


def _arrow(batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: ByteStream) -> int:
    row_count = 0
    with pa.ipc.new_file(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            row_count += batch.num_rows
    return row_count


def _csv(batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: ByteStream) -> int:
    nested = [field.name for field in schema if pa.types.is_nested(field.type)]
    if nested:
        raise QueryInvalid(
            f"CSV cannot contain the lists, maps and structs of {', '.join(nested)}: "
            "write json, arrow or parquet, or leave these columns out"
        )
    from pyarrow.csv import CSVWriter  # noqa: PLC0415 - slow to import, and only this needs it

    text = pa.schema([_text_field(field) for field in schema])
    row_count = 0
    with CSVWriter(file, text) as writer:
        for batch in batches:
            writer.write_batch(_as_text(batch, text))
            row_count += batch.num_rows
    return row_count


def _text_field(field: pa.Field) -> pa.Field:
    has_none = pa.types.is_binary(field.type) or pa.types.is_duration(field.type)
    return field.with_type(pa.string()) if has_none else field


def _as_text(batch: pa.RecordBatch, text: pa.Schema) -> pa.RecordBatch:
    columns = [
        column if column.type == field.type else _text_of(column)
        for column, field in zip(batch.columns, text, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=text)


@translated_panics("polars")
def _text_of(column: pa.Array) -> pa.Array:
    import polars as pl  # noqa: PLC0415 - slow to import, and look-ups need none

    frame = pl.DataFrame({"values": column})
    texts = frame.select(_json_ready(pl.col("values"), frame.schema["values"]))["values"]
    return texts.to_arrow().cast(pa.string())


def json_lines(batch: pa.RecordBatch) -> bytes:
    """Return rows as JSON, an object a line.

    Bytes are base64, lengths of time ISO 8601, keys of maps texts, NaN and infinities null.
    """
    few = few_json_lines(batch)
    return _many_json_lines(batch) if few is None else few


@translated_panics("polars")
def _many_json_lines(batch: pa.RecordBatch) -> bytes:
    import polars as pl  # noqa: PLC0415 - slow to import, and look-ups need none

    frame = pl.DataFrame(batch)
    lines = BytesIO()  # polars reports a failed write without its error number
    frame.with_columns(
        _json_ready(pl.col(name), kind).alias(name) for name, kind in frame.schema.items()
    ).write_ndjson(lines)
    return lines.getvalue()


def _json_lines(batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: ByteStream) -> int:
    row_count = 0
    for batch in batches:
        file.write(json_lines(batch))
        row_count += batch.num_rows
    return row_count


def _json_ready(value: pl.Expr, kind: object) -> pl.Expr:
    """Convert bytes and lengths of time, at any depth, and keys of maps to strings."""
    import polars as pl  # noqa: PLC0415 - slow to import, and look-ups need none

    match kind:
        case pl.Binary():
            return value.bin.encode("base64")
        case pl.Duration():
            return value.dt.to_string("iso")
        case pl.List(inner=inner):
            return value.list.eval(_json_ready(pl.element(), inner))
        case pl.Map(key=key, value=item):
            entry = pl.element().struct
            entries = value.map.entries().list.eval(
                pl.struct(
                    _json_ready(entry.field("key"), key).cast(pl.String).alias("key"),
                    _json_ready(entry.field("value"), item).alias("value"),
                )
            )
            return entries.cast(pl.Map(pl.String, _json_kind(item)))
        case pl.Struct(fields=parts) if _json_kind(kind) != kind:
            ready = [
                _json_ready(value.struct.field(part.name), part.dtype).alias(part.name)
                for part in parts
            ]
            return pl.when(value.is_not_null()).then(pl.struct(ready))
        case _:
            return value


def _json_kind(kind: Any) -> Any:
    """Return the type of polars that `_json_ready` gives to values of a type."""
    import polars as pl  # noqa: PLC0415 - slow to import, and look-ups need none

    match kind:
        case pl.Binary() | pl.Duration():
            return pl.String()
        case pl.List(inner=inner):
            return pl.List(_json_kind(inner))
        case pl.Map(key=_, value=item):
            return pl.Map(pl.String, _json_kind(item))
        case pl.Struct(fields=parts):
            return pl.Struct([pl.Field(part.name, _json_kind(part.dtype)) for part in parts])
        case _:
            return kind
