"""Searches bytes for many texts at once, and decoded columns for many values.

Texts are found by polars (Aho-Corasick), whatever their number. A text that is a part of a longer
word is not meant: `ann@x.org` stands in `joann@x.org`, which is another's. Dots, dashes and plus
signs are a part of it between letters alone: one at the end is that of a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

_LONGER_BEFORE = re.compile(rb"[0-9A-Za-z_@\x80-\xff][.+\-]*\Z")
_LONGER_AFTER = re.compile(rb"[.+\-]*[0-9A-Za-z_@\x80-\xff]")
T = TypeVar("T")

_TOGETHER_MAX: Final = 1 << 20
"""Bytes are searched together until there are so many."""
_HITS_MAX: Final = 10_000
"""So many places of one piece are looked at; of more, the rest count as found."""


class ByteSearch:
    """Finds texts among bytes.

    Args:
        texts: The texts.

    Attributes:
        longest: The length of the longest one.
    """

    def __init__(self, texts: Sequence[bytes]) -> None:
        self._texts = [text.decode("latin-1") for text in texts]
        self.longest = max(map(len, texts), default=0)

    def count(self, data: bytes) -> int:
        """Return how often a text stands in some bytes, by itself."""
        if not self._texts or not data:
            return 0
        text = data.decode("latin-1")
        searched = pl.Series([text]).str
        places = searched.find_many(self._texts, overlapping=True)[0]
        if not len(places):
            return 0
        found = searched.extract_many(self._texts, overlapping=True)[0]
        whole = text.encode()
        alone = sum(
            _stands_alone(whole, place, each)
            for place, each in zip(places.head(_HITS_MAX), found.head(_HITS_MAX), strict=True)
        )
        return alone + max(0, len(places) - _HITS_MAX)

    def named(self, items: Iterable[tuple[T, bytes]]) -> Iterator[T]:
        """Yield each item whose bytes have a text, by itself, in the order of the items.

        Small ones are searched together: to prepare a search for many texts takes a while.
        """
        together, size = list[tuple[T, bytes]](), 0
        for item, data in items:
            together.append((item, data))
            size += len(data)
            if size > _TOGETHER_MAX:
                yield from self._named(together)
                together, size = [], 0
        yield from self._named(together)

    def _named(self, together: Sequence[tuple[T, bytes]]) -> Iterator[T]:
        if self.count(b"\0".join(data for _, data in together)):
            for item, data in together:
                if self.count(data):
                    yield item


def _stands_alone(whole: bytes, place: int, text: str) -> bool:
    """Return whether a text is no part of a longer one; places are of its form in UTF-8."""
    size = len(text.encode())
    before = whole[max(0, place - 8) : place].decode(errors="ignore").encode("latin-1")
    after = whole[place + size : place + size + 8].decode(errors="ignore").encode("latin-1")
    length = len(text)
    if before[-4:] == length.to_bytes(4, "little") or before[-1:] == bytes([length % 256]):
        return True  # its length stands before it, as in Parquet
    return not (_LONGER_BEFORE.search(before) or _LONGER_AFTER.match(after))


def texts_of(table: pa.Table | pa.RecordBatch) -> Iterator[tuple[str, pa.Array | pa.ChunkedArray]]:
    """Yield all strings and bytes of some rows, also those inside nested values, by column."""
    for name, column in zip(table.schema.names, table.columns, strict=True):
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            for texts in _texts_in(chunk):
                yield name, texts


def _texts_in(values: pa.Array) -> Iterator[pa.Array]:
    kind = values.type
    if pa.types.is_dictionary(kind):
        yield from _texts_in(values.dictionary)
    elif pa.types.is_struct(kind):
        for part in values.flatten():
            yield from _texts_in(part)
    elif pa.types.is_map(kind):
        yield from _texts_in(values.keys)
        yield from _texts_in(values.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _texts_in(values.flatten())
    elif _is_text(kind):
        yield values


def _is_text(kind: pa.DataType) -> bool:
    is_ = pa.types
    return any(
        test(kind)
        for test in (is_.is_string, is_.is_large_string, is_.is_binary, is_.is_large_binary)
    )


def count_equal(texts: pa.Array, wanted: pa.Array) -> int:
    """Return how many of some texts are among those that are wanted, which are bytes."""
    values = texts.cast(pa.large_binary())
    return int(pc.sum(pc.is_in(values, value_set=wanted)).as_py() or 0)


def joined_bytes(texts: pa.Array) -> bytes:
    """Return texts one after the other, each followed by a zero byte."""
    plain = texts.cast(pa.large_binary()).fill_null(b"")
    nothing, end = (pa.scalar(each, pa.large_binary()) for each in (b"", b"\0"))
    ended = pc.binary_join_element_wise(plain, nothing, end)
    _, offsets, data = ended.buffers()
    if data is None or not len(ended):
        return b""
    first, last = ended.offset, ended.offset + len(ended)
    ends = memoryview(offsets).cast("q")
    return bytes(memoryview(data)[ends[first] : ends[last]])
