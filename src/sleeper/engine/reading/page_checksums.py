"""Checks that the pages of a data file have the bytes that were written.

DataFusion does not check page checksums: a flipped bit in a page can be read as another value. So
pages are checked before it reads them. A compaction checks all pages of a file, because it would
write damaged values with a correct checksum; a query checks the pages of its ranges
(`verified_pages`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np

from sleeper.engine.reading.page_runs import PageRun, check_all_runs, check_runs, place_of
from sleeper.lookup.column_reader import DECODING_ERRORS
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet.footer import ColumnChunk, Footer, Leaf
from sleeper.lookup.parquet.page_index import (
    PageLocations,
    read_offset_index,
    read_value_counts,
    whole_chunk,
)
from sleeper.lookup.parquet.pages import DICTIONARY_PAGE, Page, check_levels, read_pages
from sleeper.lookup.parquet_index import ParquetIndex
from sleeper.lookup.reader import LookupReader

_READ_BYTES = 8 << 20
"""Approximate bytes of pages in one read. A larger page is read completely."""

_MAGIC = b"PAR1"

_INDEX_BYTES = 1 << 20
"""Approximate bytes of page indexes in one read: of one row group, or of several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedFile:
    """A file whose pages were all checked.

    Attributes:
        row_count: Rows in it.
        has_checksums: Whether its pages have checksums. Pages of files of other programs may
            have none; then only their headers were checked.
    """

    row_count: int
    has_checksums: bool


def verify_pages(lookup: LookupReader, filename: str, *, every_sum: bool = False) -> VerifiedFile:
    """Check footer, page indexes and every page of a data file, and return its row count.

    Each page is compared with its checksum, and its header, which only page sums cover, with the
    page index. Nothing is decompressed. The file's end is read again, then every page once, in
    order. Memory is the footer, about 1 MiB of page indexes and 8 MiB of pages.

    Args:
        lookup: Reads the file, and caches its index.
        filename: Its key.
        every_sum: Check each page by itself, so that damaged sums between pages are found too,
            and the bytes before the first page.

    Raises:
        DataDamaged: the file is missing or damaged; names the file, row group and column.
        StorageFailed: the file cannot be read.
    """
    return lookup.inspect(filename, partial(_verify, every_sum=every_sum), anew=True)


def _verify(index: ParquetIndex, read: ReadRanges, *, every_sum: bool) -> VerifiedFile:
    index.check_indexes(read)
    if every_sum and read([(0, len(_MAGIC))]) != [_MAGIC]:
        raise ValueError("it does not begin as a Parquet file")
    if index.has_page_sums:
        check_all_runs(index, read, page_by_page=every_sum)
        flags = {True}
    else:
        flags = _verify_chunks(index.footer, read)
    if len(flags) > 1:
        raise ValueError("some of its pages have checksums and others have none")
    return VerifiedFile(row_count=index.footer.row_count, has_checksums=flags == {True})


def verify_some_pages(index: ParquetIndex, runs: Sequence[PageRun], read: ReadRanges) -> None:
    """Check some pages of a file, whose locations the index has loaded.

    Args:
        index: The file's.
        runs: The pages. A dictionary is checked with the pages that need it.
        read: Reads the file.

    Raises:
        ValueError: a page is damaged, or has no checksum in a sealed file.
    """
    if index.has_page_sums:
        check_runs(index, runs, read)
        return
    flags = _verify_all((piece for run in runs for piece in _pieces_of(index, run)), read)
    if len(flags) > 1 or (index.is_sealed and False in flags):
        raise ValueError("some of its pages have no checksums, but all should have")


