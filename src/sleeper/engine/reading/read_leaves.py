"""Reads the rows of leaves from their files, for queries, Spark tasks and exports.

Words: a group is leaves that are read as one stream, because their rows interleave; a window is a
range of the first row key that is read before the next one.

1. groups that follow one another and have the same files are joined, unless a function of the table
   needs each by itself (`_streams`)
2. the regions of all leaves of a group are joined for each file, and footers are checked
3. if the caller takes few rows, the pages of the first ones are a window of their own
   (`_first_rows_first`)
4. a reader is chosen: `few_rows` if the pages have few rows; `file_rows` for one file, or if any
   order will do; else `merged_scan`, window by window, whose pages `verified_pages` checks before
5. rows are processed in key order, and the requested columns are returned (`read_leaves`)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sleeper.engine.arrow_schema import fields_in_files, shown_schema, to_arrow
from sleeper.lookup.columns import BoundColumn
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet_index import ParquetIndex
from sleeper.lookup.reader import LookupReader
from sleeper.model.keys import key_type, smallest_value
from sleeper.model.object_stores import ObjectStoreSettings
from sleeper.model.processing import Processing
from sleeper.model.queries import LeafQuery
from sleeper.model.ranges import Range, Region, whole_region
from sleeper.model.schema import Schema
from sleeper.ports.objects import Objects

if TYPE_CHECKING:
    from sleeper.engine.reading import merged_scan, verified_pages
    from sleeper.engine.reading.file_rows import FileRows
    from sleeper.engine.reading.left_out_keys import LeftOutKeys
    from sleeper.ports.read_cache import ReadCache
    from sleeper.state.table_state import TableState

_PARTS_AT_ONCE = 4
"""Parts of a scan that are read in parallel: fewer in a folder if there are fewer processors."""


_GONE_MAX: Final = 100
"""So many files that the table no longer references may stay open, and as many as it has."""


@dataclass(frozen=True)
class TableReader:
    """The readers of a table, which all reads share: its files, schema and processing.

    Attributes:
        files: The table's folder.
        schema: The table's schema.
        arrow_schema: The table's Arrow schema, as in data files.
        shown_schema: The Arrow schema of rows as they are returned: the order of `columns`.
        lookup: Finds exact keys, and checks footers; caches page indexes.
        processing: The table's filters, aggregations and function.
        temp_folder: Where merges of very many files spill; None for the system's temp folder.
        stores: How DataFusion connects to buckets.
    """

    files: Objects
    schema: Schema
    arrow_schema: pa.Schema
    shown_schema: pa.Schema
    lookup: LookupReader
    processing: Processing
    temp_folder: Path | None
    stores: ObjectStoreSettings | None

    @cached_property
    def file_rows(self) -> FileRows:
        """Reads rows of single files."""
        remote = self.files.is_remote
        threads = _PARTS_AT_ONCE if remote else min(_PARTS_AT_ONCE, os.cpu_count() or 1)
        from sleeper.engine.reading.file_rows import FileRows

        return FileRows(self.lookup, self.schema, self.arrow_schema, threads=threads)

    @cached_property
    def scanner(self) -> merged_scan.Scanner:
        """Reads ranges; reuses a DataFusion context."""
        from sleeper.engine.reading import merged_scan

        return merged_scan.Scanner(
            self.schema,
            temp_folder=self.temp_folder,
            stores=self.stores,
            at_once=self.lookup.at_once,
        )

    @cached_property
    def pages(self) -> verified_pages.VerifiedPages:
        """Records which pages were compared with their checksums."""
        from sleeper.engine.reading import verified_pages

        return verified_pages.VerifiedPages(self.lookup, self.arrow_schema)

    def keys_out(self, key_files: Mapping[str, tuple[str, ...]]) -> dict[str, LeftOutKeys]:
        """Return what is left out of files, given by file the files of the keys."""
        from sleeper.engine.reading.left_out_keys import LeftOutKeys

        known = {
            names: LeftOutKeys(self.lookup, self.schema, self.arrow_schema, names)
            for names in {*key_files.values()}
        }
        return {name: known[names] for name, names in key_files.items()}

    def forget_gone(self, state: TableState) -> None:
        """Forget files that the newest state does not need, once they are most of those known.

        So memory depends on the files of the table, and not on the transactions that were read. A
        reader of an older version opens them again.
        """
        files = state.files
        if self.lookup.cached_count <= 2 * files.reference_count + _GONE_MAX:
            return
        key_files = state.key_files()
        gone = self.lookup.forget_unless(
            lambda name: name in key_files or bool(files.references_to(name))
        )
        if "scanner" in vars(self):
            self.scanner.forget([self.files.url(name) for name in gone])
        if "pages" in vars(self):
            self.pages.forget(gone)

    def slices(
        self, regions_by_file: Mapping[str, tuple[Region, ...]], keys_out: Mapping[str, LeftOutKeys]
    ) -> list[merged_scan.FileSlice]:
        """Return what `scanner` reads: for each file its regions, all rows if there are none.

        Raises:
            DataDamaged: a file is missing or damaged.
            StorageFailed: a file cannot be read.
        """
        from sleeper.engine.reading import merged_scan

        names = [*regions_by_file]
        columns: list[tuple[BoundColumn, ...] | None] = [None] * len(names)
        if self.schema.last_id:
            columns = self.lookup.at_once(
                [partial(self.lookup.inspect, name, self._changed_columns) for name in names]
            )
        return [
            merged_scan.FileSlice(
                self.files.url(name), regions_by_file[name], own, keys_out=keys_out.get(name)
            )
            for name, own in zip(names, columns, strict=True)
        ]

    def _changed_columns(
        self, index: ParquetIndex, _: ReadRanges
    ) -> tuple[BoundColumn, ...] | None:
        found = tuple(index.columns(self.arrow_schema).values())
        as_stored = all(each.is_as_stored and each.column.name == each.name for each in found)
        return None if as_stored else found


def open_table_reader(
    files: Objects,
    schema: Schema,
    processing: Processing,
    *,
    temp_folder: Path | None,
    stores: ObjectStoreSettings | None,
    read_cache: ReadCache | None = None,
) -> TableReader:
    """Return the readers of a table. Nothing is read yet; a process needs only one.

    Args:
        files: The table's folder.
        schema: The table's schema.
        processing: The table's filters, aggregations and function.
        temp_folder: Where merges of very many files spill; None for the system's temp folder.
        stores: How DataFusion connects to buckets.
        read_cache: Keeps what look-ups and small ranges read; None if nothing does.
    """
    arrow_schema = to_arrow(schema)
    lookup = LookupReader(
        files,
        ordered_by=(arrow_schema, schema.key_names),
        fields=fields_in_files(schema),
        read_cache=read_cache,
    )
    return TableReader(
        files=files,
        schema=schema,
        arrow_schema=arrow_schema,
        shown_schema=shown_schema(schema, arrow_schema),
        lookup=lookup,
        processing=processing,
        temp_folder=temp_folder,
        stores=stores,
    )


def read_leaves(
    reading: TableReader,
    groups: Sequence[Sequence[LeafQuery]],
    columns: Sequence[str],
    *,
    now_ms: int,
    rows_max: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the requested rows of groups of leaves, in key order, processed.

    Args:
        reading: The table.
        groups: Groups of `plan_leaf_queries`: leaves with their files and regions.
        columns: The columns to return, in this order.
        now_ms: The current time in milliseconds since 1970, for filters by age.
        rows_max: How many rows the caller takes, if it will stop there: the pages of so many are
            read first. All rows are yielded to whoever goes on.

    Raises:
        DataDamaged: a file of the table is missing or wrong; raised while rows are read.
        TableFunctionFailed: the table's function is missing, raised, or broke its contract.
    """
    for in_order in _streams(reading, groups, columns, rows_max):
        from sleeper.engine.processing import aggregations, process

        rows = process.process(
            in_order,
            reading.processing,
            reading.schema,
            now_ms=now_ms,
            overflow=aggregations.overflow_of_queries(reading.processing),
        )
        for batch in rows:
            yield batch.select(columns)


