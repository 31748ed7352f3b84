"""A bounded cache of file indexes. Data files never change, so entries are never stale."""

from __future__ import annotations

import threading
from collections import OrderedDict

from sleeper.lookup.parquet_index import ParquetIndex


class IndexCache:
    """The most recently used indexes, up to `bytes_max` bytes by their own account.

    An index grows while it is used, because it parses parts at their first use; `put` measures it
    again. An index that is larger than the whole cache is not kept. Safe for threads.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, tuple[ParquetIndex, int]] = OrderedDict()
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """The size of all indexes, as last measured."""
        return self._bytes

    def get(self, filename: str) -> ParquetIndex | None:
        """Return the index of a file and mark it as used; None if it is not cached."""
        with self._lock:
            entry = self._entries.get(filename)
            if entry is None:
                return None
            self._entries.move_to_end(filename)
            return entry[0]

    def put(self, index: ParquetIndex) -> None:
        """Add an index, or measure it again; drop the least recently used ones beyond the bound."""
        size = index.size_bytes
        with self._lock:
            known = self._entries.get(index.filename)
            if known is not None:
                if known[0] is index and known[1] == size:
                    return
                self._bytes -= known[1]
            self._entries[index.filename] = (index, size)
            self._bytes += size
            self._entries.move_to_end(index.filename)
            while self._bytes > self._bytes_max:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._bytes -= dropped

    def drop(self, filename: str) -> None:
        """Drop a file, so that the next look-up reads its footer again."""
        with self._lock:
            entry = self._entries.pop(filename, None)
            if entry is not None:
                self._bytes -= entry[1]
