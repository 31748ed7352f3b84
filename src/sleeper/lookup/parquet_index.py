"""The metadata of one data file: its footer, and its page indexes and Bloom filters as they are
needed.

Opening a file reads its last bytes once. Page indexes are parsed for each row group and column at
first use; a column index only for key columns. If the file has a seal, each part is checked against
it first. Filters are used only if they are sealed, and read when a key is first looked up in their
row group.
"""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from sleeper.lookup.columns import (
    BoundColumn,
    DecodePath,
    FieldInFiles,
    WantedColumns,
    bind_columns,
    want_columns,
)
from sleeper.lookup.dictionary_pages import Dictionary
from sleeper.lookup.parquet.bloom import BloomFilter, read_filter
from sleeper.lookup.parquet.file_end import FileEnd, ReadRanges
from sleeper.lookup.parquet.footer import ColumnChunk
from sleeper.lookup.parquet.page_index import (
    Ints,
    PageBounds,
    PageLocations,
    bounds_of,
    read_column_index,
    read_offset_indexes,
    read_value_counts,
    whole_chunk,
)
from sleeper.lookup.parquet.pages import Page

CHECKED_BYTES = 4 << 20
"""Bytes of one read when page indexes are checked against the seal."""

READY_MAX = 10_000
"""Number of sets of columns that are cached as loaded. Dropping one costs a few microseconds."""

_BYTE_ARRAY = 6


