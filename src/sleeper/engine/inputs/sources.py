"""Reads the input of `table.ingest`, in all its forms, as batches of rows in bounded memory."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Protocol, TypeGuard

import pyarrow as pa

from sleeper.columns.any_values import checked_column
from sleeper.engine.arrow_schema import check_columns, conform
from sleeper.engine.inputs.dict_rows import batches_of_dicts
from sleeper.engine.inputs.input_files import AnyPath, InputFiles, find_files, log_left_out
from sleeper.engine.inputs.pandas_frames import NAME as FRAME
from sleeper.engine.inputs.pandas_frames import check_frame, frame_batches, is_pandas
from sleeper.engine.inputs.text_files import TextFiles
from sleeper.engine.inputs.text_values import BATCH_ROWS_MAX, small_batches
from sleeper.engine.panics import translated_panics
from sleeper.errors import BadRequest, InputSchemaMismatch, InputUnreadable
from sleeper.model.csv_options import CsvOptions
from sleeper.model.input_names import text_kind
from sleeper.ports.objects import InputStore

# ---------------------------------------------------------------- frames
#
# Input from lazy frames of polars, and from dicts of columns.

_BATCH_ROWS = 131_072


def is_lazy_frame(data: object) -> bool:
    """Return whether `data` is a lazy frame of polars, without importing polars."""
    module = sys.modules.get("polars")
    return module is not None and isinstance(data, module.LazyFrame)


def check_frame_columns(columns: Mapping[str, Any]) -> None:
    """Check names and types of columns before a frame of polars is read.

    At NUL polars ends the process, and of Python objects it passes on where they are in memory.

    Raises:
        InputSchemaMismatch: a name has a NUL character, or a column has Python objects.
    """
    import polars as pl  # noqa: PLC0415 - loaded by whoever made the frame

    for name, kind in columns.items():
        if kind == pl.Object:
            raise InputSchemaMismatch(
                f"column {name!r} of the frame of polars has Python objects (Object), which polars "
                "cannot pass on: give it another type, as by pl.Series(list(map(str, values))), "
                "or drop it. Nothing was ingested"
            )
        if "\0" in name:
            raise InputSchemaMismatch(
                f"the frame of polars has a column {name!r}, with a NUL character, which polars "
                "cannot pass on: rename or drop it. Nothing was ingested"
            )


def is_frame(data: object) -> bool:
    """Return whether `data` is a DataFrame of polars, without importing polars."""
    module = sys.modules.get("polars")
    return module is not None and isinstance(data, module.DataFrame)


@translated_panics("polars")
def lazy_schema(frame: Any) -> pa.Schema:
    """Return the schema of a lazy frame, which is not computed for it.

    Raises:
        InputUnreadable: polars cannot tell it, such as that of a file that is missing.
    """
    import polars as pl  # noqa: PLC0415 - loaded by whoever made the frame

    try:
        schema = frame.collect_schema()
        check_frame_columns(schema)
        return pl.DataFrame(schema=schema).to_arrow().schema
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _uncomputed(error) from None


def lazy_batches(frame: Any) -> Iterator[pa.RecordBatch]:
    """Compute a lazy frame as a stream, and yield its rows.

    Raises:
        InputUnreadable: polars cannot compute it.
    """
    import polars as pl  # noqa: PLC0415 - loaded by whoever made the frame

    if not hasattr(frame, "collect_batches"):
        raise BadRequest("this version of polars streams no LazyFrame: give frame.collect()")
    try:
        parts = iter(frame.collect_batches(chunk_size=_BATCH_ROWS))
        while (part := _next_part(parts)) is not None:
            yield from part
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _uncomputed(error) from None


@translated_panics("polars")
def _next_part(parts: Iterator[Any]) -> list[pa.RecordBatch] | None:
    part = next(parts, None)
    return None if part is None else part.to_arrow().to_batches()


def _uncomputed(error: Exception) -> InputUnreadable:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return InputUnreadable(f"polars cannot compute the LazyFrame: {reason}. Nothing was ingested.")


def table_of_columns(columns: Mapping[Any, Any], arrow_schema: pa.Schema) -> pa.Table:
    """Return a dict of columns as a table, with the table's types.

    Columns that the table does not have become text, and are refused or dropped by name later.

    Raises:
        BadRequest: a value is no column, or columns differ in length.
        InputSchemaMismatch: a value does not fit its column.
    """
    found: dict[str, pa.ChunkedArray] = {}
    known = set(arrow_schema.names)
    names = [name for name in columns if isinstance(name, str)]
    if len(names) < len(columns) or not names:
        raise BadRequest("a dict of columns has names of columns, and there is at least one")
    check_columns(
        pa.schema([(name, pa.null()) for name in names if name in known]),
        arrow_schema,
        ignore_extra_columns=True,
        origin="the dict of columns",
    )
    for name in names:
        if name not in known:
            continue
        try:
            found[name] = checked_column(columns[name], arrow_schema.field(name).type)
        except TypeError as error:
            raise BadRequest(
                f"{name!r} of the dict of columns is no column: {error}. Give a list or an array "
                "for each column; one row is given as [row]"
            ) from None
        except ValueError as error:
            raise InputSchemaMismatch(f"column {name!r} of the dict of columns: {error}") from None
    lengths = {name: len(column) for name, column in found.items()}
    if len(set(lengths.values())) > 1:
        raise BadRequest(f"the columns of the dict differ in length: {lengths}")
    rows = next(iter(lengths.values()))
    extra = {name: pa.chunked_array([pa.nulls(rows)]) for name in names if name not in known}
    return pa.table({**found, **extra})


class Source(Protocol):
    """An input of rows. Call `check` first, which finds errors without reading rows."""

    @property
    def name(self) -> str:
        """Its name in messages."""
        ...

    @property
    def origin(self) -> str:
        """The source of the last batch: its file, or `name`."""
        ...

    @property
    def row_count(self) -> int | None:
        """The number of rows; None if it is not known before reading."""
        ...

    @property
    def schema(self) -> pa.Schema | None:
        """The Arrow schema of its batches; None if it is not known or not the same for all."""
        ...

    @property
    def files(self) -> tuple[str, ...]:
        """The files it reads."""
        ...

    def check(self, *, ignore_extra_columns: bool) -> None:
        """Check every file's footer and all columns, before any row is read.

        Raises:
            InputUnreadable: a file is empty, truncated, or not Parquet.
            InputSchemaMismatch: columns do not fit the table.
        """
        ...

    def batches(
        self, columns: Sequence[str] | None = None, rows_per_file_max: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows, at most 131,072 or about 32 MiB of them in a batch.

        Args:
            columns: The columns to read; None for all that the table has.
            rows_per_file_max: Maximum number of rows to read from the start of each file (of
                the input, if it has no files).

        Raises:
            InputUnreadable: a file is damaged.
        """
        ...


