"""Whether every page of a data file holds the bytes that were written.

DataFusion checks no page checksums: a bit that has flipped in a page of values can come back as
another value. Where rows are read once to be written anew, and the old files go, that would make
the damage last and give it a right checksum. So a compaction looks at every page first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sleeper.engine.lookup.column_reader import DECODING_ERRORS
from sleeper.engine.lookup.file_index import ReadRanges, open_file
from sleeper.engine.lookup.parquet.footer import ColumnChunk, Footer, Leaf
from sleeper.engine.lookup.parquet.page_index import (
    PageLocations,
    read_offset_index,
    read_value_counts,
    whole_chunk,
)
from sleeper.engine.lookup.parquet.pages import DICTIONARY_PAGE, Page, check_levels, read_pages
from sleeper.engine.lookup.reader import RangeReader
from sleeper.errors import DataDamaged, ObjectNotFound, SleeperError, StorageFailed

_READ_BYTES = 8 << 20
"""Pages that are held at once, about. One page that is larger is read whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedFile:
    """A file whose pages were all looked at.

    Attributes:
        row_count: Rows in it.
        size_bytes: Its length.
        has_checksums: Whether its pages had checksums at all. Those of files that another
            program wrote may have none; then only their headers were checked.
    """

    row_count: int
    size_bytes: int
    has_checksums: bool


def verify_pages(files: RangeReader, filename: str) -> VerifiedFile:
    """Check footer, page indexes and every page of a data file, and return what it holds.

    Each page is compared with its checksum; what its header says, which no checksum covers, with
    the page index. Nothing is decompressed. Memory is about 8 MiB, and the footer. The file's end
    is read, then every byte of every page once, in order.

    Args:
        files: Where the file is.
        filename: Its key.

    Raises:
        DataDamaged: the file is missing or damaged; names the file, row group and column.
        StorageFailed: the file cannot be read.
    """
    read = _reader_of(files, filename)
    place = ""
    try:
        size_bytes = files.size(filename)
        index = open_file(filename, size_bytes, read)
        index.check_indexes(read)
        flags: set[bool] = set()
        for group, leaf in _chunks(index.footer):
            place = _place(index.footer, group, leaf)
            flags |= _verify_chunk(index.footer, group, leaf, read)
        place = ""
        if len(flags) > 1:
            raise ValueError("some of its pages have checksums and others have none")
    except ObjectNotFound as error:
        raise DataDamaged(
            f"data file {filename!r} is missing. If it was replaced meanwhile, plan again from "
            "fresh state; otherwise restore the file from a copy."
        ) from error
    except SleeperError:
        raise
    except DECODING_ERRORS as error:
        raise DataDamaged(
            f"data file {filename!r} is damaged{place}: {str(error) or type(error).__name__}. "
            "Restore the file from a copy, or ingest its rows again."
        ) from error
    return VerifiedFile(
        row_count=index.footer.row_count, size_bytes=size_bytes, has_checksums=flags == {True}
    )


def _chunks(footer: Footer) -> Iterator[tuple[int, int]]:
    """Row group and leaf of every column chunk that has pages."""
    for group, row_count in enumerate(footer.row_counts):
        if row_count:
            for leaf in range(len(footer.leaves)):
                yield group, leaf


def _place(footer: Footer, group: int, leaf: int) -> str:
    column = ".".join(footer.leaves[leaf].path)
    return f" in row group {group} (counted from 0), column {column!r}"


def _verify_chunk(footer: Footer, group: int, leaf_number: int, read: ReadRanges) -> set[bool]:
    """Check one column chunk; return whether its pages have checksums."""
    chunk, leaf = footer.chunks[group][leaf_number], footer.leaves[leaf_number]
    row_count = footer.row_counts[group]
    locations, value_counts = _expected(chunk, leaf, row_count, read)
    flags = set()
    first = 0
    for offset, length, last in _pieces(chunk, locations):
        (data,) = read([(offset, length)])
        pages = read_pages(data, chunk, leaf)
        flags |= {page.has_checksum for page in pages}
        values = [page for page in pages if page.kind != DICTIONARY_PAGE]
        _check_counts(values, leaf, locations, value_counts, first, last)
        first = last
    return flags


def _expected(
    chunk: ColumnChunk, leaf: Leaf, row_count: int, read: ReadRanges
) -> tuple[PageLocations, list[int] | None]:
    """Where the pages are, and how many values each holds: as many as rows, or as it says."""
    if chunk.offset_index is None:
        locations = whole_chunk(chunk.offset, chunk.size, row_count)
        return locations, None if leaf.repetition_max else [row_count]
    (data,) = read([chunk.offset_index])
    locations = read_offset_index(data, row_count)
    if not leaf.repetition_max:
        return locations, np.diff(locations.first_rows).tolist()
    if chunk.column_index is None:
        return locations, None
    (data,) = read([chunk.column_index])
    counts = read_value_counts(
        data, definition_max=leaf.definition_max, repetition_max=leaf.repetition_max
    )
    return locations, None if counts is None else counts[0].tolist()


def _pieces(chunk: ColumnChunk, locations: PageLocations) -> Iterator[tuple[int, int, int]]:
    """Cut a chunk between pages: offset, length, and the number of the page that follows."""
    ends = (locations.offsets + locations.sizes).tolist()
    if ends[-1] != chunk.end or locations.offsets[0] < chunk.offset:
        raise ValueError("an offset index does not fit its column chunk")
    start = chunk.offset
    for page, end in enumerate(ends):
        is_last = page + 1 == len(ends)
        if is_last or ends[page + 1] - start > _READ_BYTES:
            yield start, end - start, page + 1
            start = end


def _check_counts(
    pages: Sequence[Page],
    leaf: Leaf,
    locations: PageLocations,
    value_counts: Sequence[int] | None,
    first: int,
    last: int,
) -> None:
    """Compare what the headers of pages `first` to `last` say with the page index."""
    if locations.page_each and len(pages) != last - first:
        raise ValueError("it has another number of pages than its offset index says")
    if value_counts is not None:
        found = [page.value_count for page in pages]
        expected = value_counts[first:last]
        if (found if locations.page_each else [sum(found)]) != expected:
            raise ValueError("a page holds another number of values than its index says")
    if locations.page_each:
        rows = np.diff(locations.first_rows[first : last + 1]).tolist()
        for page, row_count in zip(pages, rows, strict=True):
            if page.row_count not in (None, row_count):
                raise ValueError("a page holds another number of rows than its index says")
    if leaf.repetition_max or leaf.definition_max:
        for page in pages:
            check_levels(page, leaf)


def _reader_of(files: RangeReader, filename: str) -> ReadRanges:
    """Return a function that reads ranges of one file and vouches for their lengths."""

    def read(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        try:
            blobs = files.read_ranges(filename, ranges)
        except OSError as error:
            raise StorageFailed(
                f"data file {filename!r} cannot be read: {error}. Mend the storage and try again."
            ) from error
        for blob, (offset, length) in zip(blobs, ranges, strict=True):
            if len(blob) != length:
                raise ValueError(f"it ends before byte {offset + length}")
        return blobs

    return read