def read_leaves_unordered(
    reading: TableReader,
    groups: Sequence[Sequence[LeafQuery]],
    columns: Sequence[str],
    *,
    now_ms: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the requested rows of groups of leaves, in any order, processed.

    Aggregations and functions need rows in key order, so their tables are read as by `read_leaves`.

    Args and Raises: as `read_leaves`; the groups are those of `plan_leaf_queries`.
    """
    processing = reading.processing
    if processing.aggregations or processing.function is not None:
        yield from read_leaves(reading, groups, columns, now_ms=now_ms)
        return
    every_leaf = [leaf for group in groups for leaf in group]
    files = _FilesToRead.of(reading, every_leaf)
    needed = columns_to_read(reading, columns, keys=False)
    from sleeper.engine.processing import process

    rows = process.process(
        _rows_of_files(reading, files, needed), processing, reading.schema, now_ms=now_ms
    )
    for batch in rows:
        yield batch.select(columns)


def check_whole_files(
    reading: TableReader, filenames: Sequence[str], columns: Sequence[str]
) -> int:
    """Compare all pages of some columns of files with their checksums, once in a process.

    Returns:
        How many rows the files have.

    Raises:
        DataDamaged: a file is missing, or a page is damaged.
        StorageFailed: a file cannot be read.
    """
    every_row = dict[str, tuple[Region, ...]].fromkeys(filenames, ())
    reading.lookup.check(every_row)
    reading.pages.check(_unchecked(reading, every_row, [*columns]))
    return sum(reading.lookup.inspect(name, _rows_in) for name in filenames)


def _rows_in(index: ParquetIndex, _: ReadRanges) -> int:
    return sum(index.footer.row_counts)


def count_rows_of_files(
    reading: TableReader,
    regions_by_file: Mapping[str, tuple[Region, ...]],
    key_files: Mapping[str, tuple[str, ...]],
) -> int:
    """Return how many rows of files are inside their regions; processing is not applied.

    Args:
        reading: The table.
        regions_by_file: The files, and their regions.
        key_files: By file, the files whose keys do not count.

    Raises:
        DataDamaged: a file is missing or damaged.
        StorageFailed: a file cannot be read.
    """
    left_out = list[str]()
    files = _FilesToRead(regions_by_file, reading.keys_out(key_files))
    count = reading.file_rows.count_files(files.regions, left_out, files.keys_out)
    key = [reading.schema.names[0]]
    for name in left_out:
        rows = _merged(reading, files.only(name), key)
        count += sum(batch.num_rows for batch in rows)
    return count


def columns_to_read(
    reading: TableReader, columns: Sequence[str], *, keys: bool = True
) -> list[str]:
    """Return the columns that must be read to return `columns`, in the order of files.

    Args:
        reading: The table.
        columns: The columns to return.
        keys: Whether rows of several files are merged, which needs the keys in any case.
    """
    processing, schema = reading.processing, reading.schema
    if processing.needs_all_fields:
        return [*schema.names]
    needed = {*columns, *processing.needed_fields}
    if keys or processing.aggregations:
        needed.update(schema.key_names)
    return [name for name in schema.names if name in needed]


def _streams(
    reading: TableReader,
    groups: Sequence[Sequence[LeafQuery]],
    columns: Sequence[str],
    rows_max: int | None,
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Yield the rows of groups in key order, as streams to process one after the other.

    Few rows are read from all groups at once, and many from groups that follow one another and
    have the same files. A table's function gets each group in a stream of its own. Where few rows
    are taken, no group is opened before the rows of those before it are taken.
    """
    from sleeper.engine.reading import few_rows

    is_few = rows_max is not None and rows_max <= few_rows.FEW_ROWS
    needed = columns_to_read(reading, columns)
    joined = groups
    if reading.processing.function is None:
        joined = [[*chain(*run)] for _, run in groupby(groups, _filenames)]
        every_leaf = [*chain(*joined)]
        is_small = len(joined) > 1 and not is_few
        if is_small and len(_filenames(every_leaf)) <= few_rows.files_max(reading.lookup):
            few = _few_rows(reading, _FilesToRead.of(reading, every_leaf), needed)
            if few is not None:
                yield iter(few.to_batches())
                return
    for group in joined:
        files = _FilesToRead.of(reading, group)
        if rows_max is None or not is_few:
            yield _rows_in_order(reading, files, columns)
        else:
            yield _first_rows_first(reading, files, columns, rows_max)


def _first_rows_first(
    reading: TableReader, files: _FilesToRead, columns: Sequence[str], rows_max: int
) -> Iterator[pa.RecordBatch]:
    """Yield rows of files in key order; the pages of the first rows are read by themselves."""
    schema = reading.schema
    reading.lookup.check(files.regions)
    from sleeper.engine.reading import few_rows

    border = few_rows.border_after(
        reading.lookup, files.regions, max(1, rows_max), schema, reading.arrow_schema
    )
    least = smallest_value(key_type(schema.row_keys[0]))
    windows = [Range(least, None)]
    if border is not None and border != least:
        windows = [Range(least, border), Range(border, None)]
    for window in windows:
        yield from _rows_in_order(reading, files.inside(window, schema), columns)


def _rows_in_order(
    reading: TableReader, files: _FilesToRead, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield rows of files in key order, with the columns that processing needs."""
    needed = columns_to_read(reading, columns)
    few = _few_rows(reading, files, needed)
    if few is not None:
        yield from few.to_batches()
    elif len(files.regions) == 1:
        needed = columns_to_read(reading, columns, keys=False)
        yield from _rows_of_files(reading, files, needed)
    else:
        yield from _merged(reading, files, needed)


def _few_rows(reading: TableReader, files: _FilesToRead, columns: list[str]) -> pa.Table | None:
    """Return the rows of files in key order, after a check of the files; None if they are many."""
    reading.lookup.check(files.regions)
    from sleeper.engine.reading import few_rows

    return few_rows.read_few_rows(
        reading.lookup,
        files.regions,
        columns,
        reading.schema,
        reading.arrow_schema,
        files.keys_out,
    )


def _rows_of_files(
    reading: TableReader, files: _FilesToRead, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """Yield rows of files, each file in its order; those that our reader cannot read come last."""
    left_out = list[str]()
    yield from reading.file_rows.read_files(files.regions, columns, left_out, files.keys_out)
    for name in left_out:
        yield from _merged(reading, files.only(name), columns)


def _merged(
    reading: TableReader, files: _FilesToRead, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files in key order; pages are checked before they are read."""
    reading.lookup.check(files.regions)
    unchecked = _unchecked(reading, files.regions, columns)
    from sleeper.engine.reading import verified_pages

    windows = verified_pages.read_windows(unchecked, reading.schema) if unchecked else ()
    if len(windows) < 2:
        reading.pages.check(unchecked)
        slices = reading.slices(files.regions, files.keys_out)
        yield from reading.scanner.merge(slices, columns)
        return
    for window in windows:
        cut = files.inside(window, reading.schema)
        reading.pages.check(_unchecked(reading, cut.regions, columns))
        slices = reading.slices(cut.regions, cut.keys_out)
        rows: Any = reading.scanner.merge(slices, columns)
        with closing(rows):
            yield from rows


def _unchecked(
    reading: TableReader, regions_by_file: Mapping[str, tuple[Region, ...]], columns: list[str]
) -> list[verified_pages.UncheckedPages]:
    found = reading.lookup.at_once(
        [
            partial(reading.pages.unchecked, name, regions, columns)
            for name, regions in regions_by_file.items()
        ]
    )
    return [each for each in found if each is not None]


@dataclass(frozen=True, slots=True)
class _FilesToRead:
    """Files to read, and which rows of them.

    Attributes:
        regions: The requested regions of each file, disjoint; no regions mean all rows.
        keys_out: By file, the keys whose rows are left out of it; only of files that have some.
    """

    regions: Mapping[str, tuple[Region, ...]]
    keys_out: Mapping[str, LeftOutKeys]

    @classmethod
    def of(cls, reading: TableReader, group: Sequence[LeafQuery]) -> _FilesToRead:
        """Join what is asked of leaves: they may share files, each with its own regions."""
        whole = whole_region(reading.schema)
        by_file: dict[str, list[Region]] = {}
        key_files: dict[str, dict[str, None]] = {}
        for leaf in group:
            for filename in leaf.filenames:
                asked = leaf.regions_of(filename)
                if asked or not leaf.hidden:
                    by_file.setdefault(filename, []).extend(asked)
            for filename, names in leaf.key_files.items():
                key_files.setdefault(filename, {}).update(dict.fromkeys(names))
        from sleeper.engine.reading.regions import disjoint_regions

        joined = {name: disjoint_regions(asked) for name, asked in by_file.items()}
        regions = {name: () if whole in asked else asked for name, asked in joined.items()}
        keys_out = reading.keys_out({name: tuple(keys) for name, keys in key_files.items()})
        return cls(regions, keys_out)

    def only(self, name: str) -> _FilesToRead:
        """Return one of the files."""
        return replace(self, regions={name: self.regions[name]})

    def inside(self, window: Range, schema: Schema) -> _FilesToRead:
        """Return the rows in a range of the first row key."""
        from sleeper.engine.reading import verified_pages

        cut = {
            name: inside
            for name, regions in self.regions.items()
            if (inside := verified_pages.cut_regions(regions, window, schema))
        }
        return replace(self, regions=cut)


def _filenames(leaves: Sequence[LeafQuery]) -> set[str]:
    return {name for leaf in leaves for name in leaf.filenames}
