"""Compare runs of adjacent pages with the page sums of their file: one native call for a run."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from sleeper.lookup.column_reader import fetch
from sleeper.lookup.parquet.compact_protocol import read_struct
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet.footer import Leaf
from sleeper.lookup.parquet.pages import Buffer, check_inflated, is_bomb
from sleeper.lookup.parquet.seal import SUM_BYTES, sum_at
from sleeper.lookup.parquet_index import ParquetIndex

# ---------------------------------------------------------------- page sizes
#
# Reads the sizes of pages from the first bytes of their headers.


def all_small(data: Buffer, heads: Sequence[int]) -> bool:
    """Return whether pages surely become less than 256 MiB together when decompressed.

    So it is if each becomes less than 1 MiB, and they are few.
    """
    return len(heads) <= _FEW and all(map(partial(_SMALL_PAGE.match, data), heads))


_FEW = 256
_SMALL_PAGE = re.compile(
    rb"\x15.\x15(?:[\x00-\x7f]|[\x80-\xff][\x00-\x7f]|[\x80-\xff]{2}[\x00-\x7f])", re.DOTALL
)
"""A page header whose second field, the size when decompressed, has at most three bytes."""


def inflated_size(data: Buffer, heads: Sequence[int]) -> int:
    """Return how many bytes pages become together when decompressed."""
    return sum(read_struct(bytes(data[head : head + _HEAD_BYTES]))[0][2] for head in heads)


_HEAD_BYTES = 16 << 10
"""More than a page header has, unless it carries statistics of long values."""


def page_sizes(data: Buffer, heads: Sequence[int]) -> tuple[list[int], list[int]] | None:
    """Return how large pages are when decompressed, and in the file, by their headers.

    Args:
        data: The pages.
        heads: Where each begins.

    Returns:
        The sizes of their bodies; None if a header has a rare form, or a page has 1 MiB or more.
    """
    inflated, compressed = list[int](), list[int]()
    try:
        for head in heads:
            if data[head] != _NUMBER or data[head + 2] != _NUMBER:
                return None
            size, at = data[head + 3], head + 4
            if size > _LAST:
                size, at = _longer_varint(data, size, at)
            if data[at] != _NUMBER:
                return None
            own_size = data[at + 1]
            if own_size > _LAST:
                own_size, at = _longer_varint(data, own_size, at + 2)
            if (size | own_size) & 1:
                return None
            inflated.append(size >> 1)
            compressed.append(own_size >> 1)
    except (IndexError, ValueError):
        return None
    return inflated, compressed


_NUMBER = 0x15  # the header of a field of 32 bits whose number is one more than the last one's
_LAST = 127  # the greatest last byte of a varint


def _longer_varint(data: Buffer, first: int, at: int) -> tuple[int, int]:
    """Return a varint of two or three bytes, and where it ends.

    Args:
        data: The header.
        first: The varint's first byte.
        at: The place of the second.

    Raises:
        ValueError: it is longer.
    """
    value = first + ((data[at] - 1) << 7)
    if data[at] <= _LAST:
        return value, at + 1
    value += (data[at + 1] - 1) << 14
    if data[at + 1] > _LAST:
        raise ValueError
    return value, at + 2


READ_BYTES = 8 << 20
"""Approximate bytes of pages in one read."""


class PageRun(NamedTuple):
    """Pages of a column chunk: those from number `first` up to, not including, `end`."""

    group: int
    leaf: int
    first: int
    end: int


class _Span(NamedTuple):
    """Adjacent pages, with the sums at their start and at their end.

    Attributes:
        heads: The start of each page, relative to the span's start.
    """

    offset: int
    length: int
    before: int
    after: int
    group: int
    leaf: int
    heads: list[int]


def place_of(group: int, leaf: Leaf) -> str:
    """Return the name of a column chunk for messages."""
    return f"row group {group} (counted from 0), column {'.'.join(leaf.path)!r}"


def check_runs(index: ParquetIndex, runs: Sequence[PageRun], read: ReadRanges) -> None:
    """Check runs of a file that has page sums, each with its chunk's dictionary page.

    Of page headers only the size in memory is looked at: the sums say that they are as written.

    Raises:
        ValueError: a page is damaged, or would take more memory than is accepted.
    """
    _check(index, _spans(index, runs, read, READ_BYTES), read)


def check_all_runs(index: ParquetIndex, read: ReadRanges, *, page_by_page: bool = False) -> None:
    """Check all pages of a file that has page sums, in file order.

    Args:
        index: The file's.
        read: Reads the file.
        page_by_page: Compare the sum at the end of each page, not only those at the ends of what
            is read together.

    Raises: as `check_runs`.
    """
    leaves = tuple(range(len(index.footer.leaves)))
    for group, row_count in enumerate(index.footer.row_counts):
        if row_count:
            index.load([group], leaves, (), read)
            counts = [len(index.locations(group, leaf).offsets) for leaf in leaves]
            runs = [PageRun(group, leaf, 0, counts[leaf]) for leaf in leaves]
            length_max = 0 if page_by_page else READ_BYTES
            _check(index, _spans(index, runs, read, length_max), read)


@dataclass(frozen=True, slots=True)
class RunPages:
    """The bytes of a run, which were checked.

    Attributes:
        run: Which pages.
        dictionary: The dictionary page of the chunk; empty if it has none.
        data: The pages, one after the other.
        heads: Where each page starts in `data`.
    """

    run: PageRun
    dictionary: Buffer
    data: Buffer
    heads: list[int]


def read_checked_runs(
    index: ParquetIndex, runs: Sequence[PageRun], read: ReadRanges
) -> list[RunPages]:
    """Read runs of a file that has page sums, check them, and return their bytes.

    All runs are read in one call, so the caller chooses how much is in memory.

    Raises:
        ValueError: a page is damaged, or would take more memory than is accepted.
    """
    spans = list(_spans(index, runs, read, length_max=None))
    blobs = iter(zip(spans, fetch([span[:2] for span in spans], read), strict=True))
    return [_run_pages(index, run, blobs) for run in runs]


def _run_pages(
    index: ParquetIndex, run: PageRun, blobs: Iterator[tuple[_Span, Buffer]]
) -> RunPages:
    """Check the next span, or the next two if a dictionary page precedes the run."""
    span, data = next(blobs)
    chunk = index.chunk(run.group, run.leaf)
    dictionary_size = int(index.locations(run.group, run.leaf).offsets[0]) - chunk.offset
    dictionary: Buffer = b""
    if dictionary_size and run.first:
        _check_span(index, span, zlib.crc32(data, span.before), data)
        dictionary, (span, data) = data, next(blobs)
    found, whole, heads = zlib.crc32(data, span.before), data, span.heads
    if dictionary_size and not run.first:
        dictionary, data = data[:dictionary_size], data[dictionary_size:]
        heads = [head - dictionary_size for head in heads[1:]]
    small = all_small(data, heads)
    unknown = span.heads[: len(span.heads) - len(heads)] if small else span.heads
    _check_span(index, span, found, whole, unknown)
    if not small and is_bomb(inflated_size(data, heads), chunk.size):
        place = place_of(run.group, index.footer.leaves[run.leaf])
        raise ValueError(f"{place}: its pages would become more in memory than is accepted")
    return RunPages(run, dictionary, data, heads)


def _spans(
    index: ParquetIndex, runs: Sequence[PageRun], read: ReadRanges, length_max: int | None
) -> Iterator[_Span]:
    """Yield the spans of each run; one longer than `length_max` is divided into its pages."""
    places = dict.fromkeys((run.group, run.leaf) for run in runs)
    sums = dict(zip(places, index.page_sums([*places], read), strict=True))
    for group, leaf, first, end in runs:
        chunk, offsets = index.chunk(group, leaf), index.locations(group, leaf).offsets
        own = sums[group, leaf]
        extra = int(chunk.offset != offsets[0])  # 1 where there is a dictionary page
        if len(own) != (extra + len(offsets) + 1) * SUM_BYTES:
            raise ValueError("the file's page sums do not fit its pages")
        if extra and first:
            yield _span(own, group, leaf, 0, [chunk.offset, int(offsets[0])])
        start = first + extra if first else 0
        borders = offsets[first : end + 1].tolist()
        if start == 0 and extra:
            borders.insert(0, chunk.offset)
        if end == len(offsets):
            borders.append(chunk.end)
        if length_max is None or borders[-1] - borders[0] <= length_max:
            yield _span(own, group, leaf, start, borders)
        else:
            for page, pair in enumerate(pairwise(borders)):
                yield _span(own, group, leaf, start + page, pair)


def _span(sums: bytes, group: int, leaf: int, number: int, borders: Sequence[int]) -> _Span:
    """Return the span between borders, of which the first is the chunk's of this number."""
    offset, end = borders[0], borders[-1]
    before, after = sum_at(sums, number), sum_at(sums, number + len(borders) - 1)
    heads = [border - offset for border in borders[:-1]]
    return _Span(offset, end - offset, before, after, group, leaf, heads)