def open_source(
    data: object,
    arrow_schema: pa.Schema,
    remote: InputStore | None = None,
    csv: CsvOptions | None = None,
) -> Source:
    """Return the source of the rows of `data`, for a table with `arrow_schema`.

    Args:
        data: One of
            a path or URL of a Parquet file, or of a folder: all `*.parquet` below it,
            sorted, without names that begin with `_` or `.`; or a list of them;
            a path or URL of a file of CSV (`.csv`) or JSON lines (`.jsonl`, `.ndjson`,
            `.json`), maybe compressed (`.gz`, `.zst`, `.bz2`, `.lz4`), or of a folder of
            them; or a list of them;
            a pattern of such paths or URLs, such as `in/*.csv`;
            a pyarrow Table, RecordBatch, RecordBatchReader or Dataset;
            anything that exports Arrow: polars, DuckDB and others;
            a LazyFrame of polars, which is computed as a stream;
            a dict of columns: lists or arrays by name;
            a pandas DataFrame, whose index counts as a column if it has a name, and is not
            read otherwise;
            an iterable of dicts, one for each row;
            a source that this function returned, which is returned again, because streams
            and iterators are consumed when they are opened.
        arrow_schema: The table's schema.
        remote: Reads files by URLs with a scheme other than `file`; None refuses them.
        csv: How files of CSV are written. With it all files are CSV, whatever their names.

    Raises:
        InputNotFound: a path does not exist, a folder has no file to read, a file occurs twice.
        BadRequest: rows cannot be read from `data`.
    """
    if csv is not None and not is_paths(data):
        raise BadRequest(f"csv is for files of CSV, and not for a {type(data).__name__}")
    if isinstance(data, InputFiles | TextFiles | _Batches):
        return data
    if is_paths(data):
        paths = [data] if isinstance(data, str | bytes | os.PathLike) else data
        files = find_files(paths, remote, left_out=log_left_out)
        return _files(files, arrow_schema, remote, csv)
    if isinstance(data, pa.Table | pa.RecordBatch):
        return _in_memory(data, arrow_schema)
    if (frame := _frame(data, arrow_schema)) is not None:
        return frame
    if is_frame(data):
        check_frame_columns(data.schema)  # type: ignore[attr-defined]
    if type(data).__name__ in ("Series", "ChunkedArray"):
        name = getattr(data, "name", None) or arrow_schema.names[0]
        raise BadRequest(
            f"one {type(data).__name__} has values of one column, and no rows: give a frame, as by "
            f"to_frame(), or a dict of columns, such as {{{name!r}: values}}"
        )
    if isinstance(data, pa.RecordBatchReader) or hasattr(data, "__arrow_c_stream__"):
        return _stream(data, arrow_schema)
    if hasattr(data, "__arrow_c_array__"):
        return _in_memory(_record_batch(data), arrow_schema)
    return _dicts(data, arrow_schema)


