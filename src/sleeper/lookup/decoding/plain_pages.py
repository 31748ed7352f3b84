"""The content of pages of a flat column: decompressed, without levels, as PLAIN or nearly so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sleeper.language.value_classes import dataclass
from sleeper.lookup.parquet.delta import read_lengths, read_numbers
from sleeper.lookup.parquet.footer import CODECS, VALUE_WIDTHS, ColumnChunk, Leaf
from sleeper.lookup.parquet.levels import Flags, present_rows
from sleeper.lookup.parquet.page_index import Ints
from sleeper.lookup.parquet.pages import (
    DATA_PAGE_V2,
    DELTA_BINARY_PACKED,
    DELTA_LENGTH_BYTE_ARRAY,
    DICTIONARY_PAGE,
    OWN_CODECS,
    PLAIN,
    Page,
    decompress,
    decompressed,
)

_DELTAS = frozenset((DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY))
"""Encodings that this module reads of version 2 pages, beside PLAIN of all; some writers pad the
levels of version 1 pages in their own way."""


@dataclass(frozen=True, slots=True)
class PlainPages:
    """The concatenated content of pages of a flat column, as PLAIN has it or nearly so.

    Attributes:
        data: The values that are not null: as PLAIN encodes them, or byte arrays without lengths.
        value_count: Their number.
        present: Which rows have a value; None if all have one.
        lengths: Of byte arrays without lengths, a number if all are equal; None if `data` is PLAIN.
        starts, counts: Where the values of each page begin, and their number, if something is
            between the pages; else None.
    """

    data: bytes
    value_count: int
    present: Flags | None
    lengths: int | Ints | None
    starts: Ints | None = None
    counts: Ints | None = None


def plain_values(
    pages: Sequence[Page], chunk: ColumnChunk, leaf: Leaf, needed: int | None = None
) -> PlainPages | None:
    """Decompress pages and read their levels; None if a page has an encoding of pyarrow's alone.

    Of a single page the values after the first `needed` rows may be left out. The value counts of
    pages must be compared with the offset index before.

    Raises:
        ValueError, OSError: a page is damaged.
    """
    if chunk.codec not in OWN_CODECS or leaf.repetition_max or leaf.definition_max > 1:
        return None
    pages = [page for page in pages if page.kind != DICTIONARY_PAGE]
    if not pages:
        return None
    encoding = pages[0].encoding
    own = encoding == PLAIN or (encoding in _DELTAS and all(p.kind == DATA_PAGE_V2 for p in pages))
    if not own or any(page.encoding != encoding for page in pages):
        return None
    if len(pages) == 1:
        return _plain_page(pages[0], chunk.codec, leaf, needed)
    together = _decompressed_together(pages, chunk, leaf)
    if together is not None:
        return together
    parts = [_plain_page(page, chunk.codec, leaf) for page in pages]
    present = None
    if any(part.present is not None for part in parts):
        flags = [
            np.ones(part.value_count, np.bool_) if part.present is None else part.present
            for part in parts
        ]
        present = np.concatenate(flags)
    data = b"".join([part.data for part in parts])
    return PlainPages(data, sum(part.value_count for part in parts), present, _all_lengths(parts))


def _decompressed_together(
    pages: Sequence[Page], chunk: ColumnChunk, leaf: Leaf
) -> PlainPages | None:
    """Decompress pages without nulls in one call; None if they are not of the usual kind.

    zstd reads frames that follow each other; for each call it makes a context, which takes as long
    as 10,000 bytes.
    """
    if CODECS[chunk.codec] != "zstd" or pages[0].encoding == DELTA_BINARY_PACKED:
        return None
    bodies: list[memoryview] = []
    ends = [0]
    for page in pages:
        levels = page.levels_sizes[1]
        if (
            page.kind != DATA_PAGE_V2
            or not page.is_compressed
            or page.null_count
            or page.levels_sizes[0]
            or (levels > 0) != (leaf.definition_max > 0)
        ):
            return None
        if levels and present_rows(bytes(page.body[:levels]), page.value_count) is not None:
            return None
        bodies.append(page.body[levels:])
        ends.append(ends[-1] + page.uncompressed_size - levels)
    data = decompress("zstd", memoryview(b"".join(bodies)), ends[-1])
    counts = [page.value_count for page in pages]
    if pages[0].encoding == PLAIN:
        width = VALUE_WIDTHS.get(leaf.physical_type)
        if width is not None and len(data) != sum(counts) * width:
            raise ValueError("a page holds another number of values than its header says")
        return PlainPages(data, sum(counts), None, None)
    if leaf.physical_type != _BYTE_ARRAY:
        raise ValueError("a page's numbers are encoded as byte arrays")
    places = zip(counts, ends, ends[1:], strict=False)
    lengths = [read_lengths(data, count, start, end) for count, start, end in places]
    starts = np.array([start for _, start in lengths], np.int64)
    whole = _joined([each for each, _ in lengths], counts)
    return PlainPages(data, sum(counts), None, whole, starts, np.array(counts, np.int64))


def _all_lengths(parts: Sequence[PlainPages]) -> int | Ints | None:
    """Return the lengths of the byte arrays of several pages."""
    lengths = [part.lengths for part in parts if part.lengths is not None]
    return _joined(lengths, [part.value_count for part in parts]) if lengths else None


def _joined(lengths: Sequence[int | Ints], counts: Sequence[int]) -> int | Ints:
    """Join the lengths of pages; a number if all are equal."""
    first = lengths[0]
    if isinstance(first, int) and all(isinstance(each, int) and each == first for each in lengths):
        return first
    whole: Ints = np.concatenate(
        [
            np.full(count, each) if isinstance(each, int) else each
            for each, count in zip(lengths, counts, strict=True)
        ]
    )
    return whole


def _plain_page(page: Page, codec: int, leaf: Leaf, needed: int | None = None) -> PlainPages:
    levels, values = _levels_and_values(page, decompressed(page, codec), leaf)
    present, count = None, page.value_count
    if leaf.definition_max:
        present = present_rows(levels, count)
    elif levels:
        raise ValueError("a page has levels, but its column has no nulls")
    if present is not None:
        count = int(np.count_nonzero(present))
    if page.null_count not in (None, page.value_count - count):
        raise ValueError("a page has another number of nulls than its header says")
    lengths: int | Ints | None = None
    width = VALUE_WIDTHS.get(leaf.physical_type, 0)
    if page.encoding == DELTA_LENGTH_BYTE_ARRAY:
        if leaf.physical_type != _BYTE_ARRAY:
            raise ValueError("a page's numbers are encoded as byte arrays")
        lengths, at = read_lengths(values, count)
        values = values[at:]
    elif page.encoding == DELTA_BINARY_PACKED:
        encoded = count
        if needed is not None and needed < page.value_count:
            present = None if present is None else present[:needed]
            count = needed if present is None else int(np.count_nonzero(present))
        values = read_numbers(values, encoded, width, count)
    if width and len(values) != count * width:
        raise ValueError("a page holds another number of values than its header says")
    return PlainPages(values, count, present, lengths)


def _levels_and_values(page: Page, values: bytes, leaf: Leaf) -> tuple[bytes, bytes]:
    """Return the definition levels of a page and its values."""
    if page.kind == DATA_PAGE_V2:
        if page.levels_sizes[0]:
            raise ValueError("a page has repetition levels, but its column is no list")
        return bytes(page.body[: page.levels_sizes[1]]), values
    if not leaf.definition_max:
        return b"", values
    length = int.from_bytes(values[:4], "little")
    levels, values = values[4 : 4 + length], values[4 + length :]
    if len(levels) != length:
        raise ValueError("a page's levels are longer than the page")
    return levels, values


_BYTE_ARRAY = 6
