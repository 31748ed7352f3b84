"""Sorts rows in bounded memory, divided into groups of keys, before they are written.

Rows are read until their memory is used, sorted, and spilled to local disk as a run. Then each
group is merged from its slices of all runs. A group that does not fit in memory is processed in
ranges of keys. Rows that fit in memory are not spilled.
"""

from __future__ import annotations

import logging
import os
import tempfile
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import ipc

from sleeper.engine.ahead import taken_ahead
from sleeper.engine.memory_limit import check_room
from sleeper.engine.sorting.key_order import Groups, OrderedRows, key_at, sorting_bytes
from sleeper.engine.temp_folder import temp_file_failures, temp_folder
from sleeper.errors import StorageFailed
from sleeper.fork_guard import ForkGuard

# ---------------------------------------------------------------- spill
#
# Sorted runs on local disk: one unlinked temp file of Arrow IPC messages.
#
# The file has no name, so it is deleted when the process ends, in whatever way.

_SPACE: Final = "sorting needs about as much space there as the rows take in memory"


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of one run, in key order, as one message of the file.

    Attributes:
        offset: The file offset of the message.
        size_bytes: Its length.
        row_count: Rows in it.
        first_key: The key of its first row, as `key_order.key_at` returns it.
    """

    offset: int
    size_bytes: int
    row_count: int
    first_key: tuple[Any, ...]


class SpillFile:
    """Stores blocks of rows on disk until it is closed. The first block creates the file.

    Raises (from `append`): StorageFull, StorageReadOnly, StorageFailed, naming the folder.

    Attributes:
        size_bytes: Number of written bytes.
    """

    def __init__(self, folder: Path | None, schema: pa.Schema) -> None:
        self._folder = temp_folder(folder)
        self._schema = schema
        self._descriptor: int | None = None
        self.size_bytes = 0

    def append(self, rows: pa.Table, first_key: tuple[Any, ...]) -> Block:
        """Write rows and return their block."""
        batch = rows.combine_chunks().to_batches()[0]
        message = batch.serialize()
        block = Block(self.size_bytes, message.size, rows.num_rows, first_key)
        with temp_file_failures(self._folder, _SPACE):
            if self._descriptor is None:
                self._descriptor = _open_nameless(self._folder)
            _write_all(self._descriptor, memoryview(message), block.offset)
        self.size_bytes += message.size
        return block

    def read(self, blocks: Sequence[Block]) -> pa.Table:
        """Return the rows of blocks that are adjacent in the file."""
        assert self._descriptor is not None
        start = blocks[0].offset
        size = blocks[-1].offset + blocks[-1].size_bytes - start
        buffer = pa.allocate_buffer(size)
        _read_all(self._descriptor, memoryview(buffer), start, self._folder)
        batches = [
            ipc.read_record_batch(buffer.slice(b.offset - start, b.size_bytes), self._schema)
            for b in blocks
        ]
        return pa.Table.from_batches(batches, self._schema)

    def close(self) -> None:
        """Release the disk space."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _open_nameless(folder: Path) -> int:
    with tempfile.TemporaryFile(prefix="sleeper-sort-", dir=folder, buffering=0) as file:
        return os.dup(file.fileno())


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


def _read_all(descriptor: int, into: memoryview, offset: int, folder: Path) -> None:
    while into:
        count = os.preadv(descriptor, [into], offset)
        if not count:
            raise StorageFailed(
                f"the temp file of the sort in {str(folder)!r} was truncated; run it again"
            )
        into, offset = into[count:], offset + count


# ---------------------------------------------------------------- sub ranges
#
# Divides a group that is too large for memory into key ranges that can be sorted separately.
#
# The first key of every block of a run is known, so ranges are planned without reading rows.

# A cut between keys: (key, False) is before all rows of the key, (key, True) after them.
Cut = tuple[tuple[Any, ...], bool]