class ParquetIndex:
    """The footer, page indexes and filters of one file. Grows while it is used; safe for threads.

    Attributes:
        filename: The file's key.
        file_bytes: Its size.
        footer: Its footer.
        has_checksums: Whether every page read so far had a checksum. If one had none, decoded
            values must be validated before they are returned.
    """

    def __init__(
        self, filename: str, end: FileEnd, fields: Mapping[str, FieldInFiles] | None = None
    ) -> None:
        footer, seal = end.footer, end.seal
        self.filename = filename
        self.file_bytes = end.file_bytes
        self.footer = footer
        self._fields = fields
        self.has_checksums = True
        self._seal = seal
        self._sums = end.sums
        self._indexes_checked = False
        self._held, self._held_at = end.held, end.held_at
        self._locations: dict[tuple[int, int], PageLocations] = {}
        self._bounds: dict[tuple[int, int], PageBounds] = {}
        self._value_counts: dict[tuple[int, int], Ints] = {}
        self._wanted: dict[tuple[str, ...], tuple[pa.Schema, WantedColumns]] = {}
        self._bound: tuple[pa.Schema, dict[str, BoundColumn]] | None = None
        self._ready: set[tuple[int, tuple[int, ...], tuple[int, ...]]] = set()
        self._converted_leaves: frozenset[int] = frozenset()
        self._filters: dict[tuple[int, tuple[int, ...]], tuple[BloomFilter | None, ...]] = {}
        self._dictionaries: dict[tuple[int, int], Dictionary] = {}
        self._filter_sums = seal.filters_by_chunk(footer) if seal is not None else {}
        self._size_bytes = footer.size_bytes + len(end.held) + 150 * len(self._filter_sums)
        if seal is not None:
            self._size_bytes += 36 * len(seal.parts)
        if self._sums is not None:
            self._size_bytes += 40 * len(self._sums.starts)

    @property
    def size_bytes(self) -> int:
        """The approximate size of this index in memory."""
        return self._size_bytes

    def wanted(self, schema: pa.Schema, key_count: int, names: tuple[str, ...]) -> WantedColumns:
        """Return the columns of this file that a look-up needs.

        Raises:
            ValueError: a column is missing or has a type that does not fit the table's schema.
        """
        known = self._wanted.get(names)
        if known is not None and _same(known[0], schema) and len(known[1].keys) == key_count:
            return known[1]
        wanted = want_columns(self.columns(schema), schema.names[:key_count], names)
        self._wanted = {names: (schema, wanted)}
        return wanted

    def columns(self, schema: pa.Schema) -> dict[str, BoundColumn]:
        """Return the columns of this file for a table's schema.

        Raises:
            ValueError: a column is missing or has a type that does not fit the table's schema.
        """
        if self._bound is not None and _same(self._bound[0], schema):
            return self._bound[1]
        bound = bind_columns(self.footer, schema, self._fields)
        converted = (each.leaf for each in bound.values() if each.plain is DecodePath.BY_PYARROW)
        self._converted_leaves = frozenset(converted)
        self._bound = (schema, bound)
        return bound

    @property
    def is_sealed(self) -> bool:
        """Whether the file has a seal, that is, our writer made it."""
        return self._seal is not None

    def chunk(self, group: int, leaf: int) -> ColumnChunk:
        """Return the footer's column chunk of one leaf in one row group."""
        return self.footer.chunks[group][leaf]

    def dictionary(self, group: int, leaf: int) -> Dictionary | None:
        """Return the dictionary of a column chunk, if it was decoded."""
        return self._dictionaries.get((group, leaf))

    def keep_dictionary(self, group: int, leaf: int, dictionary: Dictionary) -> None:
        """Keep a dictionary, so that it is not read again."""
        if self._dictionaries.setdefault((group, leaf), dictionary) is dictionary:
            self._size_bytes += dictionary.size_bytes

    def group_bounds(self, leaf: int) -> PageBounds:
        """Return the bounds of each row group's values of the first row key."""
        known = self._bounds.get((-1, leaf))
        if known is None:
            chunks = [group[leaf] for group in self.footer.chunks]
            trusted = self._bounds_are_ordered(leaf)
            known = bounds_of(
                [chunk.minimum if trusted else None for chunk in chunks],
                [chunk.maximum if trusted else None for chunk in chunks],
                physical_type=self.footer.leaves[leaf].physical_type,
                ordered=True,
            )
            self._remember_bounds((-1, leaf), known)
        return known

    def locations(self, group: int, leaf: int) -> PageLocations:
        """Return the places of a column's pages. `load` must have been called for it."""
        return self._locations[group, leaf]

    def bounds(self, group: int, leaf: int) -> PageBounds:
        """Return the bounds of a key column's pages. `load` must have been called."""
        return self._bounds[group, leaf]

    def filters(self, group: int, leaves: tuple[int, ...]) -> tuple[BloomFilter | None, ...]:
        """Return the filters of key columns, None for a column without a sealed filter; () if there
        is none at all. `load_filters` must have been called.
        """
        return self._filters[group, leaves]

    def has_filters(self, group: int, leaves: tuple[int, ...]) -> bool:
        """Return whether `load_filters` was called for a row group."""
        return (group, leaves) in self._filters

    @property
    def filtered_groups(self) -> int:
        """The number of row groups whose filters are loaded."""
        return len(self._filters)

    def filter_places(
        self, groups: Iterable[int], leaves: tuple[int, ...]
    ) -> list[tuple[int, int]]:
        """Return where the filters of key columns are that `load_filters` reads."""
        places = (self.chunk(*each).bloom_filter for each in self._filtered_chunks(groups, leaves))
        return [place for place in places if place is not None]

    def _filtered_chunks(
        self, groups: Iterable[int], leaves: tuple[int, ...]
    ) -> list[tuple[int, int]]:
        return [
            (group, leaf)
            for group in groups
            for leaf in leaves
            if (group, leaf) in self._filter_sums and leaf not in self._converted_leaves
        ]

    def load_filters(
        self, groups: Iterable[int], leaves: tuple[int, ...], read: ReadRanges
    ) -> None:
        """Load the filters of key columns; all missing ones are read in one call.

        Raises:
            ValueError: a filter is damaged.
        """
        missing = [group for group in groups if not self.has_filters(group, leaves)]
        if not missing:
            return
        chunks = self._filtered_chunks(missing, leaves)
        places = self.filter_places(missing, leaves)
        blobs = read(places) if places else []
        found = {each: self._checked_filter(each, d) for each, d in zip(chunks, blobs, strict=True)}
        for group in missing:
            each = tuple(found.get((group, leaf)) for leaf in leaves)
            self._filters[group, leaves] = each if any(each) else ()
            self._size_bytes += 200 + sum(one.size_bytes for one in each if one is not None)

    def _checked_filter(self, place: tuple[int, int], data: bytes) -> BloomFilter | None:
        if zlib.crc32(data) != self._filter_sums[place]:
            raise ValueError("a Bloom filter does not match the file's seal")
        return read_filter(data)

    def note_checksums(self, pages: Sequence[Page]) -> None:
        """Record whether pages that were read had checksums."""
        if self.has_checksums and not all(page.has_checksum for page in pages):
            self.has_checksums = False

    def value_counts(self, group: int, leaf: int) -> Ints | None:
        """Return the number of values of each page of a repeated column; None if the file does not
        record it.
        """
        return self._value_counts.get((group, leaf))

    @property
    def has_page_sums(self) -> bool:
        """Whether the file has a checksum for every run of its pages."""
        return self._sums is not None

    def page_sums(self, chunks: Sequence[tuple[int, int]], read: ReadRanges) -> list[bytes]:
        """Return the bytes of the page sums of some chunks, given by row group and leaf."""
        assert self._sums is not None, "this file has none"
        leaves = len(self.footer.leaves)
        places = [self._sums.place(group * leaves + leaf) for group, leaf in chunks]
        return [data or b"" for data in self._blobs(places, read)]

    def load(
        self,
        groups: Iterable[int],
        leaves: tuple[int, ...],
        key_leaves: tuple[int, ...],
        read: ReadRanges,
    ) -> None:
        """Load page locations of `leaves`, and bounds of `key_leaves` (some of them).

        Raises:
            ValueError: an index is damaged.
        """
        groups = [group for group in groups if (group, leaves, key_leaves) not in self._ready]
        if not groups:
            return
        missing = [
            (group, leaf)
            for group in groups
            for leaf in leaves
            if (group, leaf) not in self._locations
            or (leaf in key_leaves and (group, leaf) not in self._bounds)
        ]
        places = []
        for group, leaf in missing:
            chunk = self.chunk(group, leaf)
            places.append(chunk.offset_index)
            useful = leaf in key_leaves or self.footer.leaves[leaf].repetition_max
            places.append(chunk.column_index if useful else None)
        blobs = self._blobs(places, read)
        self._parse_locations(missing, blobs[::2])
        for number, (group, leaf) in enumerate(missing):
            if leaf in key_leaves:
                self._parse_bounds(group, leaf, blobs[2 * number + 1], first=leaf == key_leaves[0])
            elif (about := blobs[2 * number + 1]) is not None:
                self._parse_value_counts(group, leaf, about)
        if len(self._ready) > READY_MAX:
            self._ready.clear()
        self._ready.update((group, leaves, key_leaves) for group in groups)

    def _blobs(
        self, places: Sequence[tuple[int, int] | None], read: ReadRanges
    ) -> list[bytes | None]:
        """Return the bytes of each place, from memory if they are held there."""
        blobs: list[bytes | None] = []
        unread = []
        for number, place in enumerate(places):
            if place is None:
                blobs.append(None)
            elif place[0] >= self._held_at:
                start = place[0] - self._held_at
                blobs.append(self._held[start : start + place[1]])
            else:
                blobs.append(None)
                unread.append((number, place))
        if unread:
            for (number, _), data in zip(unread, read([p for _, p in unread]), strict=True):
                blobs[number] = data
        return blobs

    def _parse_locations(
        self, places: Sequence[tuple[int, int]], blobs: Sequence[bytes | None]
    ) -> None:
        """Parse the offset indexes of chunks whose locations are not known yet."""
        indexed: list[tuple[int, int]] = []
        indexes: list[tuple[bytes, int]] = []
        for (group, leaf), data in zip(places, blobs, strict=True):
            if (group, leaf) in self._locations:
                continue
            row_count = self.footer.row_counts[group]
            if data is None:
                chunk = self.chunk(group, leaf)
                self._remember_locations(
                    (group, leaf), whole_chunk(chunk.offset, chunk.size, row_count)
                )
            else:
                self._check_seal(data, group, leaf, 1)
                indexed.append((group, leaf))
                indexes.append((data, row_count))
        for place, found in zip(indexed, read_offset_indexes(indexes), strict=True):
            chunk = self.chunk(*place)
            found.check_tiles(chunk.first_data_page, chunk.end)
            self._remember_locations(place, found)

    def _remember_locations(self, place: tuple[int, int], locations: PageLocations) -> None:
        self._locations[place] = locations
        self._size_bytes += locations.size_bytes

    def _parse_bounds(self, group: int, leaf: int, data: bytes | None, *, first: bool) -> None:
        if data is not None:
            self._check_seal(data, group, leaf, 0)
        physical_type = self.footer.leaves[leaf].physical_type
        pages = len(self._locations[group, leaf].offsets)
        paged = self._locations[group, leaf].page_each
        if data is None or not paged or not self._bounds_are_ordered(leaf):
            nothing = [None] * pages
            found = bounds_of(nothing, nothing, physical_type=physical_type, ordered=first)
        else:
            found = read_column_index(data, physical_type=physical_type, pages=pages, ordered=first)
        self._remember_bounds((group, leaf), found)

    def _parse_value_counts(self, group: int, leaf: int, data: bytes) -> None:
        self._check_seal(data, group, leaf, 0)
        about = self.footer.leaves[leaf]
        found = read_value_counts(
            data, definition_max=about.definition_max, repetition_max=about.repetition_max
        )
        locations = self._locations[group, leaf]
        if found is None or not locations.page_each:
            return
        counts, row_counts = found
        if not np.array_equal(row_counts, np.diff(locations.first_rows)):
            raise ValueError("a column index and its offset index differ in their number of rows")
        if (
            len(counts) != len(locations.offsets)
            or counts.sum() != self.chunk(group, leaf).value_count
        ):
            raise ValueError("a column index and its column chunk differ in their number of values")
        self._value_counts[group, leaf] = counts
        self._size_bytes += counts.nbytes + 200

    def _remember_bounds(self, place: tuple[int, int], bounds: PageBounds) -> None:
        self._bounds[place] = bounds
        self._size_bytes += bounds.size_bytes

    def _bounds_are_ordered(self, leaf: int) -> bool:
        """Return whether the bounds of a leaf can be used.

        They cannot in old files, which compare bytes as signed, and for values that are stored in
        another unit than the table's.
        """
        if leaf in self._converted_leaves:
            return False
        return self.footer.bounds_ordered or self.footer.leaves[leaf].physical_type != _BYTE_ARRAY

    def check_indexes(self, read: ReadRanges) -> None:
        """Check every page index against the file's seal, once; a file without one passes.

        Raises:
            ValueError: an index differs from the bytes that were written.
        """
        if self._seal is None or self._indexes_checked:
            return
        together: list[tuple[int, int, int, tuple[int, int]]] = []
        size = 0
        for group, chunks in enumerate(self.footer.chunks):
            for leaf, chunk in enumerate(chunks):
                for which, place in enumerate((chunk.column_index, chunk.offset_index)):
                    if place is not None:
                        together.append((group, leaf, which, place))
                        size += place[1]
            if size > CHECKED_BYTES:
                self._check_blobs(together, read)
                together, size = [], 0
        self._check_blobs(together, read)
        self._indexes_checked = True

    def _check_blobs(
        self, together: Sequence[tuple[int, int, int, tuple[int, int]]], read: ReadRanges
    ) -> None:
        blobs = self._blobs([place for _, _, _, place in together], read)
        for (group, leaf, which, _), data in zip(together, blobs, strict=True):
            if data is not None:
                self._check_seal(data, group, leaf, which)

    def _check_seal(self, data: bytes, group: int, leaf: int, which: int) -> None:
        if self._seal is not None:
            self._seal.check_index(data, group, leaf, which, len(self.footer.leaves))