def _pieces_of(index: ParquetIndex, run: PageRun) -> Iterator[_Piece]:
    """Divide a run between pages; the dictionary of its chunk comes first."""
    group, number = run.group, run.leaf
    about, leaf = index.chunk(group, number), index.footer.leaves[number]
    locations = index.locations(group, number)
    counts = index.value_counts(group, number) if leaf.repetition_max else locations.row_counts
    chunk = _Chunk(
        place=place_of(group, leaf),
        about=about,
        leaf=leaf,
        locations=locations,
        value_counts=None if counts is None else counts.tolist(),
    )
    starts = [about.offset, *(locations.offsets[1:].tolist())]
    ends = (locations.offsets + locations.sizes).tolist()
    if run.first and locations.offsets[0] > about.offset:
        size = int(locations.offsets[0]) - about.offset
        yield _Piece(chunk=chunk, offset=about.offset, length=size, first=0, last=0)
    first = run.first
    for page in range(run.first + 1, run.end + 1):
        if page == run.end or ends[page] - starts[first] > _READ_BYTES:
            size = ends[page - 1] - starts[first]
            yield _Piece(chunk=chunk, offset=starts[first], length=size, first=first, last=page)
            first = page


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """A column chunk, with its page index.

    Attributes:
        place: Row group and column, for messages.
        about: The footer's entry of the chunk.
        leaf: The footer's entry of the column.
        locations: The places of the pages.
        value_counts: Number of values of each page; None if the file does not record it.
    """

    place: str
    about: ColumnChunk
    leaf: Leaf
    locations: PageLocations
    value_counts: Sequence[int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """Adjacent pages of a chunk: those from number `first` up to, not including, `last`."""

    chunk: _Chunk
    offset: int
    length: int
    first: int
    last: int


def _verify_chunks(footer: Footer, read: ReadRanges) -> set[bool]:
    """Check all pages; return whether they have checksums."""
    return _verify_all((piece for chunk in _chunks(footer, read) for piece in _pieces(chunk)), read)


def _verify_all(pieces: Iterable[_Piece], read: ReadRanges) -> set[bool]:
    """Check pages, about 8 MiB at once; return whether they have checksums."""
    flags: set[bool] = set()
    together: list[_Piece] = []
    size = 0
    for piece in pieces:
        if together and size + piece.length > _READ_BYTES:
            flags |= _verify_pieces(together, read)
            together, size = [], 0
        together.append(piece)
        size += piece.length
    return flags | _verify_pieces(together, read)


def _chunks(footer: Footer, read: ReadRanges) -> Iterator[_Chunk]:
    """Yield every column chunk that has pages, in the order of the file."""
    together: list[tuple[int, int]] = []
    size = 0
    for group, row_count in enumerate(footer.row_counts):
        if not row_count:
            continue
        for leaf, chunk in enumerate(footer.chunks[group]):
            together.append((group, leaf))
            size += sum(place[1] for place in _index_places(chunk, footer.leaves[leaf]))
        if size > _INDEX_BYTES:
            yield from _indexed(footer, together, read)
            together, size = [], 0
    yield from _indexed(footer, together, read)


def _index_places(chunk: ColumnChunk, leaf: Leaf) -> list[tuple[int, int]]:
    """Return the place of the offset index, and for repeated columns of the column index."""
    wanted = (chunk.offset_index, chunk.column_index if leaf.repetition_max else None)
    return [place for place in wanted if place is not None]


def _indexed(
    footer: Footer, chosen: Sequence[tuple[int, int]], read: ReadRanges
) -> Iterator[_Chunk]:
    """Read the page indexes of some chunks in one call."""
    places = [
        place
        for group, leaf in chosen
        for place in _index_places(footer.chunks[group][leaf], footer.leaves[leaf])
    ]
    blobs = dict(zip(places, read(places) if places else (), strict=True))
    for group, number in chosen:
        chunk, leaf = footer.chunks[group][number], footer.leaves[number]
        place = place_of(group, leaf)
        with _told(place):
            locations, counts = _expected(chunk, leaf, footer.row_counts[group], blobs)
        yield _Chunk(place=place, about=chunk, leaf=leaf, locations=locations, value_counts=counts)


def _expected(
    chunk: ColumnChunk, leaf: Leaf, row_count: int, blobs: Mapping[tuple[int, int], bytes]
) -> tuple[PageLocations, Sequence[int] | None]:
    """Return the places of pages, and the number of values of each, if it is known."""
    if chunk.offset_index is None:
        locations = whole_chunk(chunk.offset, chunk.size, row_count)
        return locations, None if leaf.repetition_max else [row_count]
    locations = read_offset_index(blobs[chunk.offset_index], row_count)
    if not leaf.repetition_max:
        return locations, locations.row_counts.tolist()
    if chunk.column_index is None:
        return locations, None
    counts = read_value_counts(
        blobs[chunk.column_index],
        definition_max=leaf.definition_max,
        repetition_max=leaf.repetition_max,
    )
    return locations, None if counts is None else counts[0].tolist()


def _pieces(chunk: _Chunk) -> Iterator[_Piece]:
    """Divide a chunk between pages; its dictionary belongs to the first part."""
    with _told(chunk.place):
        ends = _page_ends(chunk)
    start, first = chunk.about.offset, 0
    for page, end in enumerate(ends, 1):
        if page == len(ends) or ends[page] - start > _READ_BYTES:
            yield _Piece(chunk=chunk, offset=start, length=end - start, first=first, last=page)
            start, first = end, page


def _page_ends(chunk: _Chunk) -> list[int]:
    locations = chunk.locations
    ends = [int(end) for end in locations.offsets + locations.sizes]
    if ends[-1] != chunk.about.end or locations.offsets[0] < chunk.about.offset:
        raise ValueError("an offset index does not fit its column chunk")
    return ends


def _verify_pieces(pieces: Sequence[_Piece], read: ReadRanges) -> set[bool]:
    """Read pieces in one call and check their pages; return whether these have checksums."""
    flags: set[bool] = set()
    blobs = read([(piece.offset, piece.length) for piece in pieces]) if pieces else []
    for piece, data in zip(pieces, blobs, strict=True):
        with _told(piece.chunk.place):
            pages = read_pages(data, piece.chunk.about, piece.chunk.leaf)
            flags |= {page.has_checksum for page in pages}
            _check_counts([page for page in pages if page.kind != DICTIONARY_PAGE], piece)
    return flags


@contextmanager
def _told(place: str) -> Iterator[None]:
    """Add the place to errors of damaged bytes."""
    try:
        yield
    except LookupError as error:
        raise ValueError(f"{place}: a page header is damaged") from error
    except DECODING_ERRORS as error:
        raise ValueError(f"{place}: {str(error) or type(error).__name__}") from error


def _check_counts(pages: Sequence[Page], piece: _Piece) -> None:
    """Compare the headers of data pages with the page index."""
    chunk, first, last = piece.chunk, piece.first, piece.last
    page_each = chunk.locations.page_each
    if page_each and len(pages) != last - first:
        raise ValueError("it has another number of pages than its offset index says")
    if chunk.value_counts is not None:
        found = [page.value_count for page in pages]
        if (found if page_each else [sum(found)]) != chunk.value_counts[first:last]:
            raise ValueError("a page holds another number of values than its index says")
    if page_each:
        rows = np.diff(chunk.locations.first_rows[first : last + 1]).tolist()
        for page, row_count in zip(pages, rows, strict=True):
            if page.row_count not in (None, row_count):
                raise ValueError("a page holds another number of rows than its index says")
    if chunk.leaf.repetition_max or chunk.leaf.definition_max:
        for page in pages:
            check_levels(page, chunk.leaf)
