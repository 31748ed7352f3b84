"""Sorts and processes rows, writes them as data files, and returns references for leaves.

Ingest, bulk import and tests all use it, so their files have the same layout.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.engine.memory_limit import shortages_as_errors
from sleeper.engine.processing.aggregations import as_counts
from sleeper.engine.processing.process import process
from sleeper.engine.sorting.key_order import Groups
from sleeper.engine.sorting.sort import SortSettings, sort_into_groups
from sleeper.engine.writing.data_file import DataFileWriter
from sleeper.engine.writing.discard import discard_files
from sleeper.engine.writing.write_settings import WriteSettings
from sleeper.model import paths
from sleeper.model.files import FileReference
from sleeper.model.partitions import LeafGroup, Partition
from sleeper.model.processing import Processing
from sleeper.model.ranges import Region, whole_region
from sleeper.model.schema import Schema
from sleeper.ports.objects import Objects

SortedGroup = tuple[LeafGroup, Iterator[pa.Table]]

SHARED_LEAVES_MIN = 4
"""With `by_size`, fewer leaves get a file each."""
SHARED_LEAF_BYTES_MAX = 64 << 10
"""With `by_size`, leaves get a file each if they get more on average, as Arrow counts it."""
SHARED_BYTES_MAX = 8 << 20
"""With `by_size`, leaves get a file each if they get more together. So much is in memory."""
# A leaf's rows begin and end inside a page, and readers of the leaf decode all of it.
_SHARED_PAGE_ROWS_MIN = 64
_JOINED_BYTES = 1 << 20


def sorted_groups(
    batches: Iterable[pa.Table | pa.RecordBatch],
    groups: Sequence[LeafGroup],
    schema: Schema,
    arrow_schema: pa.Schema,
    processing: Processing,
    settings: SortSettings,
    *,
    now_ms: int,
) -> Generator[SortedGroup, None, None]:
    """Yield groups of leaves with their rows in key order, for groups that have rows.

    Standard ingest, the tasks of a bulk import and Spark's writer all call it, once for each new
    row of a table.

    The caller must close the generator, because the sort has a thread and temp files.

    Args:
        batches: Rows of exactly `arrow_schema`, without nulls in key columns. All are read
            before the first group is yielded.
        groups: In key order; together they hold all rows.
        schema: The table's.
        arrow_schema: The same for Arrow.
        processing: Filters, aggregations and function, applied to the sorted rows.
        settings: Memory and folder of the sort.
        now_ms: The present, in milliseconds since 1970, for filters by age.

    Raises: as `sort_into_groups` and `process`.
    """
    bounds = [group.values.min for group in groups[1:]]
    by_range = sorted_ranges(
        batches, bounds, schema, arrow_schema, processing, settings, now_ms=now_ms
    )
    with closing(by_range):
        for place, chunks in by_range:
            yield groups[place], chunks


def sorted_ranges(
    batches: Iterable[pa.Table | pa.RecordBatch],
    bounds: Sequence[Any],
    schema: Schema,
    arrow_schema: pa.Schema,
    processing: Processing,
    settings: SortSettings,
    *,
    now_ms: int,
) -> Generator[tuple[int, Iterator[pa.Table]], None, None]:
    """Yield ranges of the first row key with their rows in key order, as `sorted_groups` does.

    Args: as `sorted_groups`; `bounds` are those between ranges, ascending, and each belongs to the
        range above it. A range is yielded by its number.
    """
    by_range = sort_into_groups(
        batches, arrow_schema, key_names=schema.key_names, bounds=bounds, settings=settings
    )
    with closing(by_range):
        for place, chunks in by_range:
            if processing.is_identity:
                yield place, chunks
                continue
            rows = (batch for chunk in chunks for batch in chunk.to_batches())
            fresh = as_counts(rows, processing)
            kept = process(fresh, processing, schema, now_ms=now_ms)
            yield place, (pa.Table.from_batches([batch], arrow_schema) for batch in kept)


def ranges_by_leaf_group(
    ranges: Iterable[pa.Table],
    groups: Sequence[LeafGroup],
    schema: Schema,
    arrow_schema: pa.Schema,
) -> Iterator[SortedGroup]:
    """Yield groups of leaves with their rows, of rows in key order that are all inside of them.

    A group's rows must be used before the next group is requested.
    """
    first_key = schema.row_key_names[0]
    inside = Groups(
        [group.values.min for group in groups[1:]], first_key, arrow_schema.field(first_key).type
    )
    parts = (part for rows in ranges for part in inside.parts(rows))
    for place, same in groupby(parts, key=itemgetter(0)):
        yield groups[place], (rows for _, rows in same)


class LeafFiles:
    """Writes data files into a table's folder.

    Attributes:
        references: References to the written files, with exact counts.
        rows_written: Rows in all files.
    """

    def __init__(
        self,
        files: Objects,
        schema: Schema,
        arrow_schema: pa.Schema,
        settings: WriteSettings,
        new_id: Callable[[], str],
    ) -> None:
        self._files = files
        self._schema = schema
        self._arrow_schema = arrow_schema
        self._settings = settings
        self._new_id = new_id
        self._started: list[str] = []
        self.references: list[FileReference] = []
        self.rows_written = 0

    def write(self, strategy: str, root_id: str, groups: Iterator[SortedGroup]) -> None:
        """Write all rows, divided into files as a table's property says.

        Args:
            strategy: A value of `sleeper.table.ingest.file.writing.strategy`.
            root_id: The root of the tree.
            groups: Groups of leaves with their rows in key order.
        """
        with shortages_as_errors("reading, sorting or writing rows"):
            if strategy == "one_file_per_leaf":
                self.write_one_file_per_leaf(groups)
            elif strategy == "one_reference_per_leaf":
                self.write_one_file(root_id, groups)
            else:
                self._write_by_size(root_id, groups)

    def write_one_file_per_leaf(self, groups: Iterable[SortedGroup]) -> None:
        """Write a file for every leaf that has rows (rule ING-5).

        The files of a group's leaves are open at the same time, each with at most one row group
        in memory.
        """
        for group, chunks in groups:
            with ExitStack() as open_files:
                writers = _WriterPerLeaf(self, open_files)
                for chunk in chunks:
                    for leaf, rows in rows_by_leaf(chunk, self._schema, group.leaves):
                        writers.of(leaf).add(rows)
                self.references += writers.close()

    def write_one_file(
        self, root_id: str, groups: Iterable[SortedGroup], page_rows: int | None = None
    ) -> None:
        """Write one file under the root, referenced by every leaf that has rows (rule ING-6).

        Args:
            root_id: The root of the tree.
            groups: Groups of leaves with their rows in key order.
            page_rows: Rows in a page, at most; None for as many as in other files.
        """
        counts: dict[str, int] = {}
        rows = joined(self._counted(groups, counts), _JOINED_BYTES)
        first = next(rows, None)
        if first is None:
            return
        with ExitStack() as open_files:
            filename, writer = self.open(root_id, open_files, page_rows)
            for table in chain([first], rows):
                writer.add(table)
            whole = self.close(filename, root_id, writer)
        self.references += [
            replace(whole, partition_id=leaf_id, row_count=count, whole_file=len(counts) == 1)
            for leaf_id, count in counts.items()
        ]

    def _write_by_size(self, root_id: str, groups: Iterator[SortedGroup]) -> None:
        """Write one file if the rows are few for so many leaves, otherwise one for each leaf."""
        waiting: list[SortedGroup] = []
        size = rows = leaves = 0
        for group, chunks in groups:
            here: list[pa.Table] = []
            for chunk in chunks:
                here.append(chunk)
                size += chunk.nbytes
                if size > SHARED_BYTES_MAX:
                    self.write_one_file_per_leaf(
                        chain(waiting, [(group, chain(here, chunks))], groups)
                    )
                    return
            waiting.append((group, iter(here)))
            row_count = sum(chunk.num_rows for chunk in here)
            rows += row_count
            leaves += min(len(group.leaves), row_count)
        if leaves >= SHARED_LEAVES_MIN and size <= leaves * SHARED_LEAF_BYTES_MAX:
            self.write_one_file(root_id, waiting, max(_SHARED_PAGE_ROWS_MIN, rows // leaves // 2))
        else:
            self.write_one_file_per_leaf(waiting)

    def _counted(self, groups: Iterable[SortedGroup], counts: dict[str, int]) -> Iterator[pa.Table]:
        """Yield the rows of all groups; count those of each leaf."""
        for group, chunks in groups:
            for chunk in chunks:
                for leaf, rows in rows_by_leaf(chunk, self._schema, group.leaves):
                    counts[leaf.partition_id] = counts.get(leaf.partition_id, 0) + rows.num_rows
                yield chunk

    def discard(self) -> None:
        """Delete every file that was written or begun, and will not be committed."""
        discard_files(self._started, self._files)

    def open(
        self, partition_id: str, open_files: ExitStack, page_rows: int | None = None
    ) -> tuple[str, DataFileWriter]:
        """Begin a data file of a partition; it becomes visible when `open_files` is closed."""
        settings = self._settings
        if page_rows is not None:
            settings = replace(settings, page_rows=min(page_rows, settings.page_rows))
        filename = paths.data_file(partition_id, self._new_id())
        self._started.append(filename)
        output = open_files.enter_context(self._files.open_output(filename))
        writer = DataFileWriter(output, self._schema, self._arrow_schema, settings)
        return filename, open_files.enter_context(writer)

    def close(self, filename: str, partition_id: str, writer: DataFileWriter) -> FileReference:
        """Finish a data file, and return a reference to the whole file."""
        written = writer.close()
        self.rows_written += written.row_count
        return written.reference(filename, partition_id, self._schema)


class _WriterPerLeaf:
    """The open files of one group of leaves."""

    def __init__(self, leaf_files: LeafFiles, open_files: ExitStack) -> None:
        self._leaf_files = leaf_files
        self._open_files = open_files
        self._writers: dict[str, tuple[str, DataFileWriter]] = {}

    def of(self, leaf: Partition) -> DataFileWriter:
        """Return the writer of a leaf's file, opened for its first rows."""
        if leaf.partition_id not in self._writers:
            opened = self._leaf_files.open(leaf.partition_id, self._open_files)
            self._writers[leaf.partition_id] = opened
        return self._writers[leaf.partition_id][1]

    def close(self) -> list[FileReference]:
        """Finish all files and return their references."""
        return [
            self._leaf_files.close(filename, leaf_id, writer)
            for leaf_id, (filename, writer) in self._writers.items()
        ]


