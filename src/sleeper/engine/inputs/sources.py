"""Reads the input of `table.ingest`, in all its forms, as batches of rows in bounded memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Protocol, TypeGuard

import pyarrow as pa

from sleeper.engine.arrow_schema import check_columns, conform
from sleeper.engine.inputs import frames
from sleeper.engine.inputs.batch_sizes import BATCH_ROWS_MAX, small_batches
from sleeper.engine.inputs.dict_rows import batches_of_dicts, field_array
from sleeper.engine.inputs.input_files import AnyPath, InputFiles, find_files
from sleeper.engine.inputs.text_files import TextFiles, kind_of
from sleeper.errors import BadRequest, InputSchemaMismatch
from sleeper.ports.input_store import InputStore


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


def open_source(data: object, arrow_schema: pa.Schema, remote: InputStore | None = None) -> Source:
    """Return the source of the rows of `data`, for a table with `arrow_schema`.

    Args:
        data: One of
            a path or URL of a Parquet file, or of a folder: all `*.parquet` below it,
            sorted, without names that begin with `_` or `.`; or a list of them;
            a path or URL of a file of CSV (`.csv`) or JSON lines (`.jsonl`, `.ndjson`,
            `.json`), maybe compressed (`.gz`, `.zst`, `.bz2`, `.lz4`); or a list of them;
            a pyarrow Table, RecordBatch, RecordBatchReader or Dataset;
            anything that exports Arrow: polars, DuckDB and others;
            a LazyFrame of polars, which is computed as a stream;
            a dict of columns: lists or arrays by name;
            a pandas DataFrame, whose index counts as a column if it has a name, is dropped
            if it only numbers the rows, and is refused otherwise;
            an iterable of dicts, one for each row;
            a source that this function returned, which is returned again, because streams
            and iterators are consumed when they are opened.
        arrow_schema: The table's schema.
        remote: Reads files by URLs with a scheme other than `file`; None refuses them.

    Raises:
        InputNotFound: a path does not exist, a folder has no Parquet file, a file occurs twice.
        BadRequest: rows cannot be read from `data`.
    """
    if isinstance(data, InputFiles | TextFiles | _Batches):
        return data
    if isinstance(data, str | bytes | os.PathLike) or _is_list_of_paths(data):
        paths = [data] if isinstance(data, str | bytes | os.PathLike) else data
        return _files(find_files(paths, remote), arrow_schema, remote)
    if isinstance(data, pa.Table | pa.RecordBatch):
        return _in_memory(data, arrow_schema)
    if (frame := _frame(data, arrow_schema)) is not None:
        return frame
    if frames.is_frame(data):
        frames.check_frame_names(data.columns)  # type: ignore[attr-defined]
    if isinstance(data, pa.RecordBatchReader) or hasattr(data, "__arrow_c_stream__"):
        return _stream(data, arrow_schema)
    if hasattr(data, "__arrow_c_array__"):
        return _in_memory(pa.record_batch(data), arrow_schema)
    return _dicts(data, arrow_schema)


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
    if frames.is_lazy_frame(data):
        read = partial(frames.lazy_batches, data)
        return _Batches("the LazyFrame", arrow_schema, frames.lazy_schema(data), None, read)
    if isinstance(data, Mapping):
        table = frames.table_of_columns(data, arrow_schema)
        return _in_memory(table, arrow_schema, "dict of columns")
    return _pandas(data, arrow_schema) if _is_pandas(data) else None


def _files(files: tuple[str, ...], arrow_schema: pa.Schema, remote: InputStore | None) -> Source:
    """Return the source for files, by the ends of their names."""
    kinds = {path: kind_of(path) for path in files}
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


def _is_pandas(data: object) -> bool:
    kind = type(data)
    return kind.__module__.partition(".")[0] == "pandas" and kind.__name__ == "DataFrame"


def _pandas(data: Any, arrow_schema: pa.Schema) -> Source:
    names = [name for name in data.index.names if name is not None]
    counts_rows = type(data.index).__name__ == "RangeIndex"
    if not names and not counts_rows:
        raise InputSchemaMismatch(
            "the DataFrame has an index without a name. Give it the name of its column "
            "(index.rename), or drop it (reset_index(drop=True))"
        )

    def read() -> Iterator[pa.RecordBatch]:
        for start in range(0, max(1, len(data)), BATCH_ROWS_MAX):
            rows = data.iloc[start : start + BATCH_ROWS_MAX]
            objects = _object_columns(rows, arrow_schema, start)
            try:
                table = pa.Table.from_pandas(
                    rows.drop(columns=[*objects]), preserve_index=bool(names), nthreads=1
                )
            except (pa.ArrowException, TypeError, ValueError) as error:
                raise InputSchemaMismatch(
                    f"the DataFrame cannot become Arrow: {error}. Give each column one type"
                ) from None
            for name, column in objects.items():
                table = table.append_column(name, column)
            yield from table.replace_schema_metadata(None).to_batches()

    return _Batches("the DataFrame", arrow_schema, None, len(data), read)


def _object_columns(rows: Any, arrow_schema: pa.Schema, start: int) -> dict[str, pa.Array]:
    """Convert the columns of a DataFrame with Python objects to the table's types.

    Values that pandas treats as missing become null.
    """
    if not rows.columns.is_unique:
        return {}  # refused by name when the columns are compared
    found = {}
    for field in arrow_schema:
        if field.name not in rows.columns or rows[field.name].dtype != object:
            continue
        column = rows[field.name]
        values = column.where(column.notna(), None).tolist()
        found[field.name] = field_array(values, field, "the DataFrame", start)
    return found


def _is_list_of_paths(data: object) -> TypeGuard[Sequence[AnyPath]]:
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
    if not isinstance(data, Iterable):
        raise BadRequest(f"rows cannot be read from a {type(data).__name__}; give {wanted}")
    rows = iter(data)
    first = next(rows, None)
    if first is not None and not isinstance(first, Mapping):
        raise BadRequest(f"an iterable of {type(first).__name__} has no rows; give {wanted}")
    name = "the list of dicts" if isinstance(data, list) else "the rows"
    if isinstance(data, Sequence):
        return _Batches(
            name, arrow_schema, None, len(data), lambda: batches_of_dicts(data, arrow_schema, name)
        )
    everything = rows if first is None else chain([first], rows)
    batches = batches_of_dicts(everything, arrow_schema, name)
    return _Batches(name, arrow_schema, None, None, lambda: batches, repeats=False)
