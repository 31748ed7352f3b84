"""Sorts rows in bounded memory, divided into groups of keys, before they are written.

Rows are read until their memory is used, sorted, and spilled to local disk as a run. Then each
group is merged from its slices of all runs. A group that does not fit in memory is processed in
ranges of keys. Rows that fit in memory are not spilled.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from sleeper.engine.ahead import taken_ahead
from sleeper.engine.sorting.key_order import Groups, OrderedRows, key_at, sorting_bytes
from sleeper.engine.sorting.spill import Block, SpillFile
from sleeper.engine.sorting.sub_ranges import plan_sub_ranges, read_one_key, read_sub_range
from sleeper.errors import BadRequest
from sleeper.language.value_classes import dataclass

_INTAKE_SHARE = 0.5  # of the memory: for input rows and for sorting them
_GROUP_SHARE = 0.35  # of the memory: for a group, or a range of keys, that is merged
_CHUNK_BYTES_MAX = 8 << 20
_BLOCK_BYTES_MAX = 512 << 10
_RUN_BYTES_MIN = 64 << 20
_RUNS_BEFORE_THEY_GROW = 32
_CHUNKS_AHEAD = 4


_used_in: set[int] = set()
"""Ids of processes that sorted with polars: this one, or those that it was forked from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SortSettings:
    """Limits of a sort.

    Attributes:
        memory_bytes: Maximum memory of the sort: rows, their order, output chunks. Libraries, the
            current input batch and the row group that is written need about 250 MB more. A single
            row, and one block of 512 KiB for each run of a group that is processed in ranges, are
            always in memory.
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
        StorageFull, StorageFailed: the runs cannot be written to the temp folder.
        BadRequest: this process was forked from one that has sorted.
    """
    _check_process()
    sorter = _Sorter(arrow_schema, key_names, bounds, settings)
    with closing(sorter):
        rest = sorter.take_in(batches)
        with closing(
            taken_ahead(sorter.grouped(rest), _CHUNKS_AHEAD, thread="sleeper-sort")
        ) as grouped:
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
        for batch in batches:
            rows = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
            waiting.append(rows)
            need += self._need(rows)
            if need > (self._run_limit() if self._runs else self._memory_bytes * _INTAKE_SHARE):
                self._write_runs(waiting)
                need = 0
        if self._runs:
            self._write_runs(waiting)
        return list(waiting)

    def grouped(self, rest: list[pa.Table]) -> Iterator[Grouped]:
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


def _check_process() -> None:
    """Record that this process sorts. Polars does not survive a fork: a child would hang.

    Raises:
        BadRequest: it was forked from one that had sorted before.
    """
    process = os.getpid()
    if _used_in and process not in _used_in:
        raise BadRequest(
            "this process was forked from one that had already ingested rows, and polars, which "
            "sorts them, does not survive a fork: start processes by spawn or forkserver "
            '(multiprocessing.get_context("spawn")), or ingest in the children only'
        )
    _used_in.add(process)
