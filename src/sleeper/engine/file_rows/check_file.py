"""Checks one data file against everything that its references, its table and itself say of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from sleeper.engine.file_rows.key_checks import KeyBatch, KeyChecks
from sleeper.engine.file_rows.sketch_checks import sampled_rows, sketch_fault
from sleeper.engine.scan.page_checksums import verify_pages
from sleeper.engine.writing.sketch import Sketches
from sleeper.engine.writing.stored_sketch import read_stored_sketch
from sleeper.errors import DataDamaged, FormatTooNew, ObjectNotFound
from sleeper.language.value_classes import dataclass
from sleeper.lookup.key_search import Found, read_rows
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet_index import ParquetIndex
from sleeper.lookup.reader import LookupReader
from sleeper.model.files import FileReference, key_to_text
from sleeper.model.ranges import Region
from sleeper.model.schema import Schema
from sleeper.ports.objects import Objects
from sleeper.state.files.findings import RESTORE_FILE, RESTORE_STATE, Finding, FindingKind

COMPACT = "Compact the table with --all-files, which writes the file anew."


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencedFile:
    """A data file with what a state says of it.

    Attributes:
        filename: The file.
        references: The references to it; at least one.
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
    """

    def __init__(
        self, files: Objects, schema: Schema, arrow_schema: pa.Schema, *, quick: bool
    ) -> None:
        self._files = files
        self._schema = schema
        self._arrow_schema = arrow_schema
        self._quick = quick
        # Not the table's own reader, whose caches would be filled with all files.
        self._lookup = LookupReader(files, cache_bytes=1 << 20)

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
            index.columns(self._arrow_schema)
        except ValueError as error:
            what = f"does not have the table's columns: {error}"
            findings.append(_finding(FindingKind.SCHEMA, file, what, RESTORE_FILE))
        if not index.is_sealed and file.references[0].schema_id is not None:
            what = "has lost the seal that our writer gave it"
            findings.append(_finding(FindingKind.FILE_DAMAGED, file, what, RESTORE_FILE))
        return _FileEnd(index.footer.row_count, index.is_sealed, tuple(findings))

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
            whole = [Found(group, start, start + count, start)]
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
