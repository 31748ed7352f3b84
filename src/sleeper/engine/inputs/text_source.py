"""A file of text that is lent to readers of pyarrow, and given back by their threads.

Readers of CSV and JSON read ahead in a thread of Arrow, which goes on for a moment when a reader is
given up because of an error. A thread that then lets go of a Python file while Python ends aborts
the process. So whoever opens a file waits until no reader has it.
"""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Any, Final

_log = logging.getLogger(__name__)

_WAIT_S: Final = 60.0


class TextSource:
    """A file that counts the quotes in what is read of it.

    Attributes:
        quotes: How many quotes were read.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._given_back: list[threading.Event] = []
        self.quotes = 0

    def read(self, size: int | None = None) -> bytes:
        """Read some bytes; none at the end."""
        body = bytes(self._file.read(size))
        self.quotes += body.count(b'"')
        return body

    def lend(self) -> LentSource:
        """Return a file for one reader. Only the reader may hold it."""
        lent, given_back = LentSource(self), threading.Event()
        self._given_back.append(given_back)
        weakref.finalize(lent, given_back.set).atexit = False
        return lent

    def wait_for_readers(self) -> None:
        """Wait until no reader has the file, nor a thread of one."""
        for given_back in self._given_back:
            if not given_back.wait(_WAIT_S):
                _log.warning("a reader of text still has its file after %.0f s", _WAIT_S)


class LentSource:
    """A source in the hands of a reader: the part of a Python file that pyarrow uses.

    Attributes:
        read: Reads some bytes. It is the source's, so that no traceback of it holds this value.
        closed: Whether the reader needs it no more. The source stays open.
    """

    def __init__(self, source: TextSource) -> None:
        self.read = source.read
        self.closed = False

    def readable(self) -> bool:
        """Return whether it can be read."""
        return True

    def seekable(self) -> bool:
        """Return whether it has places to go to."""
        return False

    def writable(self) -> bool:
        """Return whether it can be written."""
        return False

    def close(self) -> None:
        """End the use of it. The file stays open."""
        self.closed = True