def _check(index: ParquetIndex, spans: Iterable[_Span], read: ReadRanges) -> None:
    """Read about 8 MiB at once, and compare."""
    together: list[_Span] = []
    size = 0
    for span in spans:
        if together and size + span.length > READ_BYTES:
            _check_together(index, together, read)
            together, size = [], 0
        together.append(span)
        size += span.length
    _check_together(index, together, read)


def _check_together(index: ParquetIndex, spans: Sequence[_Span], read: ReadRanges) -> None:
    if len(spans) == 1 and spans[0].length > READ_BYTES:
        _check_long_page(index, spans[0], read)
        return
    blobs = read([span[:2] for span in spans]) if spans else []
    for data, span in zip(blobs, spans, strict=True):
        _check_span(index, span, zlib.crc32(data, span.before), data)


def _check_long_page(index: ParquetIndex, page: _Span, read: ReadRanges) -> None:
    """Check a page of any length, 8 MiB at a time."""
    end, value, start = page.offset + page.length, page.before, b""
    for offset in range(page.offset, end, READ_BYTES):
        (data,) = read([(offset, min(READ_BYTES, end - offset))])
        value = zlib.crc32(data, value)
        start = start or data
    _check_span(index, page, value, start)


def _check_span(
    index: ParquetIndex,
    span: _Span,
    found: int,
    data: Buffer,
    heads: Sequence[int] | None = None,
) -> None:
    """Compare the sum, and check how large pages become in memory.

    Args:
        index: The file's.
        span: The pages.
        found: The sum of `data`.
        data: Their bytes.
        heads: The pages whose size is not known to be accepted; None for all.
    """
    try:
        if found != span.after:
            raise ValueError("its pages do not match their checksums")
        chunk = index.chunk(span.group, span.leaf)
        for head in span.heads if heads is None else heads:
            check_inflated(data, head, chunk)
    except (ValueError, LookupError) as error:
        place = place_of(span.group, index.footer.leaves[span.leaf])
        raise ValueError(f"{place}: {error}") from error
