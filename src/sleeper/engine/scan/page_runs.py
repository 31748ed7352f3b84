"""Compares runs of adjacent pages with the page sums of their file: one native call for a run."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet.footer import Leaf
from sleeper.lookup.parquet.page_sums import SUM_BYTES, sum_at
from sleeper.lookup.parquet_index import ParquetIndex

READ_BYTES = 8 << 20
"""Approximate bytes of pages in one read."""


class PageRun(NamedTuple):
    """Pages of a column chunk: those from number `first` up to, not including, `end`."""

    group: int
    leaf: int
    first: int
    end: int


class _Span(NamedTuple):
    """A part of a column chunk, with the sums at its start and at its end."""

    offset: int
    length: int
    before: int
    after: int
    group: int
    leaf: int


def place_of(group: int, leaf: Leaf) -> str:
    """Return the name of a column chunk for messages."""
    return f"row group {group} (counted from 0), column {'.'.join(leaf.path)!r}"


def check_runs(index: ParquetIndex, runs: Sequence[PageRun], read: ReadRanges) -> None:
    """Check runs of a file that has page sums, each with its chunk's dictionary page.

    Raises:
        ValueError: a page is damaged.
    """
    _check(index, _spans(index, runs, read), read)


def check_all_runs(index: ParquetIndex, read: ReadRanges) -> None:
    """Check all pages of a file that has page sums, in file order.

    Raises:
        ValueError: a page is damaged.
    """
    _check(index, _chunk_spans(index, read), read)


def _spans(index: ParquetIndex, runs: Sequence[PageRun], read: ReadRanges) -> Iterator[_Span]:
    places = dict.fromkeys((run.group, run.leaf) for run in runs)
    sums = dict(zip(places, index.page_sums([*places], read), strict=True))
    for group, leaf, first, end in runs:
        chunk, offsets, own = (
            index.chunk(group, leaf),
            index.locations(group, leaf).offsets,
            sums[group, leaf],
        )
        low = chunk.offset if first == 0 else int(offsets[first])
        high = chunk.end if end == len(offsets) else int(offsets[end])
        number = len(own) // SUM_BYTES - len(offsets) - 1  # of the sum at the first data page
        if number != (chunk.offset != offsets[0]):
            raise ValueError("the file's page sums do not fit its pages")
        if number and first:  # a dictionary page that is not adjacent to the run
            length = int(offsets[0]) - chunk.offset
            yield _Span(chunk.offset, length, sum_at(own, 0), sum_at(own, 1), group, leaf)
        before = sum_at(own, number + first if first else 0)
        yield _Span(low, high - low, before, sum_at(own, number + end), group, leaf)


def _chunk_spans(index: ParquetIndex, read: ReadRanges) -> Iterator[_Span]:
    for group, row_count in enumerate(index.footer.row_counts):
        places = [(group, leaf) for leaf in range(len(index.footer.leaves) if row_count else 0)]
        for (_, leaf), own in zip(places, index.page_sums(places, read), strict=True):
            if len(own) < 2 * SUM_BYTES:
                raise ValueError("the file's page sums do not fit its pages")
            chunk, last = index.chunk(group, leaf), len(own) // SUM_BYTES - 1
            yield _Span(chunk.offset, chunk.size, sum_at(own, 0), sum_at(own, last), group, leaf)


def _check(index: ParquetIndex, spans: Iterable[_Span], read: ReadRanges) -> None:
    """Read spans, about 8 MiB in one read, and compare them."""
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
    if len(spans) == 1:
        found = [_sum_after(spans[0], read)]
    else:
        blobs = read([span[:2] for span in spans]) if spans else []
        found = [zlib.crc32(data, span.before) for data, span in zip(blobs, spans, strict=True)]
    for span, value in zip(spans, found, strict=True):
        if value != span.after:
            place = place_of(span.group, index.footer.leaves[span.leaf])
            raise ValueError(f"{place}: its pages do not match their checksums")


def _sum_after(span: _Span, read: ReadRanges) -> int:
    """Compute the checksum of a span of any length, 8 MiB at a time."""
    value, end = span.before, span.offset + span.length
    for offset in range(span.offset, end, READ_BYTES):
        (data,) = read([(offset, min(READ_BYTES, end - offset))])
        value = zlib.crc32(data, value)
    return value