def _same(one: pa.Schema, other: pa.Schema) -> bool:
    return one is other or bool(one.equals(other))


# ---------------------------------------------------------------- index cache
#
# A bounded cache of file indexes. Data files never change, so entries are never stale.


class IndexCache:
    """The most recently used indexes, up to `bytes_max` bytes by their own account.

    An index grows while it is used, because it parses parts at their first use; `put` measures it
    again. An index that is larger than the whole cache is not kept. Files that only scans used are
    dropped before any file of a look-up, so a scan of many files does not slow look-ups down. Safe
    for threads.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, tuple[ParquetIndex, int]] = OrderedDict()
        self._of_scans: OrderedDict[str, tuple[ParquetIndex, int]] = OrderedDict()
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """The size of all indexes, as last measured."""
        return self._bytes

    def get(self, filename: str, *, scan: bool = False) -> ParquetIndex | None:
        """Return the index of a file and mark it as used; None if it is not cached.

        Args:
            filename: The file.
            scan: Whether a scan asks. A file that a look-up asks for is one of look-ups from then
                on.
        """
        with self._lock:
            entry = self._entries.get(filename)
            if entry is not None:
                if not scan:
                    self._entries.move_to_end(filename)
                return entry[0]
            entry = self._of_scans.get(filename)
            if entry is None:
                return None
            if scan:
                self._of_scans.move_to_end(filename)
            else:
                self._entries[filename] = self._of_scans.pop(filename)
            return entry[0]

    def put(self, index: ParquetIndex, *, scan: bool = False) -> None:
        """Add an index, or measure it again; drop the least recently used ones beyond the bound."""
        size = index.size_bytes
        name = index.filename
        with self._lock:
            entries = self._of_scans if scan and name not in self._entries else self._entries
            known = entries.get(name) or self._of_scans.pop(name, None)
            if known is not None:
                if known[0] is index and known[1] == size and name in entries:
                    return
                self._bytes -= known[1]
            entries[name] = (index, size)
            self._bytes += size
            entries.move_to_end(name)
            while self._bytes > self._bytes_max:
                _, (_, dropped) = (self._of_scans or self._entries).popitem(last=False)
                self._bytes -= dropped

    def __len__(self) -> int:
        return len(self._entries) + len(self._of_scans)

    def drop_unless(self, is_wanted: Callable[[str], bool]) -> list[str]:
        """Drop the files that are not wanted; return them."""
        with self._lock:
            known = [*self._entries, *self._of_scans]
        dropped = [name for name in known if not is_wanted(name)]
        for name in dropped:
            self.drop(name)
        return dropped

    def drop(self, filename: str) -> None:
        """Drop a file, so that the next look-up reads its footer again."""
        with self._lock:
            entry = self._entries.pop(filename, None) or self._of_scans.pop(filename, None)
            if entry is not None:
                self._bytes -= entry[1]


# ---------------------------------------------------------------- single flight
#
# Makes a call once for all threads that need its result at the same time.

T = TypeVar("T")


class SingleFlight:
    """Calls that are being made now, by key. Nothing is kept when they end. Safe for threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._under_way: dict[Hashable, Future[Any]] = {}

    def run(self, key: Hashable, call: Callable[[], T]) -> T:
        """Return the result of `call`, or of a call with the same key that another thread makes.

        No lock is held during the call. What it raises is raised in every thread that waits for it.
        If it is interrupted, as by Ctrl-C, only its own thread is; another one makes the call.
        """
        while True:
            with self._lock:
                other = self._under_way.get(key)
                if other is None:
                    own = self._under_way[key] = Future[Any]()
            if other is None:
                return self._make(key, own, call)
            try:
                found: T = other.result()
            except _InterruptedError:
                continue
            return found

    def _make(self, key: Hashable, own: Future[Any], call: Callable[[], T]) -> T:
        try:
            result = call()
        except BaseException as error:
            self._end(key)
            own.set_exception(error if isinstance(error, Exception) else _InterruptedError())
            raise
        self._end(key)
        own.set_result(result)
        return result

    def _end(self, key: Hashable) -> None:
        with self._lock:
            del self._under_way[key]


class _InterruptedError(Exception):
    """The thread that made the call was interrupted."""
