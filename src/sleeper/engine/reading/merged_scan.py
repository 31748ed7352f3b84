"""Reads ranges of sorted data files as one stream in key order.

DataFusion reads and merges; only row groups and pages that can contain a requested key are read.
Memory is about one compressed row group and a few batches for each merged file. In addition
DataFusion's allocator keeps freed memory: up to a hundred column chunks for each file
(docs/performance.md, "Compaction").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from threading import Lock
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.reading.left_out_keys import LeftOutKeys
from sleeper.engine.reading.regions import (
    PREDICATE_REGIONS_MAX,
    disjoint_regions,
    joined_over_gaps,
    region_chunks,
    row_groups,
    slice_predicate,
    values_inside,
)
from sleeper.engine.reading.session import (
    Session,
    column,
    datafusion,
    file_failure,
    is_read_failure,
    is_shortage,
    merge_plan,
    resource_error,
    translate_read_errors,
)
from sleeper.engine.temp_folder import temp_file_failures, temp_folder
from sleeper.errors import QueryInvalid, SleeperError
from sleeper.lookup.columns import BoundColumn
from sleeper.model.object_stores import ObjectStoreSettings
from sleeper.model.ranges import Region
from sleeper.model.schema import Schema

FAN_IN_MAX: Final = 100
"""Maximum number of files in one merge; more are first merged into temp files, a hundred each."""

_COMPARED_ROWS: Final = 32_768
_COMPARED_FILES_MAX: Final = 8
"""So many rows are compared at once with keys whose rows are left out, in merges of so few files: a
call of Python by DataFusion costs as much as the comparison of some thousand rows."""

_TEMPORARY_ROW_GROUP_ROWS: Final = 32_768
_PREFIX: Final = "sleeper-merge-"
_SPACE: Final = "merges of very many files keep rows there; compact the table"
_DESCRIPTORS: Final = Path("/proc/self/fd")  # an open file has a path here, on Linux


AtOnce = Callable[[Sequence[Callable[[], Any]]], list[Any]]
"""Makes some calls, and returns their results in order."""


def _in_turn(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    return [call() for call in calls]


@dataclass(frozen=True, slots=True)
class FileSlice:
    """The rows to read of one sorted data file.

    Attributes:
        url: Absolute path of the file, or its URL.
        regions: Rows inside any of these are read, each once; all rows if it is empty. A
            condition that every row meets costs a fifth more than none, so leave out regions
            that contain the whole file.
        columns: The table's columns as the file has them, in order; None if it has them all as the
            schema says.
        without: Values of the single row key, ascending: rows of these keys are not read.
        keys_out: The rows of these keys are not read.
    """

    url: str
    regions: tuple[Region, ...] = ()
    columns: tuple[BoundColumn, ...] | None = None
    without: tuple[Any, ...] = ()
    keys_out: LeftOutKeys | None = None

    def joined(self, schema: Schema) -> FileSlice:
        """Return the same rows by as few regions as possible."""
        regions = disjoint_regions(self.regions)
        if len(regions) <= PREDICATE_REGIONS_MAX:
            return replace(self, regions=regions)
        regions, missing = joined_over_gaps(regions, schema)
        return replace(self, regions=regions, without=missing)

    def inside(self, chunk: Sequence[Region]) -> FileSlice:
        """Return the rows in those of its regions that are in a chunk."""
        here = set(chunk)
        regions = tuple(each for each in self.regions if each in here)
        return replace(self, regions=regions, without=values_inside(self.without, chunk))


class Scanner:
    """Reads ranges of sorted Parquet files through one reused DataFusion context.

    Cheap to make: the context is built at first use. Safe in threads, not across a fork.

    Args:
        schema: The schema of all files.
        memory_bytes: Memory for merging, in addition to row groups that are being decoded.
        temp_folder: Folder for temp files between rounds of a merge of very many files.
        max_tables: Maximum number of open files: the most recently used ones.
        batch_rows: Maximum number of rows of a batch; where some are left out by their keys, of few
            files, up to 32,768.
        fan_in_max: Maximum number of files in one merge.
        stores: How to connect to buckets; None if there are none.
        at_once: Makes calls that take a request or two each; one after the other by default.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        memory_bytes: int = 1 << 30,
        temp_folder: Path | None = None,
        max_tables: int = 1000,
        batch_rows: int = 8192,
        fan_in_max: int = FAN_IN_MAX,
        stores: ObjectStoreSettings | None = None,
        at_once: AtOnce = _in_turn,
    ) -> None:
        self._at_once = at_once
        self._schema = schema
        self._arrow_schema = to_arrow(schema)
        self._temp_folder = temp_folder
        self._fan_in_max = fan_in_max
        self._open_session = partial(
            Session,
            self._arrow_schema,
            schema.key_names,
            memory_bytes=memory_bytes,
            temp_folder=temp_folder,
            files_max=max_tables,
            stores=stores,
        )
        self._batch_rows = batch_rows
        self._sessions: dict[int, Session] = {}  # by the rows of their batches
        self._lock = Lock()

    def merge(
        self, slices: Sequence[FileSlice], columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows of all slices, ordered by row keys, then sort keys.

        Nothing is read before the first batch is requested; closing the iterator stops it.

        Args:
            slices: One per file. A row that is in several files is returned several times.
            columns: The columns to return, in this order; all fields in the schema's order without
                it.

        Raises:
            QueryInvalid: a column is not in the schema, or named twice.
            DataDamaged: a file is missing or damaged; the message names it. It may be raised
                in the middle of the stream.
            StorageFailed: memory or disk is full, or the storage failed.
            BadRequest: this process was forked from one that used a scanner.

        Source: rules QRY-2 to QRY-5.
        """
        names = [*(self._schema.names if columns is None else columns)]
        unknown = sorted({name for name in names if name not in self._schema.names})
        if unknown or len({*names}) < len(names):
            raise QueryInvalid(
                f"the columns {names} must be different fields of the schema, which are "
                f"{', '.join(self._schema.names)}"
            )
        return self._stream(slices, names)

    def _stream(self, slices: Sequence[FileSlice], names: list[str]) -> Iterator[pa.RecordBatch]:
        read_names = names or [self._schema.names[0]]  # else a batch has only a row count
        for chunk in self._chunks(slices):
            for batch in self._merge(chunk, read_names):
                if batch.num_rows:
                    yield batch if names else batch.select([])

    def _chunks(self, slices: Sequence[FileSlice]) -> Iterator[Sequence[FileSlice]]:
        """Divide slices with many regions by key; the chunks are in key order."""
        joined = [part.joined(self._schema) for part in slices]
        wanted = [
            now for now, part in zip(joined, slices, strict=True) if now.regions or not part.regions
        ]
        everything = any(not part.regions for part in wanted)
        if everything or all(len(part.regions) <= PREDICATE_REGIONS_MAX for part in wanted):
            yield from [wanted] if wanted else []
            return
        regions = [*dict.fromkeys(region for part in wanted for region in part.regions)]
        for chunk in region_chunks(regions, self._schema, PREDICATE_REGIONS_MAX):
            cut = [part.inside(chunk) for part in wanted]
            yield [part for part in cut if part.regions]

    def _merge(self, slices: Sequence[FileSlice], names: list[str]) -> Iterator[pa.RecordBatch]:
        """Merge slices in one round, or in two rounds if there are very many."""
        if len(slices) <= self._fan_in_max:
            yield from self._merge_at_once(slices, names)
            return
        needed = {*self._schema.key_names, *names}
        arrow_schema = pa.schema([field for field in self._arrow_schema if field.name in needed])
        round_count = -(-len(slices) // self._fan_in_max)
        folder = temp_folder(self._temp_folder)
        with _between_rounds(folder, round_count) as between:
            for number, path in enumerate(between):
                batches = self._merge_at_once(slices[number::round_count], arrow_schema.names)
                _write_temporary(batches, arrow_schema, path, folder)
            # Not one that is kept: another merge may have had files of the same paths.
            session = self._open_session(batch_rows=self._batch_rows)
            frames = [session.open(str(path), arrow_schema) for path in between]
            yield from translate_read_errors(
                self._run(session, frames, names), lambda error: resource_error(error, round_count)
            )

    def _merge_at_once(
        self, slices: Sequence[FileSlice], names: list[str]
    ) -> Iterator[pa.RecordBatch]:
        return translate_read_errors(
            self._scan(slices, names), lambda error: self._explained(error, slices, names)
        )

    def _scan(self, slices: Sequence[FileSlice], names: list[str]) -> Iterator[pa.RecordBatch]:
        session, failures = self._opened(slices), list[SleeperError]()
        try:
            yield from self._run(session, self._frames(session, slices, failures), names)
        except BaseException as error:
            if failures and is_read_failure(error):
                raise failures[0] from None
            raise

    def _explained(
        self, error: BaseException, slices: Sequence[FileSlice], names: list[str]
    ) -> SleeperError:
        """Find the file that caused an error by reading one after the other."""
        if is_shortage(error):
            return resource_error(error, len(slices))
        for part in slices:
            try:
                for _ in self._scan([part], names):
                    pass
            except BaseException as own:
                if is_read_failure(own):
                    return file_failure(part.url, own)
                raise
        return resource_error(error, len(slices))

    def _frames(
        self, session: Session, slices: Sequence[FileSlice], failures: list[SleeperError]
    ) -> list[Any]:
        opened = self._at_once([partial(session.frame, part.url, part.columns) for part in slices])
        frames = []
        predicates: dict[Any, Any] = {}  # usually all slices have the same
        for part, frame in zip(slices, opened, strict=True):
            asked = part.regions, part.without
            if asked not in predicates:
                predicates[asked] = slice_predicate(*asked, self._schema, self._arrow_schema)
            predicate = predicates[asked]
            read = frame if predicate is None else frame.filter(predicate)
            if part.keys_out is not None:
                read = read.filter(self._staying(part.keys_out, failures))
            frames.append(read)
        return frames

    def _staying(self, keys_out: LeftOutKeys, failures: list[SleeperError]) -> Any:
        """Return the expression that is true for rows of other keys, which Python evaluates.

        What it raises is added to `failures`.
        """
        names = self._schema.row_key_names

        def stay(*columns: pa.Array) -> pa.Array:
            try:
                return keys_out.stay(pa.RecordBatch.from_arrays([*columns], names))
            except SleeperError as failure:  # DataFusion keeps its text alone
                failures.append(failure)
                raise

        kinds = [self._arrow_schema.field(name).type for name in names]
        function = datafusion().udf(stay, kinds, pa.bool_(), "volatile", "has_none_of_the_keys")
        return function(*map(column, names))

    def _run(
        self, session: Session, frames: Sequence[Any], names: list[str]
    ) -> Iterator[pa.RecordBatch]:
        plan = merge_plan(frames, session.order, names)
        expected = pa.schema([self._arrow_schema.field(name) for name in names])
        for batch in session.run(plan):
            rows = batch.to_pyarrow()
            yield rows if rows.schema.equals(expected) else rows.cast(expected)

    def forget(self, urls: Collection[str]) -> None:
        """Close files that will not be read again."""
        with self._lock:
            sessions = [*self._sessions.values()]
        for session in sessions:
            session.forget(urls)

    def _opened(self, slices: Sequence[FileSlice]) -> Session:
        rows = self._batch_rows
        if len(slices) <= _COMPARED_FILES_MAX and any(part.keys_out for part in slices):
            rows = max(rows, _COMPARED_ROWS)
        with self._lock:
            if rows not in self._sessions:
                self._sessions[rows] = self._open_session(batch_rows=rows)
            return self._sessions[rows]


@contextmanager
def _between_rounds(folder: Path, count: int) -> Iterator[list[Path]]:
    """Give paths of temp files, which are gone when the process ends, in whatever way.

    On Linux they have no names in the folder. Elsewhere a killed process leaves them.
    """
    with ExitStack() as opened:
        if _DESCRIPTORS.is_dir():
            with temp_file_failures(folder, _SPACE):
                files = [
                    opened.enter_context(TemporaryFile(prefix=_PREFIX, dir=folder, buffering=0))
                    for _ in range(count)
                ]
            yield [_DESCRIPTORS / str(file.fileno()) for file in files]
        else:
            named = Path(opened.enter_context(TemporaryDirectory(prefix=_PREFIX, dir=folder)))
            yield [named / f"{number}.parquet" for number in range(count)]


def _write_temporary(
    batches: Iterator[pa.RecordBatch], arrow_schema: pa.Schema, path: Path, folder: Path
) -> None:
    """Write a sorted temp file that is read once: small row groups, fast compression."""
    with (
        temp_file_failures(folder, _SPACE),
        pq.ParquetWriter(
            path, arrow_schema, compression="lz4", use_dictionary=False, write_statistics=False
        ) as file,
    ):
        for group in row_groups(batches, _TEMPORARY_ROW_GROUP_ROWS):
            file.write_table(group)
