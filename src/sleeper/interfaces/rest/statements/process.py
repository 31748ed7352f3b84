"""A process that answers one question after the other, and may use only so much memory.

    serve()    is what the process does until the server needs it no more

The limit is that of data: of memory that is private and can be written to (`RLIMIT_DATA`).
Allocators reserve much more address space than they use, and data files are mapped, so a limit of
addresses would hold too early. Linux alone keeps to it. A process that hits the limit may die
anywhere in native code, so it holds nothing that anybody else needs.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import resource
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from sleeper.engine.sql.session import IDLE
from sleeper.errors import SleeperError
from sleeper.instance.instance import Instance
from sleeper.interfaces.rest.answers import Chunks
from sleeper.interfaces.rest.problems import problem_of
from sleeper.interfaces.rest.request_limits import RequestLimits
from sleeper.interfaces.rest.served_instance import ServedInstance
from sleeper.interfaces.rest.statements.questions import Call
from sleeper.tables.worker_processes import exit_with

# ---------------------------------------------------------------- frames
#
# Frames in the pipes between a server and its processes of statements.
#
# A frame is a kind (one byte), a length (four bytes) and so many bytes. The server sends one for
# each call. The process answers with a `HEAD`, any number of `PART`s, and an `END`; or with a
# `PROBLEM` or a `FAULT` at any point, which ends the answer.

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


_log = logging.getLogger(__name__)

ENVIRONMENT: Final = {"MIMALLOC_ARENA_EAGER_COMMIT": "0"}
"""What allocators read when they are loaded. Else each counts 1 GiB as used from its start."""

_STATUS: Final = Path("/proc/self/status")
_KILLED_FIRST: Final = Path("/proc/self/oom_score_adj")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a process of statements serves, and its limits.

    Attributes:
        instance: The instance.
        limits: Those of the server.
        memory_bytes: Memory that a statement may use, beside what the process itself needs.
        log_level: The lowest level that is logged.
        parent_id: The process of the server.
    """

    instance: Instance
    limits: RequestLimits
    memory_bytes: int
    log_level: int
    parent_id: int


def serve() -> None:
    """Answer the calls that come through standard input, until it ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the server ends this process
    with os.fdopen(os.dup(1), "wb") as results, os.fdopen(os.dup(0), "rb") as calls:
        os.dup2(2, 1)  # nobody else may write there
        _, content = read_frame(calls)
        settings: Settings = pickle.loads(content)  # noqa: S301 - from the server
        watch = threading.Thread(target=exit_with, args=(settings.parent_id,), daemon=True)
        watch.start()
        logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stderr)
        logging.getLogger("sleeper").setLevel(settings.log_level)
        with settings.instance as instance:
            IDLE.memory_bytes = settings.memory_bytes // 2
            _warm_up(instance)
            used = limit_process()
            served = ServedInstance(instance, None, settings.limits, None)
            write_frame(results, READY)
            for call, more_bytes in _calls(calls):
                limit = None if used is None else used + settings.memory_bytes + more_bytes
                limit_data(limit)
                most = None if used is None else used + settings.memory_bytes // 2
                if not _answered(served, call, results, most):
                    break
        os._exit(0)  # threads of engines may still run


def limit_process() -> int | None:
    """Let no file be written when this process dies, and the kernel kill it before the server.

    Returns:
        The memory that it uses before its first call; None where nothing says so.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = _data_bytes()
    if used is not None:
        try:
            _KILLED_FIRST.write_text("800")
        except OSError as error:
            _log.info("the kernel may kill the server before its statements: %s", error)
    return used


def limit_data(limit_bytes: int | None) -> None:
    """Limit the memory of this process; None for a system that cannot."""
    if limit_bytes is not None:
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = limit_bytes if most == resource.RLIM_INFINITY else min(limit_bytes, most)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, most))


def _data_bytes() -> int | None:
    """Return how much memory counts for the limit; None where nothing says so."""
    if not _STATUS.exists():
        return None
    for line in _STATUS.read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) << 10
    return None


def _warm_up(instance: Instance) -> None:
    """Load what statements need."""
    try:
        instance.sql("SELECT 1 AS one").to_arrow()
    except SleeperError as error:
        _log.warning("a process of statements cannot read the instance yet: %s", error)


def _calls(pipe: BinaryIO) -> Iterator[tuple[Call, int]]:
    while True:
        try:
            _, content = read_frame(pipe)
        except EOFError:
            return
        yield pickle.loads(content)  # noqa: S301 - from the server


def _answered(served: ServedInstance, call: Call, results: BinaryIO, most: int | None) -> bool:
    """Answer a call; False if this process cannot answer another one, or still uses too much."""
    try:
        _answer(served, call, results)
    except SleeperError as error:
        if _lacked_memory(error):
            write_frame(results, SHORTAGE)
            return False
        write_frame(results, PROBLEM, problem_of(error).body())
        return True
    except MemoryError:
        write_frame(results, SHORTAGE)
        return False
    except BrokenPipeError:
        return False
    except BaseException:  # noqa: BLE001 - it is raised where the answer is awaited
        write_frame(results, FAULT, traceback.format_exc().encode(errors="backslashreplace"))
        return False
    used = _data_bytes()
    leaves = most is not None and used is not None and used > most
    write_frame(results, END, b"leaves" if leaves else b"")
    return not leaves


def _answer(served: ServedInstance, call: Call, results: BinaryIO) -> None:
    answer = call(served)
    head = {
        "media_type": answer.media_type,
        "headers": dict(answer.headers),
        "length": None if answer.body is None else len(answer.body),
    }
    write_frame(results, HEAD, json.dumps(head).encode())
    parts = Chunks(lambda content: _write_parts(results, content))
    answer.write(parts)
    _write_parts(results, b"".join(parts.taken()))


def _write_parts(results: BinaryIO, content: bytes) -> None:
    view = memoryview(content)
    for start in range(0, len(view), PART_BYTES):
        write_frame(results, PART, bytes(view[start : start + PART_BYTES]))


def _lacked_memory(error: BaseException | None) -> bool:
    """Return whether memory ran out: an error that others were made of says so.

    DataFusion's part of it may be used up before that of the process is.
    """
    while error is not None:
        if isinstance(error, MemoryError) or "Resources exhausted" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
