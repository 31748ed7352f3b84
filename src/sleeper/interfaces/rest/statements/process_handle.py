"""A process of statements, as the server handles it."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from tempfile import mkdtemp
from typing import Any, Final, NoReturn, Self

from anyio import to_thread

from sleeper.errors import QueryInvalid, SleeperError, StorageFailed
from sleeper.interfaces.json_documents import error_of
from sleeper.interfaces.rest.statements import process as _process
from sleeper.interfaces.rest.statements.process import (
    CALL,
    END,
    ENVIRONMENT,
    FAULT,
    HEAD,
    PART,
    PREFIX,
    PROBLEM,
    READY,
    SHORTAGE,
    Settings,
)
from sleeper.interfaces.rest.statements.questions import Call

_log = logging.getLogger(__name__)

_BOOTSTRAP: Final = (
    "import json, os, sys\n"
    "sys.path[:] = json.loads(sys.argv[1])\n"
    "os.environ.update(json.loads(sys.argv[2]))\n"
    f"from {_process.__name__} import serve\n"
    "serve()\n"
)
_BUFFER: Final = 1 << 20
_LEVELS: Final[Mapping[str, int]] = {
    name: getattr(logging, name) for name in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
}
_OF_LACK: Final = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGTRAP)
"""How native code ends if it gets no memory."""


def _too_large(memory_bytes: int) -> SleeperError:
    return QueryInvalid(
        f"the statement needs more than the {memory_bytes >> 20:,} MB of memory that it may use: "
        "read fewer rows by conditions on row keys, select fewer columns, and make no longer texts "
        "or lists. Whoever runs the server may allow more (--statement-mb)."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallKind:
    """What a call is.

    Attributes:
        lacks: Returns the error for one that needs more memory than a number of bytes.
        more_bytes: Memory that it may use beside that of a statement.
    """

    lacks: Callable[[int], SleeperError] = _too_large
    more_bytes: int = 0


STATEMENT: Final = CallKind()


class ProcessHandle:
    """A process that answers one call at a time; killed when it is no more wanted.

    Args:
        process: The process.
        settings: Its limits, and what it serves.
        folder: The folder of its temp files, which is deleted after it.

    Attributes:
        is_idle: True if it can take a call.
    """

    def __init__(self, process: Process, settings: Settings, folder: str) -> None:
        self._process = process
        self._memory_bytes = settings.memory_bytes
        self._kind = STATEMENT
        self._length: int | None = None
        self._folder = folder
        self._logged = asyncio.ensure_future(self._pass_on_log())
        self.is_idle = True

    @classmethod
    async def started(cls, settings: Settings) -> Self:
        """Start a process, and wait until it can take a call: a second.

        Raises:
            StorageFailed: the system allows no more processes, or has no temp folder.
            SleeperError: it ended.
        """
        folder = worker = None
        try:
            folder = await to_thread.run_sync(mkdtemp, None, "sleeper-statements-")
            environment = json.dumps({**ENVIRONMENT, "TMPDIR": folder})
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, *(f"-W{option}" for option in sys.warnoptions), "-c", _BOOTSTRAP),
                *(json.dumps(sys.path), environment),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                limit=_BUFFER,
            )
            worker = cls(process, settings, folder)
            worker._send(pickle.dumps(settings))
            kind, _ = await worker._frame()
        except BaseException as error:
            if worker is not None:
                await worker.end()
            elif folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError):
                raise StorageFailed(f"no process for a statement can start: {error}") from error
            raise
        assert kind == READY, kind
        return worker

    @property
    def is_alive(self) -> bool:
        """True if the process has not ended."""
        return self._process.returncode is None

    async def begin(self, call: Call, kind: CallKind = STATEMENT) -> dict[str, Any]:
        """Run a call, and return the head of its answer.

        Raises:
            SleeperError: what the call raised, or it needed too much memory.
            StorageFailed: the process was killed.
        """
        self.is_idle = False
        self._kind = kind
        self._send(pickle.dumps((call, kind.more_bytes)))
        frame, content = await self._frame()
        assert frame == HEAD, frame
        head: dict[str, Any] = json.loads(content)
        self._length = head["length"]
        return head

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the answer that was begun.

        Of an answer whose length its client knows, the last bytes follow when the call has ended:
        the client may leave once it has them, which would kill the process in the middle of a call.

        Raises: as `begin`.
        """
        seen, last = 0, b""
        while True:
            kind, content = await self._frame()
            if kind == END:
                self.is_idle = not content
                if last:
                    yield last
                return
            assert kind == PART, kind
            seen += len(content)
            if seen == self._length:
                last = content
            else:
                yield content

    def kill(self) -> None:
        """Kill the process, if it has not ended."""
        self.is_idle = False
        if self._process.returncode is None:
            try:
                self._process.kill()
            except ProcessLookupError:
                _log.debug("process %d ended before it was killed", self._process.pid)

    async def end(self) -> None:
        """Kill the process, and delete its temp files when it has ended. It may be called again."""
        self.kill()
        await self._drained()
        await self._process.wait()
        await self._logged
        if self._process.stdin is not None:
            self._process.stdin.close()
        await to_thread.run_sync(lambda: shutil.rmtree(self._folder, ignore_errors=True))

    async def _drained(self) -> None:
        """Read what nobody wanted: asyncio waits for the end of a pipe before that of a process."""
        pipe = self._process.stdout
        assert pipe is not None
        try:
            while await pipe.read(_BUFFER):
                pass
        except RuntimeError:
            _log.debug("the answer of process %d is still read", self._process.pid)

    def _send(self, content: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(PREFIX.pack(CALL, len(content)) + content)

    async def _frame(self) -> tuple[bytes, bytes]:
        """Return the next frame; raise the error that it is."""
        pipe = self._process.stdout
        assert pipe is not None
        try:
            kind, size = PREFIX.unpack(await pipe.readexactly(PREFIX.size))
            content = await pipe.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            await self._raise_death()
        if kind == PROBLEM:
            self.is_idle = True
            raise error_of(json.loads(content))
        if kind == SHORTAGE:
            raise self._lacks()
        if kind == FAULT:
            raise RuntimeError(f"a statement failed:\n{content.decode(errors='replace')}")
        return kind, content

    async def _raise_death(self) -> NoReturn:
        """Raise the error for a process that ended while a call was running."""
        code = await self._process.wait()
        _log.warning("process %d of statements ended with code %d", self._process.pid, code)
        if -code in _OF_LACK:
            raise self._lacks()
        if code == -signal.SIGKILL:
            raise StorageFailed(
                "the process of the statement was killed: memory of the machine ran out, or a user "
                "did it. Read fewer rows, or try again."
            )
        raise SleeperError(
            f"the process of the statement ended with code {code}; the server's log says why"
        )

    def _lacks(self) -> SleeperError:
        return self._kind.lacks(self._memory_bytes + self._kind.more_bytes)

    async def _pass_on_log(self) -> None:
        """Log what the process writes to its standard error."""
        pipe = self._process.stderr
        assert pipe is not None
        while True:
            try:
                line = (await pipe.readline()).decode(errors="backslashreplace")
            except ValueError:
                _log.warning("process %d wrote a line that is too long", self._process.pid)
                continue
            if not line:
                return
            name, _, text = line.rstrip("\n").partition(" ")
            level = _LEVELS.get(name)
            text = text if level else line.rstrip("\n")
            _log.log(level or logging.WARNING, "process %d: %s", self._process.pid, text)