@dataclass(frozen=True, slots=True)
class SubRange:
    """The rows between two cuts; None is no limit."""

    low: Cut | None
    high: Cut | None

    @property
    def is_one_key(self) -> bool:
        """True if all its rows have the same key, so that no sort is needed."""
        return self.low is not None and self.high is not None and self.low[0] == self.high[0]


def plan_sub_ranges(
    runs: Sequence[Sequence[Block]], need: Callable[[Block], int], need_max: int
) -> Iterator[SubRange]:
    """Yield ranges that cover all keys, in order.

    Sorting a range needs at most about `need_max` bytes, and one more block of each run, unless
    all its rows have one key. `need` returns the memory for sorting a block.
    """
    low: Cut | None = None
    planned = 0
    blocks = sorted((block for run in runs for block in run), key=lambda block: block.first_key)
    for key, same in groupby(blocks, key=lambda block: block.first_key):
        more = sum(map(need, same))
        if planned and planned + more > need_max:
            yield SubRange(low, (key, False))
            low, planned = (key, False), 0
        if more > need_max:
            if low != (key, False):
                yield SubRange(low, (key, False))
            yield SubRange((key, False), (key, True))
            low, more = (key, True), 0
        planned += more
    yield SubRange(low, None)


def read_sub_range(
    spill: SpillFile, runs: Sequence[Sequence[Block]], wanted: SubRange, key_names: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield the rows of a range, run by run, a table for each run that has some."""
    for run in runs:
        blocks = _blocks_between(run, wanted)
        if blocks:
            rows = _rows_between(spill.read(blocks), wanted, key_names)
            if rows.num_rows:
                yield rows


def read_one_key(
    spill: SpillFile, runs: Sequence[Sequence[Block]], wanted: SubRange, key_names: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield the rows of a range of one key, block by block."""
    for run in runs:
        for block in _blocks_between(run, wanted):
            rows = _rows_between(spill.read([block]), wanted, key_names)
            if rows.num_rows:
                yield rows


def _blocks_between(run: Sequence[Block], wanted: SubRange) -> Sequence[Block]:
    """Return the blocks of a run that may contain rows of the range."""
    start = 0 if wanted.low is None else max(0, _starting_before(run, wanted.low) - 1)
    stop = len(run) if wanted.high is None else _starting_before(run, wanted.high)
    return run[start:stop]


def _starting_before(run: Sequence[Block], cut: Cut) -> int:
    key, after = cut
    bisect = bisect_right if after else bisect_left
    return bisect(run, key, key=lambda block: block.first_key)


def _rows_between(rows: pa.Table, wanted: SubRange, key_names: Sequence[str]) -> pa.Table:
    start = 0 if wanted.low is None else _rows_before(rows, wanted.low, key_names)
    stop = rows.num_rows if wanted.high is None else _rows_before(rows, wanted.high, key_names)
    return rows.slice(start, max(0, stop - start))


def _rows_before(rows: pa.Table, cut: Cut, key_names: Sequence[str]) -> int:
    key, after = cut
    bisect = bisect_right if after else bisect_left
    return bisect(range(rows.num_rows), key, key=lambda row: key_at(rows, row, key_names))


_INTAKE_SHARE = 0.5  # of the memory: for input rows and for sorting them
_GROUP_SHARE = 0.35  # of the memory: for a group, or a range of keys, that is merged
_CHUNK_BYTES_MAX = 8 << 20
_BLOCK_BYTES_MAX = 512 << 10
_RUN_BYTES_MIN = 64 << 20
_RUNS_BEFORE_THEY_GROW = 32
_CHUNKS_AHEAD = 4
_HERE_BYTES = 1 << 20
"""Up to so many bytes are sorted by the caller's thread: another one costs more than it saves."""
_FEW_BYTES: Final = 16 << 20
"""Rows that need less are sorted without a look at limits of memory."""
_BESIDE_BYTES: Final = 184 << 20
"""What reading, sorting and writing use beside the memory of a sort."""
_LEAST_BYTES: Final = 16 << 20
"""The least memory of a sort that is tried."""


_log = logging.getLogger(__name__)
_polars = ForkGuard("polars, which sorts them,", use="had already ingested rows", instead="ingest")


@dataclass(frozen=True, slots=True, kw_only=True)
class SortSettings:
    """Limits of a sort.

    Attributes:
        memory_bytes: Maximum memory of the sort: rows, their order, output chunks. It is less if
            the process may not use so much. Loaded libraries need about 170 MB more, and reading
            and writing up to 184 MB. A single row, and one block of 512 KiB for each run of a group
            that is processed in ranges, are always in memory.
        temp_folder: Folder for runs, which are about as large as the rows in memory; None is the
            system's temp folder.
    """

    memory_bytes: int = 1 << 30
    temp_folder: Path | None = None


Grouped = tuple[int, pa.Table]
Run = dict[int, list[Block]]


def sort_into_groups(
    batches: Iterable[pa.Table | pa.RecordBatch],
    arrow_schema: pa.Schema,
    *,
    key_names: Sequence[str],
    bounds: Sequence[Any],
    settings: SortSettings,
) -> Generator[tuple[int, Iterator[pa.Table]], None, None]:
    """Yield (number of a group, its rows in key order, in chunks) for groups that have rows.

    Args:
        batches: Rows of exactly `arrow_schema`, without nulls in key columns. Read in the
            caller's thread; chunks are prepared ahead of the caller in another.
        key_names: The columns to sort by. Rows with equal keys keep their order.
        bounds: Values of the first key, strictly ascending: n of them make n + 1 groups, and
            a bound belongs to the group above it.

    A group's chunks must be used before the next group is requested.

    Raises:
        StorageFull, StorageFailed: the runs cannot be written to the temp folder, or the process
            may not use enough memory. That is found out after the first rows.
        BadRequest: this process was forked from one that has sorted.
    """
    _polars.check()
    sorter = _Sorter(arrow_schema, key_names, bounds, settings)
    with closing(sorter):
        rest = sorter.take_in(batches)
        coming = sorter.grouped(rest)
        if sum(rows.nbytes for rows in rest) > _HERE_BYTES or not rest:
            coming = taken_ahead(coming, _CHUNKS_AHEAD, thread="sleeper-sort")
        with closing(coming) as grouped:
            for group, chunks in groupby(grouped, key=itemgetter(0)):
                yield group, (chunk for _, chunk in chunks)


class _Sorter:
    """The runs of one sort."""

    def __init__(
        self,
        schema: pa.Schema,
        key_names: Sequence[str],
        bounds: Sequence[Any],
        settings: SortSettings,
    ) -> None:
        self._schema = schema
        self._key_names = key_names
        self._groups = Groups(bounds, key_names[0], schema.field(key_names[0]).type)
        self._memory_bytes = settings.memory_bytes
        self._spill = SpillFile(settings.temp_folder, schema)
        self._runs: list[Run] = []

    def close(self) -> None:
        """Release memory and disk space."""
        self._runs.clear()
        self._spill.close()

    def take_in(self, batches: Iterable[pa.Table | pa.RecordBatch]) -> list[pa.Table]:
        """Read all rows; return them if they fit in memory, and none if they were spilled."""
        waiting: deque[pa.Table] = deque()
        need = 0
        is_bounded = False
        for batch in batches:
            rows = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
            waiting.append(rows)
            need += self._need(rows)
            if not is_bounded and need > min(_FEW_BYTES, self._memory_bytes * _INTAKE_SHARE):
                is_bounded = True
                self._bound_memory()
            if need > (self._run_limit() if self._runs else self._memory_bytes * _INTAKE_SHARE):
                self._write_runs(waiting)
                need = 0
        if self._runs:
            self._write_runs(waiting)
        return list(waiting)

    def _bound_memory(self) -> None:
        """Use no more memory than this process may use.

        Raises:
            StorageFailed: even the least is too much.
        """
        least = _BESIDE_BYTES + _LEAST_BYTES
        found = check_room("sorting these rows", least, "ingest fewer rows at once")
        if found is not None and found.room_bytes - _BESIDE_BYTES < self._memory_bytes:
            self._memory_bytes = found.room_bytes - _BESIDE_BYTES
            _log.info(
                "rows are sorted in %d MB of memory, as %s allows no more",
                self._memory_bytes >> 20,
                found.name,
            )

    def grouped(self, rest: list[pa.Table]) -> Generator[Grouped, None, None]:
        """Yield chunks in key order, each with the number of its group."""
        if not self._runs:
            rows = self._joined(rest)
            rest.clear()
            for chunk in self._ordered(rows):
                yield from self._groups.parts(chunk)
            return
        for group in range(len(self._groups)):
            runs = [run[group] for run in self._runs if group in run]
            for chunk in self._merged(runs):
                yield group, chunk

    def _write_runs(self, waiting: deque[pa.Table]) -> None:
        """Sort the buffered rows, and write them to disk."""
        while waiting:
            part = [waiting.popleft()]
            need = self._need(part[0])
            while waiting and need + self._need(waiting[0]) <= self._run_limit():
                need += self._need(waiting[0])
                part.append(waiting.popleft())
            rows = self._joined(part)
            part.clear()
            if rows.num_rows:
                self._runs.append(self._write_run(rows))

    def _write_run(self, rows: pa.Table) -> Run:
        """Write rows in key order, in blocks that do not cross a group's bounds."""
        run: Run = {}
        for chunk in self._ordered(rows):
            step = max(1, _BLOCK_BYTES_MAX * chunk.num_rows // max(1, chunk.nbytes))
            for group, part in self._groups.parts(chunk):
                for start in range(0, part.num_rows, step):
                    block = part.slice(start, step)
                    first_key = key_at(block, 0, self._key_names)
                    run.setdefault(group, []).append(self._spill.append(block, first_key))
        return run

    def _run_limit(self) -> int:
        """Small runs are sorted in the processor's caches; but many runs make many small reads."""
        grown = max(_RUN_BYTES_MIN, self._spill.size_bytes // _RUNS_BEFORE_THEY_GROW)
        return min(grown, int(self._memory_bytes * _INTAKE_SHARE))

    def _block_need(self, block: Block) -> int:
        return sorting_bytes(self._schema, block.row_count, block.size_bytes)

    def _need(self, rows: pa.Table) -> int:
        return sorting_bytes(self._schema, rows.num_rows, rows.nbytes)

    def _merged(self, runs: Sequence[Sequence[Block]]) -> Iterator[pa.Table]:
        """Yield the rows of one group in key order, in chunks."""
        limit = int(self._memory_bytes * _GROUP_SHARE)
        if sum(self._block_need(block) for run in runs for block in run) <= limit:
            yield from self._in_order([self._spill.read(run) for run in runs])
            return
        for wanted in plan_sub_ranges(runs, self._block_need, limit):
            if wanted.is_one_key:
                yield from read_one_key(self._spill, runs, wanted, self._key_names)
            else:
                parts = read_sub_range(self._spill, runs, wanted, self._key_names)
                yield from self._in_order(list(parts))

    def _in_order(self, sorted_parts: list[pa.Table]) -> Iterator[pa.Table]:
        """Merge tables that are each in order."""
        rows = self._joined(sorted_parts)
        if len(sorted_parts) > 1:
            sorted_parts.clear()
            yield from self._ordered(rows)
        else:  # the blocks of one run
            yield from (pa.Table.from_batches([block]) for block in rows.to_batches())

    def _ordered(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Yield rows in key order, in chunks."""
        if rows.num_rows:
            ordered = OrderedRows(rows, self._key_names)
            del rows
            yield from ordered.chunks(_CHUNK_BYTES_MAX)

    def _joined(self, tables: Sequence[pa.Table]) -> pa.Table:
        return pa.concat_tables(tables) if tables else self._schema.empty_table()