def _record_batch(data: object) -> pa.RecordBatch:
    """Return what exports one Arrow array as a batch of rows.

    Raises:
        BadRequest: it is an array of single values.
    """
    try:
        return pa.record_batch(data)
    except pa.ArrowInvalid:
        raise BadRequest(
            f"one {type(data).__name__} has values, and no rows with named columns: give a table "
            "or a record batch of Arrow, or a dict of columns"
        ) from None


def first_key_columns(
    source: Source, arrow_schema: pa.Schema, rows_per_file_max: int | None
) -> Iterator[pa.ChunkedArray]:
    """Yield the values of the first row key, for `estimate_split_points` (rule TBL-10).

    Raises:
        InputRefused: as `check` and `batches` of the source do.
    """
    field = arrow_schema.field(0)
    wanted = pa.schema([field])
    source.check(ignore_extra_columns=True)
    for batch in source.batches([field.name], rows_per_file_max):
        rows = conform(
            batch, wanted, key_names=[field.name], ignore_extra_columns=True, origin=source.origin
        )
        yield rows.column(0)


def _frame(data: object, arrow_schema: pa.Schema) -> Source | None:
    """Return the source for a dataset, a frame, or a dict of columns; None for other data."""
    if _is_dataset(data):
        return _dataset(data, arrow_schema)
    if is_lazy_frame(data):
        read = partial(lazy_batches, data)
        return _Batches("the LazyFrame", arrow_schema, lazy_schema(data), None, read)
    if isinstance(data, Mapping):
        table = table_of_columns(data, arrow_schema)
        return _in_memory(table, arrow_schema, "dict of columns")
    return _PandasFrame(data, arrow_schema) if is_pandas(data) else None


def _files(
    files: tuple[str, ...],
    arrow_schema: pa.Schema,
    remote: InputStore | None,
    csv: CsvOptions | None,
) -> Source:
    """Return the source for files, by the ends of their names."""
    kinds = {path: text_kind(path) for path in files}
    if csv is not None:
        others = [path for path in files if kinds[path] == "json" or path.endswith(".parquet")]
        if others:
            raise BadRequest(f"csv is for files of CSV, and {others[0]!r} is none: leave it out")
        return TextFiles(files, arrow_schema, remote, csv)
    if not any(kinds.values()):
        return InputFiles(files, arrow_schema, remote)
    if not all(kinds.values()):
        text, other = (
            next(p for p in files if bool(kinds[p]) is wanted) for wanted in (True, False)
        )
        raise BadRequest(
            f"{text!r} is text and {other!r} is Parquet: give files of text and of Parquet in two "
            "ingests"
        )
    return TextFiles(files, arrow_schema, remote)


def can_repeat(source: Source) -> bool:
    """Return whether the rows of a source can be read more than once, unlike a stream."""
    return not isinstance(source, _Batches) or source.repeats


