"""Frames in the pipes between a server and its processes of statements.

A frame is a kind (one byte), a length (four bytes) and so many bytes. The server sends one for each
call. The process answers with a `HEAD`, any number of `PART`s, and an `END`; or with a `PROBLEM` or
a `FAULT` at any point, which ends the answer.
"""

from __future__ import annotations

import struct
from typing import BinaryIO, Final

CALL: Final = b"C"
"""From the server: a pickled call."""

READY: Final = b"R"
"""The process can take calls."""

HEAD: Final = b"H"
"""The media type and the headers of an answer, as JSON."""

PART: Final = b"P"
"""The next bytes of an answer."""

END: Final = b"E"
"""The end of an answer. With content: the process ends, too."""

PROBLEM: Final = b"S"
"""An error of `sleeper.errors`, as a problem document; the process can run another call."""

FAULT: Final = b"F"
"""The traceback of another error; the process ends."""

SHORTAGE: Final = b"M"
"""Memory ran out; the process ends."""

PART_BYTES: Final = 1 << 20
"""A part has at most so many bytes, so that the server never holds more of a row."""

PREFIX: Final = struct.Struct("!cI")


def write_frame(file: BinaryIO, kind: bytes, content: bytes = b"") -> None:
    """Write a frame to a pipe."""
    file.write(PREFIX.pack(kind, len(content)) + content)
    file.flush()


def read_frame(file: BinaryIO) -> tuple[bytes, bytes]:
    """Return the next frame of a pipe.

    Raises:
        EOFError: there is none.
    """
    kind, size = PREFIX.unpack(_exactly(file, PREFIX.size))
    return kind, _exactly(file, size)


def _exactly(file: BinaryIO, size: int) -> bytes:
    content = file.read(size)
    if len(content) < size:
        raise EOFError
    return content
