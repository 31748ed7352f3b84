"""Checks one data file against everything that its references, its table and itself say of it.

Words: a fault is one sentence about a file; a finding is a fault with its kind and what to do next;
a sampled row is one whose key the sketch says.

1. is the file there, and as long as its references say
2. its end is read anew: row count, columns, seal (`FileChecker._look`); `quick` ends here
3. every page is compared with its checksum
4. its sketch is read
5. its keys are read, batch by batch (`KeyChecks`): order, bounds of pages, rows in each region
6. first and last key and the sketch are compared with the keys, if these are in order
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.engine.arrow_schema import fields_in_files
from sleeper.engine.reading.page_checksums import verify_pages
from sleeper.engine.sketches.sketch import Distribution, Sketches
from sleeper.engine.sketches.stored_sketch import read_stored_sketch
from sleeper.errors import DataDamaged, FormatTooNew, ObjectNotFound
from sleeper.lookup.columns import BoundColumn, Ints, comparable_array
from sleeper.lookup.key_search import KeyRows, read_rows
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet.page_index import BOUND_WIDTH_MAX, Bounds, PageBounds
from sleeper.lookup.parquet_index import ParquetIndex
from sleeper.lookup.reader import LookupReader
from sleeper.lookup.sorted_rows import first_out_of_order
from sleeper.model.files import FileReference, key_to_text
from sleeper.model.keys import key_type, smallest_value
from sleeper.model.ranges import Region
from sleeper.model.schema import Schema
from sleeper.model.schema_changes import with_ids
from sleeper.ports.objects import Objects
from sleeper.state.findings import RESTORE_FILE, RESTORE_STATE, Finding, FindingKind

# ---------------------------------------------------------------- key checks
#
# Checks the keys of one data file, batch by batch, against what is said about them.
#
# All comparisons are of whole columns. Memory is one batch of keys, and the sketched ones.

Faults = dict[FindingKind, str]
"""The first fault of each kind, as a sentence about the file."""


@dataclass(frozen=True, slots=True)
class KeyBatch:
    """Keys of adjacent rows of one row group.

    Attributes:
        group: The row group.
        first_row: The number of the first row in it.
        keys: Row keys, then sort keys.
    """

    group: int
    first_row: int
    keys: pa.RecordBatch


class KeyChecks:
    """Checks batches of keys that follow one another.

    Args:
        schema: The table's schema.
        regions: Regions whose rows are counted.
        sampled_rows: Numbers of the rows whose row keys are kept, ascending.

    Attributes:
        sampled_rows: As given.
        row_count: How many rows were added.
        counts: How many of them are inside each region.
        faults: What was found.
        first, last: The first and the last batch of one row; None before the first.
    """

    def __init__(self, schema: Schema, regions: Sequence[Region], sampled_rows: Ints) -> None:
        self._schema = schema
        self._regions = regions
        self.sampled_rows = sampled_rows
        self._samples: list[pa.RecordBatch] = []
        self.row_count = 0
        self.counts = [0] * len(regions)
        self.faults: Faults = {}
        self.first: pa.RecordBatch | None = None
        self.last: pa.RecordBatch | None = None

    def add(self, batch: KeyBatch, index: ParquetIndex, key_leaf: int | None) -> None:
        """Check more rows.

        Args:
            batch: Their keys.
            index: The file's, which has loaded bounds and places of the first row key's pages.
            key_leaf: The leaf of the first row key; None if its bounds cannot be read.
        """
        keys = batch.keys
        if not keys.num_rows:
            return
        if any(column.null_count for column in keys.columns):
            self.faults.setdefault(FindingKind.ROW_ORDER, "some of its keys are null")
            self.row_count += keys.num_rows
            return
        self._check_order(keys)
        self._count(keys)
        if key_leaf is not None:
            self._check_bounds(batch, index, key_leaf)
        self._keep_samples(keys)
        if self.first is None:
            self.first = _row(keys, 0)
        self.last = _row(keys, keys.num_rows - 1)
        self.row_count += keys.num_rows

    def samples(self) -> pa.Table | None:
        """Return the row keys of the sampled rows; None if there are none."""
        return pa.Table.from_batches(self._samples) if self._samples else None

    def _check_order(self, keys: pa.RecordBatch) -> None:
        together = keys if self.last is None else pa.concat_batches([self.last, keys])
        place = first_out_of_order(together)
        if place is not None:
            row = self.row_count + place - (self.last is not None)
            self.faults.setdefault(
                FindingKind.ROW_ORDER,
                f"its rows are not in key order: row {row:,} is less than the one before",
            )

    def _count(self, keys: pa.RecordBatch) -> None:
        ends = pc.min_max(keys.column(0)).as_py()
        for number, region in enumerate(self._regions):
            side = region.ranges[0]
            if side.min <= ends["max"] and (side.max is None or ends["min"] < side.max):
                self.counts[number] += _count_inside(keys, region, self._schema)

    def _check_bounds(self, batch: KeyBatch, index: ParquetIndex, key_leaf: int) -> None:
        """Compare the first row key with the bounds of its row group and of its pages."""
        first_rows = index.locations(batch.group, key_leaf).first_rows
        end = batch.first_row + batch.keys.num_rows
        low = int(np.searchsorted(first_rows, batch.first_row, "right")) - 1
        high = int(np.searchsorted(first_rows, end, "left"))
        starts = np.maximum(first_rows[low:high], batch.first_row) - batch.first_row
        ends = np.minimum(first_rows[low + 1 : high + 1], end) - batch.first_row - 1
        pages = index.bounds(batch.group, key_leaf)
        of_group = index.group_bounds(key_leaf)
        whole = PageBounds(
            of_group.minimums[batch.group : batch.group + 1],
            of_group.maximums[batch.group : batch.group + 1],
        )
        here = PageBounds(pages.minimums[low:high], pages.maximums[low:high])
        column = comparable_array(batch.keys.column(0))
        outer = np.array([0], np.int64), np.array([len(column) - 1], np.int64)
        for bounds, (first, last), name in (
            (here, (starts, ends), "the page index"),
            (whole, outer, "the footer"),
        ):
            if (bounds.minimums > _taken(column, first, bounds.minimums)).any() or (
                bounds.maximums < _taken(column, last, bounds.maximums)
            ).any():
                self.faults.setdefault(
                    FindingKind.PAGE_INDEX,
                    f"{name} says other limits of the keys of row group {batch.group} than they "
                    "have, so look-ups may miss rows",
                )

    def _keep_samples(self, keys: pa.RecordBatch) -> None:
        first = self.row_count
        low, high = np.searchsorted(self.sampled_rows, [first, first + keys.num_rows])
        if low < high:
            places = pa.array(self.sampled_rows[low:high] - first)
            self._samples.append(keys.select(self._schema.row_key_names).take(places))


def _row(keys: pa.RecordBatch, number: int) -> pa.RecordBatch:
    """Return one row as a copy, so that the batch can be released."""
    return keys.take(pa.array([number], pa.int64()))


def _taken(column: pa.Array, places: Ints, bounds: Bounds) -> Any:
    """Return values at some places in the form of bounds, truncated as these are."""
    values = column.take(pa.array(places))
    if bounds.dtype.kind != "S":
        return values.cast(pa.int64()).to_numpy()
    width = min(BOUND_WIDTH_MAX, bounds.dtype.itemsize)
    # A longer value has a bound that is shorter, and that is compared with as many bytes.
    return np.array(pc.binary_slice(values, 0, width).to_pylist(), dtype=f"S{width}")


def _count_inside(keys: pa.RecordBatch, region: Region, schema: Schema) -> int:
    conditions = []
    for number, (field, side) in enumerate(zip(schema.row_keys, region.ranges, strict=True)):
        column = keys.column(number)
        if side.min != smallest_value(key_type(field)):
            conditions.append(pc.greater_equal(column, pa.scalar(side.min, column.type)))
        if side.max is not None:
            conditions.append(pc.less(column, pa.scalar(side.max, column.type)))
    if not conditions:
        return int(keys.num_rows)
    return int(pc.sum(reduce(pc.and_, conditions)).as_py())


# ---------------------------------------------------------------- sketch checks
#
# Compares the sketch of a data file with its keys.

_SAMPLES = 1024
ERROR_MAX = 0.02
"""How far, as a part of all rows, a quantile may be from where the sketch says it is. Sketches that
are written now are exact at the rows that they hold; those of the first version are not."""


def sampled_rows(sketch: Sketches | None, row_count: int) -> Ints:
    """Return the numbers of the rows whose keys are compared with a sketch."""
    if not row_count or sketch is None or not sketch.row_count:
        return np.empty(0, np.int64)
    stride = max(1, row_count // _SAMPLES)
    weights = sketch.distributions[0].rows_until
    if sketch.row_count == row_count and len(weights) > 1:
        stride = int(weights[0])  # every row that it holds
    rows = np.arange(0, row_count, stride, dtype=np.int64)
    return rows if rows[-1] == row_count - 1 else np.append(rows, row_count - 1)


def sketch_fault(sketch: Sketches, keys: KeyChecks, schema: Schema) -> str | None:
    """Return what is wrong with a sketch; None if nothing is.

    Args:
        sketch: The sketch.
        keys: The keys of its file, in order, with the rows of `sampled_rows`.
        schema: The table's schema.
    """
    if sketch.row_count != keys.row_count:
        return f"it is of {sketch.row_count:,} rows, and the file has {keys.row_count:,}"
    samples = keys.samples()
    if samples is None:
        return None
    fields = zip(schema.row_key_names, sketch.distributions, strict=True)
    exact = [_are_values(samples.column(name), told) for name, told in fields]
    if all(exact):
        return None
    if exact[0]:
        return f"its values of {schema.row_key_names[exact.index(False)]!r} are not those of rows"
    error = _error(samples.column(0), sketch.distributions[0], keys.sampled_rows, keys.row_count)
    if error <= ERROR_MAX:
        return None
    return (
        f"a quantile of {schema.row_key_names[0]!r} is wrong by {error:.0%} of the rows, and may "
        f"be by {ERROR_MAX:.0%}"
    )


def _in_form_of_sketch(column: pa.ChunkedArray) -> pa.Array:
    values = column.combine_chunks()
    return comparable_array(values.chunk(0) if isinstance(values, pa.ChunkedArray) else values)


def _are_values(column: pa.ChunkedArray, told: Distribution) -> bool:
    """Return whether a sketch holds exactly some values."""
    values = _in_form_of_sketch(column)
    if len(values) != len(told.values):
        return False
    ordered: list[Any] = values.take(pc.array_sort_indices(values)).to_pylist()
    return ordered == [*told.values]


def _error(column: pa.ChunkedArray, told: Distribution, rows: Ints, row_count: int) -> float:
    """Return how far the rows of some keys are from where a sketch says they are, at most."""
    error = 0
    values: list[Any] = _in_form_of_sketch(column).to_pylist()
    for value, row in zip(values, rows.tolist(), strict=True):
        below = bisect_left(told.values, value)
        until = bisect_right(told.values, value)
        rows_below = told.rows_until[below - 1] if below else 0
        rows_until = told.rows_until[until - 1] if until else 0
        error = max(error, rows_below - row, row + 1 - rows_until - _weight(told, until))
    return error / row_count


def _weight(told: Distribution, place: int) -> int:
    """Return how many rows the item at a place stands for: those between it and the one before."""
    if place >= len(told.rows_until):
        return 0
    return told.rows_until[place] - (told.rows_until[place - 1] if place else 0)


COMPACT = "Compact the table with --all-files, which writes the file anew."


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencedFile:
    """A data file with what a state says of it.

    Attributes:
        filename: The file.
        references: The references to it; none if only its keys are left out of others. Then its
            pages are checked, and nothing else: it may have row keys alone.
        regions: The region of each reference's partition.
    """

    filename: str
    references: tuple[FileReference, ...]
    regions: tuple[Region, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFile:
    """The result of the checks of one file.

    Attributes:
        filename: The file.
        row_count: Its rows by its footer; 0 if that cannot be read.
        size_bytes: Its length; 0 if it is missing.
        findings: What is wrong.
        is_missing: Whether it does not exist.
    """

    filename: str
    row_count: int
    size_bytes: int
    findings: tuple[Finding, ...]
    is_missing: bool = False


@dataclass(frozen=True, slots=True)
class _FileEnd:
    """What the end of a file says: its rows, and whether our writer sealed it; what is wrong."""

    row_count: int
    is_sealed: bool
    findings: tuple[Finding, ...]


class FileChecker:
    """Checks data files of one table. Safe for threads.

    Each file's end is read, then all of its pages, then its keys and its sketch. Memory is, for
    each thread, the file's footer and page indexes, and the pages of about 8 MiB with their values.

    Args:
        files: The table's folder.
        schema: The table's schema.
        arrow_schema: The table's Arrow schema.
        quick: Whether only the ends of files are read: no page, no key and no sketch.
        schemas: All schemas that the table had, by number.
    """

    def __init__(
        self,
        files: Objects,
        schema: Schema,
        arrow_schema: pa.Schema,
        *,
        quick: bool,
        schemas: Mapping[int, Schema] = MappingProxyType({}),
    ) -> None:
        self._files = files
        self._schema = schema
        self._arrow_schema = arrow_schema
        self._quick = quick
        # Not the table's own reader, whose caches would be filled with all files.
        self._lookup = LookupReader(files, cache_bytes=1 << 20, fields=fields_in_files(schema))
        self._ids = {
            number: {field.id for field in with_ids(each).fields}
            for number, each in schemas.items()
        }

    def check(self, file: ReferencedFile) -> CheckedFile:
        """Check a file.

        Raises:
            StorageFailed: the storage did not answer.
        """
        name = file.filename
        try:
            size = self._files.size(name)
        except ObjectNotFound:
            found = _finding(FindingKind.FILE_MISSING, file, "does not exist", RESTORE_FILE)
            return CheckedFile(
                filename=name, row_count=0, size_bytes=0, findings=(found,), is_missing=True
            )
        findings = [*_size_faults(file, size)]
        rows = 0
        try:
            if not file.references:
                rows = verify_pages(self._lookup, name, every_sum=True).row_count
                return CheckedFile(filename=name, row_count=rows, size_bytes=size, findings=())
            end = self._lookup.inspect(name, partial(self._look, file), anew=True)
            rows = end.row_count
            findings += end.findings
            fits = not any(each.kind is FindingKind.SCHEMA for each in end.findings)
            if not self._quick and fits:
                findings += self._check_content(file, size, end)
        except DataDamaged as damage:
            findings.append(_damaged(file, damage))
        return CheckedFile(filename=name, row_count=rows, size_bytes=size, findings=(*findings,))

    def _look(self, file: ReferencedFile, index: ParquetIndex, read: ReadRanges) -> _FileEnd:
        """Check what the end of the file says."""
        findings = [*_count_faults(file, index.footer.row_count)]
        try:
            bound = index.columns(self._arrow_schema)
            self._check_has_its_own(file, bound)
        except ValueError as error:
            what = f"does not have the table's columns: {error}"
            findings.append(_finding(FindingKind.SCHEMA, file, what, RESTORE_FILE))
        if not index.is_sealed and file.references[0].schema_id is not None:
            what = "has lost the seal that our writer gave it"
            findings.append(_finding(FindingKind.FILE_DAMAGED, file, what, RESTORE_FILE))
        return _FileEnd(index.footer.row_count, index.is_sealed, tuple(findings))

    def _check_has_its_own(self, file: ReferencedFile, bound: Mapping[str, BoundColumn]) -> None:
        """Raise ValueError if a file lacks a column that the schema has by which it was written."""
        own = self._ids.get(file.references[0].schema_number, set())
        for field in self._schema.fields:
            if field.id in own and bound[field.name].default is not None:
                raise ValueError(f"it has no column {field.name!r}, with which it was written")

    def _check_content(self, file: ReferencedFile, size: int, end: _FileEnd) -> Iterator[Finding]:
        """Check pages, keys and sketch. Keys are read only if no page is damaged."""
        verify_pages(self._lookup, file.filename, every_sum=True)
        stored: Sketches | None = None
        try:
            reference = replace(file.references[0], size_bytes=size)
            stored = read_stored_sketch(self._files, reference, self._schema)
            if stored is None and end.is_sealed and end.row_count:
                what = "has no sketch, or the place that says where it is is damaged"
                yield _finding(FindingKind.SKETCH, file, what, COMPACT)
        except (DataDamaged, FormatTooNew) as error:
            yield _finding(FindingKind.SKETCH, file, f"has a sketch unlike it: {error}", COMPACT)
        keys = self._lookup.inspect(file.filename, partial(self._read_keys, file, stored))
        for kind, what in keys.faults.items():
            step = COMPACT if kind is FindingKind.PAGE_INDEX else RESTORE_FILE
            yield _finding(kind, file, what, step)
        if FindingKind.ROW_ORDER in keys.faults:
            return
        yield from _place_faults(file, keys)
        yield from self._limit_faults(file, keys)
        fault = None if stored is None else sketch_fault(stored, keys, self._schema)
        if fault is not None:
            yield _finding(FindingKind.SKETCH, file, f"has a wrong sketch: {fault}", COMPACT)

    def _read_keys(
        self,
        file: ReferencedFile,
        stored: Sketches | None,
        index: ParquetIndex,
        read: ReadRanges,
    ) -> KeyChecks:
        rows = index.footer.row_count
        checks = KeyChecks(self._schema, file.regions, sampled_rows(stored, rows))
        columns = [index.columns(self._arrow_schema)[name] for name in self._schema.key_names]
        leaves = tuple(leaf for column in columns for leaf in column.column.leaves)
        key_leaves = tuple(column.leaf for column in columns)
        first: int | None = key_leaves[0]
        for group, count in enumerate(index.footer.row_counts):
            if not count:
                continue
            try:
                index.load([group], leaves, (first,) if first is not None else (), read)
                index.group_bounds(key_leaves[0])
            except ValueError as error:
                checks.faults.setdefault(FindingKind.PAGE_INDEX, str(error))
                first = None
                index.load([group], leaves, (), read)
            start = np.zeros(1, np.int64)
            whole = [KeyRows(group, start, start + count, start)]
            for part, arrays in read_rows(index, whole, columns, read):
                keys = pa.RecordBatch.from_arrays(arrays, names=[*self._schema.key_names])
                checks.add(KeyBatch(group, int(part.starts[0]), keys), index, first)
            index.load_filters([group], key_leaves, read)
        if FindingKind.ROW_ORDER in checks.faults:
            checks.faults.pop(FindingKind.PAGE_INDEX, None)
        return checks

    def _limit_faults(self, file: ReferencedFile, keys: KeyChecks) -> Iterator[Finding]:
        """Compare the first and the last row key with those that references say."""
        names = self._schema.row_key_names
        for ends, named in ((keys.first, "first_key"), (keys.last, "last_key")):
            row = [] if ends is None else ends.select(names).to_pylist()
            text = key_to_text([*row[0].values()] if row else [], self._schema)
            for reference in file.references:
                told = getattr(reference, named)
                if told is not None and told != text:
                    what = f"has {text} as {named.replace('_', ' ')}, its reference says {told}"
                    yield _finding(
                        FindingKind.KEY_LIMITS, file, what, RESTORE_STATE, reference.partition_id
                    )
                    break


def _finding(
    kind: FindingKind,
    file: ReferencedFile,
    what: str,
    next_step: str,
    partition_id: str | None = None,
) -> Finding:
    return Finding(
        kind=kind,
        what=f"data file {file.filename!r}: {what}",
        next_step=next_step,
        filename=file.filename,
        partition_id=partition_id,
    )


def _damaged(file: ReferencedFile, damage: DataDamaged) -> Finding:
    return Finding(
        kind=FindingKind.FILE_DAMAGED,
        what=str(damage).split(" Restore the file", maxsplit=1)[0].rstrip("."),
        next_step=RESTORE_FILE,
        filename=file.filename,
    )


def _size_faults(file: ReferencedFile, size: int) -> Iterator[Finding]:
    for reference in file.references:
        if reference.size_bytes not in (None, size):
            what = f"has {size:,} bytes, its reference says {reference.size_bytes:,}"
            yield _finding(FindingKind.FILE_SIZE, file, what, RESTORE_FILE, reference.partition_id)
            return


def _count_faults(file: ReferencedFile, rows: int) -> Iterator[Finding]:
    """Compare the rows of the whole file with those that references to all of it say."""
    for reference in file.references:
        told = reference.row_count
        if reference.row_count_estimated:
            continue
        if told > rows or (reference.whole_file and told != rows):
            what = f"has {rows:,} rows, the reference of {reference.partition_id} says {told:,}"
            yield _finding(FindingKind.ROW_COUNT, file, what, RESTORE_STATE, reference.partition_id)


def _place_faults(file: ReferencedFile, keys: KeyChecks) -> Iterator[Finding]:
    """Compare the rows inside each region with what the reference of its partition says."""
    for reference, inside in zip(file.references, keys.counts, strict=True):
        if reference.whole_file and inside != keys.row_count:
            kind, step = FindingKind.ROW_PLACE, RESTORE_FILE
            what = (
                f"{keys.row_count - inside:,} of its {keys.row_count:,} rows are outside of "
                f"partition {reference.partition_id}, whose reference is to all of it"
            )
        elif not reference.row_count_estimated and inside != reference.row_count:
            if reference.whole_file:
                continue  # reported with the footer's count
            kind, step = FindingKind.ROW_COUNT, RESTORE_STATE
            what = (
                f"{inside:,} of its rows are in partition {reference.partition_id}, whose "
                f"reference says {reference.row_count:,}"
            )
        else:
            continue
        yield _finding(kind, file, what, step, reference.partition_id)


def same_references(one: Sequence[FileReference], other: Sequence[FileReference]) -> bool:
    """Return whether references say the same of a file, but for claims of compaction jobs."""

    def told(each: FileReference) -> FileReference:
        return replace(each, job_id=None, updated=None)

    return [told(each) for each in one] == [told(each) for each in other]
