"""Pages with a dictionary: values are numbers of entries, which a page before them has.

A dictionary is decoded once and kept with the index of its file. Of the numbers only those of the
wanted rows are unpacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sleeper.lookup.columns import (
    FIXED_WIDTHS,
    FirstValues,
    Ints,
    KeyItem,
    Matches,
    bisect_values,
    positions,
)
from sleeper.lookup.parquet.footer import DICTIONARY_ENCODINGS, ColumnChunk, Leaf
from sleeper.lookup.parquet.mini_file import decode_byte_arrays
from sleeper.lookup.parquet.pages import (
    DATA_PAGE_V2,
    DICTIONARY_PAGE,
    OWN_CODECS,
    PLAIN,
    PLAIN_DICTIONARY,
    Buffer,
    Flags,
    Page,
    decompressed,
)
from sleeper.lookup.parquet.rle import Runs, read_runs
from sleeper.lookup.plain_pages import page_values

_BYTES_MAX = 512 << 10
"""Bytes of a dictionary that is decoded here. Our writer's are smaller (`DICTIONARY_BYTES_MAX`);
the dictionaries of others are left to pyarrow."""

_BYTE_ARRAY = 6


class Dictionary(NamedTuple):
    """The entries of a dictionary.

    Attributes:
        numbers: Values of 4 or 8 bytes; None if they are byte arrays.
        texts: Byte arrays; without any if they are numbers.
        length: How many there are.
        page: The page, with its header, for pages that are left to pyarrow.
    """

    numbers: npt.NDArray[Any] | None
    texts: pa.Array
    length: int
    page: bytes

    @property
    def size_bytes(self) -> int:
        """The approximate size in memory."""
        entries = int(self.texts.nbytes) if self.numbers is None else self.numbers.nbytes
        return 400 + entries + len(self.page)


def read_dictionary(
    pages: Sequence[Page], blob: Buffer, chunk: ColumnChunk, leaf: Leaf
) -> Dictionary | None:
    """Decode the dictionary page of a chunk; None if that is left to pyarrow.

    Args:
        pages: The only page before the chunk's data pages.
        blob: Its bytes, with the header.
        chunk: The column chunk.
        leaf: Its column.

    Raises:
        ValueError, OSError: the page is damaged.
    """
    if chunk.codec not in OWN_CODECS or leaf.physical_type not in (*FIXED_WIDTHS, _BYTE_ARRAY):
        return None
    if len(pages) != 1 or pages[0].kind != DICTIONARY_PAGE:
        return None
    page = pages[0]
    if page.encoding not in (PLAIN, PLAIN_DICTIONARY) or page.uncompressed_size > _BYTES_MAX:
        return None
    data = decompressed(page, chunk.codec)
    if leaf.physical_type == _BYTE_ARRAY:
        texts = decode_byte_arrays(data, page.value_count)
        return Dictionary(None, texts, page.value_count, bytes(blob))
    dtype = FIXED_WIDTHS[leaf.physical_type]
    if len(data) != page.value_count * dtype.itemsize:
        raise ValueError("a dictionary holds another number of values than its header says")
    return Dictionary(np.frombuffer(data, dtype), _NO_TEXTS, page.value_count, bytes(blob))


_NO_TEXTS = pa.nulls(0, pa.binary())


def has_indexes(pages: Sequence[Page], leaf: Leaf) -> bool:
    """Return whether `read_indexes` may read pages: of version 2, flat, and all of a dictionary."""
    if leaf.repetition_max or leaf.definition_max > 1:
        return False
    return all(
        page.kind == DATA_PAGE_V2 and page.encoding in DICTIONARY_ENCODINGS for page in pages
    )


def read_indexes(
    pages: Sequence[Page], chunk: ColumnChunk, leaf: Leaf, needed: int
) -> tuple[Runs, Flags | None]:
    """Return numbers of entries for rows that have a value, and which rows have one.

    Args:
        pages: The pages.
        chunk: Their column chunk.
        leaf: Their column.
        needed: How many rows of a single page are wanted, from its first.

    Raises:
        ValueError, OSError: a page is damaged.
    """
    if len(pages) == 1:
        body = decompressed(pages[0], chunk.codec)
        values, count, present, found = page_values(pages[0], body, leaf, needed)
        return read_runs([(values, count)], found), present
    parts = [page_values(page, decompressed(page, chunk.codec), leaf) for page in pages]
    flags = [part.present for part in parts]
    present = None
    if any(each is not None for each in flags):
        present = np.concatenate(
            [
                np.ones(part.value_count, np.bool_) if part.present is None else part.present
                for part in parts
            ]
        )
    return read_runs([(part.values, part.value_count) for part in parts]), present


class DictionaryValues:
    """Values that are entries of a dictionary.

    Args:
        indexes: The number of each value's entry.
        dictionary: The entries.
        arrow_type: The type of values.
    """

    __slots__ = ("_dictionary", "_indexes", "_type", "count")

    def __init__(self, indexes: Runs, dictionary: Dictionary, arrow_type: pa.DataType) -> None:
        self._indexes = indexes
        self._dictionary = dictionary
        self._type = arrow_type
        self.count = indexes.length

    def find(self, key: KeyItem, start: int, end: int) -> tuple[int, int]:
        """As `Values.find`."""
        entries = self._entries(np.arange(start, end)).tolist()
        numbers, texts = self._dictionary.numbers, self._dictionary.texts

        def value_at(row: int) -> Any:
            entry = entries[row]
            return texts[entry].as_py() if numbers is None else numbers[entry]

        low, high = bisect_values(value_at, key, 0, end - start)
        return start + low, start + high

    def find_many(self, keys: FirstValues, first: int, end: int) -> Matches | None:
        """As `Values.find_many`: left to Arrow."""
        return None

    def rows(self, starts: Ints, ends: Ints) -> pa.Array:
        """As `Values.rows`."""
        numbers, texts = self._dictionary.numbers, self._dictionary.texts
        if len(starts) == 1 and ends[0] - starts[0] == 1:
            entry = self._indexes.one(int(starts[0]))
            self._check(entry)
            if numbers is None:
                return texts.slice(entry, 1).view(self._type)
            chosen = numbers[entry : entry + 1]
        else:
            entries = self._entries(positions(starts, ends))
            if numbers is None:
                return texts.take(pa.array(entries)).view(self._type)
            chosen = numbers[entries]
        return pa.Array.from_buffers(self._type, len(chosen), [None, pa.py_buffer(chosen)], 0)

    def _entries(self, rows: Ints) -> Ints:
        entries = self._indexes.at(rows)
        self._check(int(entries.max(initial=0)))
        return entries

    def _check(self, entry: int) -> None:
        if entry >= max(self._dictionary.length, 1):
            raise ValueError("a page has an index that its dictionary has not")
