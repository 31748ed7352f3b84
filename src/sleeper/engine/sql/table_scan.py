"""A table as the SQL engine reads it: by columns, and by a condition that narrows what is read."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Never, Protocol, Self
from weakref import WeakSet

import pyarrow as pa
import pyarrow.dataset as pads

from sleeper.engine.ahead import taken_ahead
from sleeper.engine.reading.few_rows import key_limits, places_between
from sleeper.engine.rows import Rows
from sleeper.engine.sql.whole_files import WholeFiles
from sleeper.engine.temp_folder import temp_file_failures, temp_folder
from sleeper.errors import DataDamaged
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet_index import ParquetIndex
from sleeper.lookup.reader import LookupReader
from sleeper.model.ranges import Region
from sleeper.state.plans.key_conditions import Condition


class NarrowedRead(Protocol):
    """A read of the rows that can meet a condition. Nothing is read before `rows` is called."""

    @property
    def is_exact(self) -> bool:
        """True if every row that is read meets the condition."""

    @property
    def transaction(self) -> int:
        """The transaction number of the state that is read."""

    def rows(self, columns: Sequence[str] | None, *, rows_max: int | None = None) -> Rows:
        """Return the rows with these columns; with all of them without any.

        The caller may say that it stops after so many rows.
        """

    def whole_files(self, rows_min: int) -> WholeFiles | None:
        """Return the files, if the rows are all rows of files in a folder, as they have them.

        None also for a table of fewer rows than `rows_min`.
        """

    def explain(self) -> str:
        """Return what is read, in a line: leaves, files and pages of those that there are."""


@dataclass(frozen=True, slots=True)
class ScannedTable:
    """One state of a table, for one statement.

    Attributes:
        name: The table's name.
        arrow_schema: Its columns, in the order in which they are returned.
        key: The first row key, which is read where rows are counted and no column is needed.
        narrowed: Returns the read of the rows that can meet a condition.
        row_count: Returns about how many rows the table has, for the order of joins; None if nobody
            knows.
        may_merge: True if a read may wait for tasks of DataFusion's threads: where rows of several
            files are merged, or files are in a bucket.
    """

    name: str
    arrow_schema: pa.Schema
    key: str
    narrowed: Callable[[Condition], NarrowedRead]
    may_merge: bool
    row_count: Callable[[], int] | None = None


# ---------------------------------------------------------------- streams
#
# Streams of a statement's scans, which DataFusion's threads read and the caller closes.

_BATCHES_AHEAD = 2
_SPACE = "statements that merge rows of several files keep them there"


class ScanStream:
    """The batches of one scan. A thread of DataFusion takes them; any thread may close it.

    A batch is read by a thread of its own: our reader may use DataFusion, which cannot be called
    from its own threads.

    Args:
        read: Returns the rows; called when the first batch is taken.
        rows_max: How many rows the plan takes them to be at most.
        failed: Gets the error that reading raised: DataFusion keeps only its text.

    Attributes:
        rows_read: How many rows were taken so far.
    """

    def __init__(
        self, read: Callable[[], Rows], rows_max: int, failed: Callable[[BaseException], None]
    ) -> None:
        self._batches = _batches(read)
        self._rows_max = rows_max
        self._failed = failed
        self._closed = False
        self._lock = Lock()
        self.rows_read = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        with self._lock:
            if self._closed:
                raise StopIteration
            try:
                batch = next(self._batches)
                self._count(batch)
            except StopIteration:
                raise
            except BaseException as error:
                self._failed(error)
                raise
            return batch

    def _count(self, batch: pa.RecordBatch) -> None:
        """Count rows. The LIMIT above a table would leave out what is too many in silence."""
        self.rows_read += batch.num_rows
        check_row_count(self.rows_read, self._rows_max)

    def close(self) -> None:
        """Stop reading; waits for the batch that is being read."""
        with self._lock:
            self._closed = True
            close = getattr(self._batches, "close", None)
            if close is not None:
                close()


def check_row_count(rows: int, rows_max: int) -> None:
    """Check that a table has no more rows than the LIMIT above it.

    Raises:
        DataDamaged: it has.
    """
    if rows > rows_max:
        raise DataDamaged(
            f"a table has more than {rows_max:,} rows, and far fewer by its state: find its faults "
            "by Table.verify() (`sleeper verify`)"
        )


def _batches(read: Callable[[], Rows]) -> Iterator[pa.RecordBatch]:
    def begun() -> Iterator[pa.RecordBatch]:
        with read() as rows:
            yield from rows

    yield from taken_ahead(begun(), _BATCHES_AHEAD, thread="sleeper-sql")


class OpenScans:
    """The scans of one statement: which error ended one, and how to end all."""

    def __init__(self) -> None:
        self._streams: list[ScanStream] = []
        self._lock = Lock()
        self._rows_ended = 0
        self.failure: BaseException | None = None
        _every_open.add(self)

    def open(self, read: Callable[[], Rows], rows_max: int) -> ScanStream:
        """Return the stream of a scan, of so many rows at most."""
        stream = ScanStream(read, rows_max, self._note)
        with self._lock:
            self._streams.append(stream)
        return stream

    def rows_read(self) -> int:
        """Return how many rows the scans have read so far."""
        with self._lock:
            return self._rows_ended + sum(stream.rows_read for stream in self._streams)

    def add_rows(self, count: int) -> None:
        """Count rows that DataFusion reads from files by itself: all, when it begins."""
        with self._lock:
            self._rows_ended += count

    def _note(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error

    def close(self) -> None:
        """Stop all scans; waits for the batches that are being read."""
        with self._lock:
            streams, self._streams = self._streams, []
            self._rows_ended += sum(stream.rows_read for stream in streams)
        for stream in streams:
            stream.close()


_every_open: WeakSet[OpenScans] = WeakSet()
"""A thread of DataFusion that runs Python while the process ends would abort it."""


@atexit.register
def _close_every() -> None:
    for scans in [*_every_open]:
        scans.close()


# ---------------------------------------------------------------- table dataset
#
# A table as a dataset of pyarrow, which is how DataFusion reads rows from Python as a stream.
#
# DataFusion asks the dataset for a scanner and for fragments, and each fragment for a scanner of
# its own. None of them is an object of pyarrow's C++ library: that has no rows, and whoever read
# it would get an empty table. So every public method that reads is replaced here.

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


# ---------------------------------------------------------------- spooled rows
#
# Rows that are written to a temp file before a statement reads them.


@dataclass(frozen=True, slots=True)
class SpooledRead:
    """A read of rows that are in a temp file; `NarrowedRead` says more.

    Attributes:
        path: The file.
        transaction: The transaction number of the rows.
    """

    path: Path
    transaction: int
    is_exact: bool = False

    def rows(self, columns: Sequence[str] | None, *, rows_max: int | None = None) -> Rows:
        """Return the rows of some columns of the file; a caller that stops reads no more of it."""
        with pa.memory_map(str(self.path)) as source:
            schema = pa.ipc.open_file(source).schema
        names = schema.names if columns is None else [*columns]
        chosen = pa.schema([schema.field(name) for name in names])
        return Rows(self._batches(names), chosen, self.transaction)

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(str(self.path)) as source:
            reader = pa.ipc.open_file(source)
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index).select(names)

    def whole_files(self, rows_min: int) -> WholeFiles | None:
        """Return None: a temp file is read as a stream."""
        return None

    def explain(self) -> str:
        """Return what is read."""
        return "a temp file"


@contextmanager
def spooled(read: Callable[[], Rows], folder: Path | None) -> Iterator[SpooledRead]:
    """Write rows to a temp file, which lasts as long as the block."""
    at = temp_folder(folder)
    with ExitStack() as opened:
        with temp_file_failures(at, _SPACE):
            made = opened.enter_context(TemporaryDirectory(prefix="sleeper-sql-", dir=at))
        path = Path(made) / "rows.arrow"
        with read() as rows, temp_file_failures(at, _SPACE):
            _write(rows, path)
        yield SpooledRead(path, rows.transaction)


# ---------------------------------------------------------------- pages that are chosen
#
# Counts the pages of a file that a read of regions looks at, of those that there are.


def chosen_pages(
    lookup: LookupReader, filename: str, regions: Sequence[Region], arrow_schema: pa.Schema
) -> tuple[int, int]:
    """Return how many pages of the first row key may have keys of regions, and how many there are.

    Args:
        lookup: Reads the file's index.
        filename: The file.
        regions: The regions.
        arrow_schema: The table's columns.

    Raises:
        DataDamaged: the file is missing or damaged.
    """
    kind = arrow_schema.field(0).type
    limits = [key_limits(region, kind) for region in regions]

    def count(index: ParquetIndex, read: ReadRanges) -> tuple[int, int]:
        leaf = index.columns(arrow_schema)[arrow_schema.names[0]].leaf
        groups = [group for group, rows in enumerate(index.footer.row_counts) if rows]
        index.load(groups, (leaf,), (leaf,), read)
        bounds = [index.bounds(group, leaf) for group in groups]
        chosen = sum(len(places_between(each, limits)) for each in bounds)
        return chosen, sum(len(each.minimums) for each in bounds)

    return lookup.inspect(filename, count)


def _write(rows: Rows, path: Path) -> None:
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, rows.schema, options=options) as writer,
    ):
        for batch in rows:
            writer.write_batch(batch)
