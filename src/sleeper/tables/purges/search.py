"""Searches all that is stored for purged keys, once everything is done: what a proof rests on.

1. data files, and results of queries and exports, are decoded column by column: rows with a whole
   key, and values equal to one in other columns; their sketches are decoded as well
2. other Parquet files, such as parts of the state, are decoded, and keys looked for in their texts
3. of each object the bytes that are no pages are searched; compressed JSON is decompressed
4. entries of the log and the newest state are compared value by value, which finds numbers too

Memory is that of the keys, of 65,536 rows, and of 8 MiB of an object.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sleeper.engine.byte_search import ByteSearch, count_equal, joined_bytes, texts_of
from sleeper.engine.processing.known_keys import count_with_keys
from sleeper.engine.sketches.stored_sketch import read_stored_sketch
from sleeper.errors import DataDamaged, ObjectNotFound, ObjectTooShort
from sleeper.lookup.parquet.file_end import FileOfRanges, range_reader
from sleeper.model.files import FileReference
from sleeper.ports.objects import ObjectInfo, Objects
from sleeper.state.table_state import TableState
from sleeper.tables.open_table import OpenTable
from sleeper.tables.purges.files import referenced_files
from sleeper.tables.purges.keys import PurgedKeys
from sleeper.tables.purges.records import PURGES, Mention, PurgeFinding, Searched
from sleeper.tables.purges.versions import entries_with_keys

T = TypeVar("T")

_log = logging.getLogger(__name__)

_BATCH_ROWS: Final = 65_536
_CHUNK_BYTES: Final = 8 << 20
_AGAIN: Final = "Purge the same keys again"
_REFUSED: Final = (OSError, ValueError, pa.ArrowException, KeyError)

_ENDS: Final = "ends of data files"
_NAMES: Final = "names of objects"
_KINDS: Final = (
    ("data/", "data files"),
    ("statestore/transactions/", "entries of the log"),
    ("statestore/", "states"),
    ("states/", "states"),
    ("published/", "published versions"),
    ("_delta_log/", "published versions"),
    ("iceberg/", "published versions"),
    (PURGES, "proofs of purges"),
)


@dataclass(slots=True)
class Found:
    """What a search has found so far.

    Attributes:
        findings: What has a key.
        mentions: Columns of other rows that have a key as their value.
        searched: How many objects of each kind, and their bytes.
    """

    findings: list[PurgeFinding] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)
    searched: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, where: str, what: str, next_step: str = _AGAIN) -> None:
        """Note something that has a key."""
        self.findings.append(PurgeFinding(where=where, what=what, next_step=next_step))

    def note(self, kind: str, size_bytes: int) -> None:
        """Note that an object was searched."""
        objects, total = self.searched.get(kind, (0, 0))
        self.searched[kind] = objects + 1, total + size_bytes

    def summary(self) -> tuple[Searched, ...]:
        """Return what was searched."""
        return tuple(
            Searched(kind=kind, objects=objects, size_bytes=size)
            for kind, (objects, size) in sorted(self.searched.items())
        )


class Search:
    """A search for the keys of a purge.

    Args:
        table: The table.
        keys: The keys.
    """

    def __init__(self, table: OpenTable, keys: PurgedKeys) -> None:
        self._table = table
        self._keys = keys
        texts = keys.texts()
        self._bytes = ByteSearch(texts)
        self._values = pa.array(texts, pa.large_binary())
        self.found = Found()

    def search_table(self, before: int) -> Found:
        """Search the table's folder, its log and its state.

        Args:
            before: Versions before this transaction have ended.

        Raises:
            StorageFailed: the storage cannot be read.
        """
        searched = set[str]()
        with_texts = self._bytes.named(self._undecoded(self._table.files, searched))
        for key, kind in dict.fromkeys(with_texts):
            self._add_text(key, kind)
        self._search_log(before)
        state = self._table.store.refresh()
        self._search_added(state, searched)
        for what in self._keys.named_in(state):
            self.found.add("the newest state", f"{what} is a purged key")
        return self.found

    def _search_added(self, state: TableState, searched: set[str]) -> None:
        """Search the files that others have added since the table's folder was listed."""
        for name in referenced_files(state):
            if name in searched:
                continue
            size = self._table.files.size(name)
            self.found.note("data files", size)
            if self.has_rows(self._table.files, name):
                self.found.add(name, "rows with a purged key were added during the search")

    def rows_of(self, key: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of a data file; nothing of one that was deleted meanwhile.

        Raises:
            DataDamaged: it cannot be read.
        """
        try:
            yield from self._rows(self._parquet(self._table.files, key), [*columns], key)
        except ObjectNotFound as gone:
            _log.info("%s was deleted while keys were looked for: %s", key, gone)

    def has_rows(self, objects: Objects, key: str) -> bool:
        """Return whether a Parquet file has rows with a purged key; False for one without keys.

        Raises:
            DataDamaged: it cannot be read.
        """
        names = {*self._table.schema.row_key_names}
        file = self._parquet(objects, key)
        if not names <= {*file.schema_arrow.names}:
            return False
        return any(
            count_with_keys(rows, self._keys.table) for rows in self._rows(file, sorted(names), key)
        )

    def has_text(self, objects: Objects, info: ObjectInfo) -> bool:
        """Return whether a key stands among the bytes of an object."""
        return any(self._bytes.count(piece) for piece in self._pieces(objects, info, 0))

    def is_in(self, text: str) -> bool:
        """Return whether a key stands in a text."""
        return self._bytes.count(_encoded(text)) > 0

    def is_in_name(self, key: str) -> bool:
        """Return whether a key stands in the name of an object, which may go on after a dot."""
        return self.is_in(_cut_name(key))

    def named(self, items: Iterable[tuple[T, str]]) -> Iterator[T]:
        """Yield each item in whose text a key stands."""
        return self._bytes.named((item, _encoded(text)) for item, text in items)

    def _undecoded(
        self, files: Objects, searched: set[str]
    ) -> Iterator[tuple[tuple[str, str], bytes]]:
        """Search what is decoded, and yield the bytes of other objects, with key and kind.

        Args:
            files: The table's folder.
            searched: Gets the key of each object that was not deleted meanwhile.
        """
        for info in files.listing():
            kind = next((kind for start, kind in _KINDS if info.key.startswith(start)), "others")
            yield (info.key, _NAMES), _encoded(_cut_name(info.key))
            try:
                if info.key.startswith("data/") and info.key.endswith(".parquet"):
                    for piece in self._search_rows(files, info):
                        yield (info.key, _ENDS), piece
                elif info.key.endswith(".parquet"):
                    self._search_texts(files, info)
                elif info.key.endswith(".zlib"):
                    self._search_compressed(files, info)
                else:
                    for piece in self._pieces(files, info, 0):
                        yield (info.key, kind), piece
            except (ObjectNotFound, ObjectTooShort) as gone:
                _log.info("%s was deleted while it was searched: %s", info.key, gone)
                continue
            self.found.note(kind, info.size_bytes)
            searched.add(info.key)

    @cached_property
    def is_by_values(self) -> bool:
        """Whether some keys are looked for in decoded values alone, and not in texts."""
        return self._keys.only_as_values() > 0

    @cached_property
    def _sketched(self) -> set[Any]:
        return self._keys.sketched()

    # Parquet.

    def _search_rows(self, files: Objects, info: ObjectInfo) -> Iterator[bytes]:
        """Decode a data file: whole keys, and values of other columns; yield what is no page."""
        names = self._table.schema.row_key_names
        file = self._parquet(files, info.key)
        rows_with, mentions = 0, dict[str, int]()
        for rows in self._rows(file, None, info.key):
            rows_with += count_with_keys(rows, self._keys.table)
            for column, texts in texts_of(rows):
                if column not in names and (equal := count_equal(texts, self._values)):
                    mentions[column] = mentions.get(column, 0) + equal
        if rows_with:
            self.found.add(info.key, f"{rows_with} rows have a purged key")
        self.found.mentions += [
            Mention(where=info.key, column=column, rows=count) for column, count in mentions.items()
        ]
        self._search_sketch(files, info.key)
        if not mentions and not rows_with:
            yield from self._pieces(files, info, _end_of_pages(file))

    def _search_sketch(self, files: Objects, name: str) -> None:
        if not self._keys.is_single:
            return  # its values are those of single fields, which other rows have too
        about = FileReference(filename=name, partition_id="", row_count=0)
        try:
            sketch = read_stored_sketch(files, about, self._table.schema)
        except DataDamaged as damage:
            self.found.add(name, f"its sketch cannot be read: {damage}", "Run `sleeper verify`")
            return
        if sketch is None:
            return
        if any(not self._sketched.isdisjoint(each.values) for each in sketch.distributions):
            self.found.add(name, "its sketch has a purged key")

    def _search_texts(self, files: Objects, info: ObjectInfo) -> None:
        """Decode another Parquet file, such as a part of a state, and search all its texts."""
        file = self._parquet(files, info.key)
        for rows in self._rows(file, None, info.key):
            if any(self._bytes.count(joined_bytes(texts)) for _, texts in texts_of(rows)):
                self.found.add(info.key, "its values have a purged key")
                return
        if any(self._bytes.count(piece) for piece in self._pieces(files, info, 0)):
            self.found.add(info.key, "its bytes have a purged key")

    def _parquet(self, files: Objects, key: str) -> Any:
        read = range_reader(files.read_ranges, key)
        try:
            source = pa.PythonFile(FileOfRanges(read, files.size(key)), mode="r")
            return pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True)
        except _REFUSED as error:
            raise _unreadable(key, error) from error

    def _rows(self, file: Any, columns: list[str] | None, key: str) -> Iterator[pa.Table]:
        try:
            for batch in file.iter_batches(_BATCH_ROWS, columns=columns):
                yield pa.Table.from_batches([batch])
        except _REFUSED as error:
            raise _unreadable(key, error) from error

    # Bytes.

    def _pieces(self, files: Objects, info: ObjectInfo, start: int) -> Iterator[bytes]:
        """Yield the bytes of an object from a place on, in pieces that overlap by a key."""
        overlap = self._bytes.longest + 8
        while start < info.size_bytes:
            length = min(_CHUNK_BYTES, info.size_bytes - start)
            (piece,) = files.read_ranges(info.key, [(start, length)])
            yield piece
            if start + length >= info.size_bytes:
                return
            start += length - overlap

    def _search_compressed(self, files: Objects, info: ObjectInfo) -> None:
        packed = files.read(info.key)
        try:
            body = b"" if packed is None else zlib.decompress(packed)
        except zlib.error as error:
            self.found.add(info.key, f"it cannot be read: {error}", "Run `sleeper verify`")
            return
        if self._bytes.count(body):
            self._add_text(info.key, "entries of the log")

    def _add_text(self, key: str, kind: str) -> None:
        step, what = _AGAIN, "its bytes have a purged key"
        if kind == "published versions":
            step = "Run `sleeper unpublish TABLE`, and purge the same keys again"
        if kind == _NAMES:
            what, step = "its name has a purged key", f"Delete or rename it. {_AGAIN}"
        if kind == _ENDS:
            what = "its footer or its indexes have a purged key"
        self.found.add(key, what, step)

    # The log.

    def _search_log(self, before: int) -> None:
        store = self._table.store
        if store.log is None:
            return
        move = self._table.properties.state_move

        first, with_values = 1 if move is None else move.number, list[int]()
        entries = entries_with_keys(store.log, self._keys, first)

        def bodies() -> Iterator[tuple[int, bytes]]:
            for number, body, has_value in entries:
                self.found.note("entries of the log, value by value", len(body))
                if has_value:
                    with_values.append(number)
                yield number, body

        for number in self._bytes.named(bodies()):
            self.found.add(f"entry {number} of the log", "it has a purged key")
        for number in with_values:
            if number <= before:
                self.found.add(f"entry {number} of the log", "it names a purged key")
            elif self._keys.is_single:
                self.found.add(
                    f"entry {number} of the log",
                    "rows with a purged key were added, or such a key asked for, after the purge",
                )


def _cut_name(key: str) -> str:
    """Return the parts of an object's name, whole and up to each dot: keys do not end in `.txt`."""
    parts = key.split("/")
    cut = {part[: dot.start()] for part in parts for dot in re.finditer(r"\.", part) if dot.start()}
    return "\0".join([key, *sorted(cut)])


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _end_of_pages(file: Any) -> int:
    """Return where the pages of a Parquet file end; they are decoded, and the rest is not."""
    metadata, end = file.metadata, 0
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for place in range(row_group.num_columns):
            chunk = row_group.column(place)
            starts = [chunk.data_page_offset, chunk.dictionary_page_offset]
            start = min(each for each in starts if each is not None)
            end = max(end, start + chunk.total_compressed_size)
    return end


def _unreadable(key: str, error: Exception) -> DataDamaged:
    return DataDamaged(
        f"{key!r} cannot be read, so whether it has purged keys is not known: {error}. Run "
        "`sleeper verify`, restore it from a copy, and purge the same keys again"
    )


def result_objects(objects: Objects, table_id: str) -> Iterator[ObjectInfo]:
    """Yield the results of queries, and the exports of a table, that the instance has."""
    for folder in result_folders(table_id):
        yield from objects.listing(folder)


def result_folders(table_id: str) -> tuple[str, str]:
    """Return the folders of results of queries, and of exports of a table."""
    return "query_results/", f"bulk_export/{table_id}/"


def note_shared_values(table: OpenTable, keys: PurgedKeys) -> None:
    """Find out which values of row keys of several fields other rows of files have, too.

    Rows count that no reader sees any more: their keys are not those that have to go.

    Raises:
        DataDamaged: a file cannot be read.
    """
    if keys.is_single:
        return
    search, names = Search(table, keys), table.schema.row_key_names
    wanted = [keys.table.column(name).combine_chunks() for name in names]
    shared: list[set[Any]] = [set() for _ in names]
    for info in table.files.listing("data/"):
        if info.key.endswith(".parquet"):
            for rows in search.rows_of(info.key, names):
                for place, name in enumerate(names):
                    here = rows.column(name)
                    found = here.filter(pc.is_in(here, value_set=wanted[place]))
                    shared[place] |= {*pc.unique(found).to_pylist()}
    keys.note_shared(shared)
