"""A bounded cache of file indexes. Data files never change, so entries are never stale."""

from __future__ import annotations

import threading
from collections import OrderedDict

from sleeper.lookup.parquet_index import ParquetIndex


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

    def drop(self, filename: str) -> None:
        """Drop a file, so that the next look-up reads its footer again."""
        with self._lock:
            entry = self._entries.pop(filename, None) or self._of_scans.pop(filename, None)
            if entry is not None:
                self._bytes -= entry[1]