class _Batches:
    """Rows in memory, or a stream of another library.

    Attributes:
        repeats: Whether `batches` may be called more than once.
    """

    def __init__(
        self,
        name: str,
        arrow_schema: pa.Schema,
        schema: pa.Schema | None,
        row_count: int | None,
        batches: Callable[[], Iterable[pa.RecordBatch]],
        *,
        repeats: bool = True,
    ) -> None:
        self.repeats = repeats
        self.name = name
        self.origin = name
        self.row_count = row_count
        self.schema = schema
        self.files: tuple[str, ...] = ()
        self._arrow_schema = arrow_schema
        self._batches = batches

    def check(self, *, ignore_extra_columns: bool) -> None:
        """Check columns, if they are known."""
        if self.schema is not None:
            check_columns(
                self.schema,
                self._arrow_schema,
                ignore_extra_columns=ignore_extra_columns,
                origin=self.name,
            )

    def batches(
        self, columns: Sequence[str] | None = None, rows_per_file_max: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows, or those of some columns."""
        left = rows_per_file_max
        for batch in self._batches():
            present = [name for name in columns or () if name in batch.schema.names]
            wanted = batch if columns is None else batch.select(present)
            yield from small_batches(wanted if left is None else wanted.slice(0, left))
            if left is not None:
                left -= min(left, batch.num_rows)
                if not left:
                    return


def _in_memory(
    data: pa.Table | pa.RecordBatch, arrow_schema: pa.Schema, kind: str | None = None
) -> Source:
    whole = [data] if isinstance(data, pa.RecordBatch) else data.to_batches()
    name = f"the {kind or type(data).__name__}"
    return _Batches(name, arrow_schema, data.schema, data.num_rows, lambda: whole)


def _dataset(data: Any, arrow_schema: pa.Schema) -> Source:
    wanted = [name for name in arrow_schema.names if name in data.schema.names]

    def read() -> Iterator[pa.RecordBatch]:
        yield from data.to_batches(columns=wanted, batch_size=BATCH_ROWS_MAX)

    return _Batches("the Dataset", arrow_schema, data.schema, None, read)


def _stream(data: Any, arrow_schema: pa.Schema) -> Source:
    name = f"the {type(data).__name__}"
    try:
        reader = pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise BadRequest(f"{name} cannot be read as a stream of Arrow rows: {error}") from None
    left = [reader]

    height = getattr(data, "height", None)  # of a polars DataFrame
    row_count = height if isinstance(height, int) else None

    def read() -> Iterator[pa.RecordBatch]:
        if not left and row_count is not None:
            left.append(pa.RecordBatchReader.from_stream(data))
        if not left:
            raise BadRequest(f"{name} is a stream that was already read; make a new one")
        yield from left.pop()

    repeats = row_count is not None
    return _Batches(name, arrow_schema, reader.schema, row_count, read, repeats=repeats)


def _is_dataset(data: object) -> bool:
    """Return whether `data` is a dataset, without importing its module, which is slow."""
    module = sys.modules.get("pyarrow.dataset")
    return module is not None and isinstance(data, module.Dataset)


class _PandasFrame(_Batches):
    """The rows of a DataFrame of pandas, whose names are compared before rows are read."""

    def __init__(self, frame: Any, arrow_schema: pa.Schema) -> None:
        read = partial(frame_batches, frame, arrow_schema, BATCH_ROWS_MAX)
        super().__init__(FRAME, arrow_schema, None, len(frame), read)
        self._frame = frame

    def check(self, *, ignore_extra_columns: bool) -> None:
        """Check names; types are checked when rows are read."""
        check_frame(self._frame, self._arrow_schema, ignore_extra_columns=ignore_extra_columns)


class _DictRows(_Batches):
    """Rows given as dicts, whose fields are compared while they are read."""

    def __init__(
        self,
        name: str,
        arrow_schema: pa.Schema,
        row_count: int | None,
        rows: Iterable[Mapping[str, Any]],
    ) -> None:
        repeats = row_count is not None
        super().__init__(name, arrow_schema, None, row_count, self._converted, repeats=repeats)
        self._rows = rows
        self._ignores_extra = False

    def check(self, *, ignore_extra_columns: bool) -> None:
        """Remember whether fields that the table does not have are dropped."""
        self._ignores_extra = ignore_extra_columns

    def _converted(self) -> Iterator[pa.RecordBatch]:
        return batches_of_dicts(
            self._rows, self._arrow_schema, self.name, ignore_extra_fields=self._ignores_extra
        )


def is_paths(data: object) -> TypeGuard[AnyPath | Sequence[AnyPath]]:
    """Return whether input is a path, or a list of paths."""
    if isinstance(data, str | bytes | os.PathLike):
        return True
    return (
        isinstance(data, list | tuple)
        and bool(data)
        and all(isinstance(item, str | bytes | os.PathLike) for item in data)
    )


def _dicts(data: object, arrow_schema: pa.Schema) -> Source:
    """Return the source for an iterable of dicts; the first element is checked."""
    wanted = (
        "a path, a list of paths, something that exports Arrow, an iterable of dicts, or a dict of "
        "columns"
    )
    if isinstance(data, io.IOBase):
        name = getattr(data, "name", None)
        raise BadRequest(
            f"a file that is open is not read: give its path, {name!r}"
            if isinstance(name, str)
            else "bytes or text in memory are not read as a file: give the path of one, or what "
            "pandas, polars or pyarrow.csv make of it"
        )
    if not isinstance(data, Iterable):
        given = "None" if data is None else f"a {type(data).__name__}"
        raise BadRequest(f"rows cannot be read from {given}; give {wanted}")
    rows = iter(data)
    first = next(rows, None)
    if hasattr(first, "__arrow_c_stream__") or hasattr(first, "__arrow_c_array__"):
        raise BadRequest(
            f"an iterable of {type(first).__name__} is no table: join them, as by concat() of "
            "pandas or polars or pyarrow.concat_tables(), or ingest them one by one"
        )
    if first is not None and not isinstance(first, Mapping):
        raise BadRequest(f"an iterable of {type(first).__name__} has no rows; give {wanted}")
    name = "the list of dicts" if isinstance(data, list) else "the rows"
    if isinstance(data, Sequence):
        return _DictRows(name, arrow_schema, len(data), data)
    return _DictRows(name, arrow_schema, None, rows if first is None else chain([first], rows))
