"""Looks up exact keys in data files; reads only pages that can contain them.

Words: an index is what is known of a file without its pages: footer, page indexes, Bloom filters;
a seal is our writer's checksum of these; a range is bytes of a file from one place to another.

1. files whose cached index shows that they lack the only key are left out (`_is_absent`)
2. the index of a file is taken from the cache, or read from the end of the file; of a remote file
   what was read beside it is kept (`_open`)
3. a file without our seal is read once, to check that its rows are in key order
4. if the file is remote and one key is looked up, all pages that it may need are requested at once
   (`read_key_ahead`)
5. key columns are searched page by page (`find_rows`), value columns are read for found rows alone
6. an error of damaged bytes drops the index from the cache and names the file (`_guarded`); if a
   disk cache had something of the file, that is deleted, and the file is read again first

Where there is a disk cache, the ends of files, and what keys and small ranges need of them, are
read through it; what scans read is not, as it would drive that out.

`check` and `inspect` give other readers the same indexes. docs/lookup.md says how the parts of this
folder work together.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pyarrow as pa

from sleeper.errors import DataDamaged, ObjectNotFound, ObjectTooShort, SleeperError
from sleeper.lookup.column_reader import DECODING_ERRORS
from sleeper.lookup.columns import FieldInFiles, WantedColumns
from sleeper.lookup.key_search import KeyRows, find_rows, read_rows
from sleeper.lookup.keys import LookupKeys
from sleeper.lookup.parquet.file_end import FileEnd, ReadRanges, range_reader, read_file_end
from sleeper.lookup.parquet_index import IndexCache, ParquetIndex, SingleFlight
from sleeper.lookup.read_ahead import PAGES_BYTES_MAX, ReadAhead, is_absent, read_key_ahead
from sleeper.lookup.sorted_rows import check_key_order
from sleeper.ports.objects import Objects

if TYPE_CHECKING:
    from sleeper.ports.read_cache import CachedFiles, ReadCache

T = TypeVar("T")

logger = logging.getLogger(__name__)

UNKNOWN_READ_BYTES = 256 << 10
"""Bytes of the first read of a remote file whose size is not known."""

MANY_KEYS = 256
"""From this number of keys on, files are read in parallel: decoding takes longer than starting
threads."""


class _Call(NamedTuple):
    """The arguments of one call, for every file."""

    keys: LookupKeys
    schema: pa.Schema
    result: pa.Schema
    names: tuple[str, ...]
    nothing: pa.Table
    file_count: int


class LookupReader:
    """Finds rows by exact key in sorted Parquet files. Safe for threads.

    Files never change, so their footers, page indexes and Bloom filters are cached, up to
    `cache_bytes`. In addition a call needs, for each file that it reads, memory for about 8 MiB of
    compressed pages, their decoded values, and the found rows.

    If the files are remote, requests that do not depend on each other are made at once: for all
    files of a call, and for all that one key needs of a file. Threads that read the same at the
    same time share one request. No lock is held during a request.

    Args:
        files: The folder of the files.
        cache_bytes: Bound for footers, page indexes and Bloom filters together.
        ordered_by: The table's schema and its key fields. A file without our seal is read once to
            check that its rows have this order. None to trust every file.
        fields: How files have the table's fields, by name, once its columns were changed; else
            None.
        read_cache: Keeps what is read of the files for other processes; None if nothing does.

    Attributes:
        is_remote: Whether requests for the files take milliseconds.
    """

    def __init__(
        self,
        files: Objects,
        *,
        cache_bytes: int = 256 << 20,
        ordered_by: tuple[pa.Schema, Sequence[str]] | None = None,
        fields: Mapping[str, FieldInFiles] | None = None,
        read_cache: ReadCache | None = None,
    ) -> None:
        self._files = files
        self._kept = None if read_cache is None else read_cache.over(files)
        self.is_remote = files.is_remote
        self._ordered_by = ordered_by
        self._fields = fields
        self._cache = IndexCache(cache_bytes)
        self._flights = SingleFlight()
        self._sizes: dict[str, int] = {}  # of files that are not open yet
        self._last_result: tuple[pa.Schema, tuple[str, ...] | None, pa.Schema, pa.Table] | None = (
            None
        )

    @property
    def cached_bytes(self) -> int:
        """The approximate size of cached footers, indexes and filters in memory."""
        return self._cache.size_bytes

    @property
    def cached_count(self) -> int:
        """The number of files that are cached."""
        return len(self._cache)

    def forget_unless(self, is_wanted: Callable[[str], bool]) -> list[str]:
        """Drop cached files that are not wanted, and return them."""
        return self._cache.drop_unless(is_wanted)

    def unopened(self, filenames: Sequence[str]) -> list[str]:
        """Return the files that are not cached: opening them needs their size."""
        return [name for name in filenames if self._cache.get(name, scan=True) is None]

    def note_sizes(self, sizes: Mapping[str, int]) -> None:
        """Store sizes of files, in bytes, which saves requests for them."""
        self._sizes.update(sizes)

    def look_up(
        self,
        filenames: Sequence[str],
        keys: pa.RecordBatch,
        schema: pa.Schema,
        columns: Sequence[str] | None = None,
    ) -> list[pa.Table]:
        """Return the rows that have one of the keys, as one table for each file.

        Args:
            filenames: The files, each sorted by row keys.
            keys: One column for each row key field, in schema order and of its type; ascending,
                distinct, without nulls.
            schema: The table's schema: row keys, sort keys, values.
            columns: The columns wanted, in this order; None for all.

        Returns:
            For each file its rows in file order, with the schema's types.

        Raises:
            DataDamaged: a file is missing, damaged or does not fit the schema; the message names
                it.
            StorageFailed: a file cannot be read.
        """
        result, nothing = self._result_of(schema, columns)
        if keys.num_rows == 0:
            return [nothing for _ in filenames]
        call = _Call(LookupKeys(keys), schema, result, tuple(result.names), nothing, len(filenames))
        if self.is_remote:
            return self._look_up_at_once(call, filenames)
        at_once = min(4, os.cpu_count() or 1) if keys.num_rows >= MANY_KEYS else 1
        if at_once == 1 or len(filenames) < 2:
            return [self._in_file(call, filename) for filename in filenames]
        with ThreadPoolExecutor(min(at_once, len(filenames))) as pool:
            return list(pool.map(partial(self._in_file, call), filenames))

    def _look_up_at_once(self, call: _Call, filenames: Sequence[str]) -> list[pa.Table]:
        """Look up in remote files, at once in all of them that must be read."""
        tables = [call.nothing] * len(filenames)
        places = [n for n, name in enumerate(filenames) if not self._is_absent(call, name)]
        found = self.at_once([partial(self._in_file, call, filenames[n]) for n in places])
        for place, table in zip(places, found, strict=True):
            tables[place] = table
        return tables

    def _is_absent(self, call: _Call, filename: str) -> bool:
        """Return whether a file cannot have the only key of a call, if that needs no read."""
        index = self._cache.get(filename) if call.keys.count == 1 else None
        if index is None:
            return False

        def look(_: str) -> bool:
            wanted = index.wanted(call.schema, call.keys.column_count, call.names)
            return is_absent(index, call.keys, wanted)

        return self._guarded(look, filename)

    def at_once(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make calls that read files, and return their results: at once if the files are remote.

        Threads are those of the storage, a bounded number in a process; this thread makes the first
        call. What a call raises is raised.
        """
        if not self.is_remote or len(calls) < 2:
            return [call() for call in calls]
        others = [self._files.beside(call) for call in calls[1:]]
        return [calls[0](), *[wait() for wait in others]]

    def check(self, filenames: Iterable[str]) -> None:
        """Check footers and page indexes of files against their seals.

        Readers that do not check them could return wrong rows because of a damaged index, or
        allocate too much memory. Each file is checked once while it is cached: one read of its end.

        Raises:
            DataDamaged: a file is missing, or its footer or an index is damaged.
            StorageFailed: a file cannot be read.
        """
        self.at_once([partial(self._guarded, self._check_file, name) for name in filenames])

    def inspect(
        self,
        filename: str,
        look: Callable[[ParquetIndex, ReadRanges], T],
        *,
        anew: bool = False,
        keep: bool = False,
    ) -> T:
        """Call `look` with a file's index, which may grow, and return its result.

        Args:
            filename: The file.
            look: Takes the index, and a function that reads ranges of the file.
            anew: Read the index from the file, though it may be in memory or in the disk cache.
            keep: Whether what `look` reads of the file is worth keeping in the disk cache.

        Raises:
            DataDamaged: the file is missing, or `look` raised for damaged bytes.
            StorageFailed: the file cannot be read.
        """

        def look_at(filename: str) -> T:
            if anew:
                self._cache.drop(filename)
            index, read = self._opened(filename, scan=True, keep=keep, anew=anew)
            size = index.size_bytes
            found = look(index, read)
            if index.size_bytes != size:
                self._cache.put(index, scan=True)
            return found

        return self._guarded(look_at, filename)

    def _result_of(
        self, schema: pa.Schema, columns: Sequence[str] | None
    ) -> tuple[pa.Schema, pa.Table]:
        """Return the schema of the result, and a table without rows, which most files return."""
        wanted = None if columns is None else tuple(columns)
        last = self._last_result
        if last is not None and last[1] == wanted and last[0].equals(schema, check_metadata=True):
            return last[2], last[3]
        fields = [schema.field(name) for name in (schema.names if wanted is None else wanted)]
        result = pa.schema(fields)
        # Made of null arrays: empty_table() would import pandas.
        nothing = pa.Table.from_arrays([pa.nulls(0, f.type) for f in fields], schema=result)
        self._last_result = (schema, wanted, result, nothing)
        return result, nothing

    def _in_file(self, call: _Call, filename: str) -> pa.Table:
        """Look up in one file."""
        return self._guarded(partial(self._look_up_file, call), filename)

    def _guarded(self, read_file: Callable[[str], T], filename: str, *, again: bool = False) -> T:
        """Read one file; translate errors of damaged bytes to an error that names the file.

        Whether it is the file that is damaged is known once it was read without the disk cache.
        """
        try:
            return read_file(filename)
        except ObjectNotFound as error:
            self._cache.drop(filename)
            raise DataDamaged(
                f"data file {filename!r} is missing. If this reader is older than the garbage "
                "collector's delay, the file was replaced: try again. If that fails too, "
                "restore the file from a copy, or ingest its rows again."
            ) from error
        except ObjectTooShort as error:
            self._cache.drop(filename)
            raise DataDamaged(
                f"data file {filename!r} is damaged, because it is shorter than when it was "
                f"written: {error} Restore the file from a copy, or ingest its rows again."
            ) from error
        except SleeperError:
            raise
        except DECODING_ERRORS as error:
            self._cache.drop(filename)
            if self._kept is not None and not again and self._kept.drop(filename):
                logger.warning(
                    "data file %r is read again, without what the disk cache had of it: %s",
                    filename,
                    error,
                )
                return self._guarded(read_file, filename, again=True)
            reason = str(error) or type(error).__name__
            raise DataDamaged(
                f"data file {filename!r} is damaged or of the wrong kind: {reason}. "
                "Restore the file from a copy, or ingest its rows again."
            ) from error

    def _check_file(self, filename: str) -> None:
        index, read = self._opened(filename, scan=True, keep=True)
        index.check_indexes(read)

    def _opened(
        self, filename: str, *, scan: bool = False, keep: bool = False, anew: bool = False
    ) -> tuple[ParquetIndex, ReadRanges]:
        """Return a file's index, and a function that reads the file during one call.

        Args:
            filename: The file.
            scan: Whether a scan asks.
            keep: Whether the function reads through the disk cache.
            anew: Whether the index is read without it.
        """
        index = self._cache.get(filename, scan=scan)
        if not self.is_remote:
            read = range_reader(self._files.read_ranges, filename)
            return index or self._open(filename, read, scan=scan), read
        held: Sequence[tuple[int, bytes]] = ()
        kept = None if anew else self._kept
        if index is None:
            open_once = partial(self._open_remote, filename, kept, scan=scan)
            index, held = self._flights.run((filename, anew), open_once)
        read = self._reads(filename, index.file_bytes, kept if keep else None)

        def share(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
            return self._flights.run((filename, *ranges), lambda: read(ranges))

        return index, ReadAhead(share, held)

    def _reads(self, filename: str, size_bytes: int, kept: CachedFiles | None) -> ReadRanges:
        """Return what reads ranges of a file: through the disk cache, if `kept` is given."""
        if kept is None:
            return range_reader(self._files.read_ranges, filename)
        return range_reader(
            lambda name, ranges: kept.read_ranges(name, size_bytes, ranges), filename
        )

    def _open(self, filename: str, read: ReadRanges, *, scan: bool) -> ParquetIndex:
        """Read the footer and page indexes of a local file."""
        size_bytes = self._sizes.pop(filename, None) or self._files.size(filename)
        return self._indexed(filename, read_file_end(size_bytes, read), read, scan=scan)

    def _open_remote(
        self, filename: str, kept: CachedFiles | None, *, scan: bool
    ) -> tuple[ParquetIndex, Sequence[tuple[int, bytes]]]:
        """Read the footer and page indexes of a remote file; return what was read with them."""
        size_bytes, tail = self._sizes.pop(filename, None), b""
        if size_bytes is None:
            tail, size_bytes = (kept or self._files).read_end(filename, UNKNOWN_READ_BYTES)
        ahead = ReadAhead(self._reads(filename, size_bytes, kept))
        if tail:
            ahead.keep(size_bytes - len(tail), tail)
        end = read_file_end(size_bytes, ahead.hold, remote=True, tail=tail)
        read = self._reads(filename, size_bytes, None)
        return self._indexed(filename, end, read, scan=scan), ahead.held

    def _indexed(
        self, filename: str, end: FileEnd, read: ReadRanges, *, scan: bool
    ) -> ParquetIndex:
        """Return the index of a file, and keep it in memory."""
        index = ParquetIndex(filename, end, self._fields)
        if self._ordered_by is not None and not index.is_sealed:
            check_key_order(index, *self._ordered_by, read)
        self._cache.put(index, scan=scan)
        return index

    def _look_up_file(self, call: _Call, filename: str) -> pa.Table:
        index, read = self._opened(filename, keep=True)
        wanted = index.wanted(call.schema, call.keys.column_count, call.names)
        size = index.size_bytes
        if isinstance(read, ReadAhead) and call.keys.count == 1:
            share = PAGES_BYTES_MAX // call.file_count
            read_key_ahead(index, call.keys, wanted, read, share)
        found = find_rows(index, call.keys, wanted, read)
        rows = _table(index, found, call, wanted, read) if found else call.nothing
        if index.size_bytes != size:
            self._cache.put(index)
        return rows


def _table(
    index: ParquetIndex,
    found: Sequence[KeyRows],
    call: _Call,
    wanted: WantedColumns,
    read: ReadRanges,
) -> pa.Table:
    """Read the value columns of the rows; key columns are taken from the keys."""
    if wanted.values:
        parts = read_rows(index, found, wanted.values, read)
    else:
        parts = ((each, []) for each in found)
    batches = []
    for part, arrays in parts:
        by_name = {column.name: array for column, array in zip(wanted.values, arrays, strict=True)}
        places = part.places.repeat(part.ends - part.starts)
        for number, column in enumerate(wanted.keys):
            if column.name in call.names:
                by_name[column.name] = call.keys.values_of(number, places)
        batches.append(
            pa.RecordBatch.from_arrays([by_name[name] for name in call.names], schema=call.result)
        )
    return pa.Table.from_batches(batches, call.result)