def joined(tables: Iterable[pa.Table], size_bytes: int) -> Iterator[pa.Table]:
    """Yield the same rows in fewer tables, of about so many bytes at least, without empty ones."""
    waiting: list[pa.Table] = []
    size = 0
    for table in tables:
        if table.num_rows:
            waiting.append(table)
            size += table.nbytes
        if size >= size_bytes:
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def rows_by_leaf(
    rows: pa.Table, schema: Schema, leaves: Sequence[Partition]
) -> Iterator[tuple[Partition, pa.Table]]:
    """Yield each leaf that has rows with its rows, in their order.

    `leaves` are the leaves of one group, which contain all of `rows`.
    """
    if len(leaves) == 1:
        if rows.num_rows:
            yield leaves[0], rows
        return
    for leaf in leaves:
        inside = rows_in_region(rows, schema, leaf.region)
        if inside.num_rows:
            yield leaf, inside


def rows_in_region(rows: pa.Table, schema: Schema, region: Region) -> pa.Table:
    """Return the rows whose row keys are inside `region`, in their order."""
    everything = whole_region(schema)
    for field, wanted, whole in zip(schema.row_keys, region.ranges, everything.ranges, strict=True):
        kind = rows.schema.field(field.name).type
        if wanted.min != whole.min:
            low = pa.scalar(wanted.min, kind)
            rows = rows.filter(pc.greater_equal(rows[field.name], low))
        if wanted.max is not None:
            rows = rows.filter(pc.less(rows[field.name], pa.scalar(wanted.max, kind)))
    return rows
