"""The processes of statements of one server: how many there are, and who waits for one."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import IO, Any, Final

from anyio import from_thread, to_thread
from fastapi import HTTPException, Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from sleeper.errors import SleeperError, StorageFailed
from sleeper.instance.instance import Instance
from sleeper.interfaces.rest.request_limits import RequestLimits
from sleeper.interfaces.rest.statements.process import Settings
from sleeper.interfaces.rest.statements.process_handle import STATEMENT, CallKind, ProcessHandle
from sleeper.interfaces.rest.statements.questions import Call

_log = logging.getLogger(__name__)

MEMORY_BYTES: Final = 1 << 30
"""Memory of a statement, if nothing else is said."""

AT_ONCE: Final = 8
"""Statements at once."""

_KEPT: Final = 2
"""Processes that stay while nobody asks."""

_IDLE_S: Final = 60
"""Seconds after which the others end."""


class StatementProcesses:
    """Runs calls in processes of their own, each within limits.

    A process serves one call after the other. If none is idle, one more is started, and the call
    takes the one that can serve first. One is idle if possible, since to start one takes a second.

    Args:
        instance: The instance, which can be pickled.
        limits: Those of the server. Half of its requests may be statements, so that others are
            answered while statements wait.
        memory_bytes: Memory that a statement may use.
        at_once: How many run at once; others wait.
    """

    def __init__(
        self,
        instance: Instance,
        limits: RequestLimits,
        *,
        memory_bytes: int = MEMORY_BYTES,
        at_once: int = AT_ONCE,
    ) -> None:
        self._settings = Settings(
            instance=instance,
            limits=limits,
            memory_bytes=memory_bytes,
            log_level=logging.getLogger("sleeper").getEffectiveLevel(),
            parent_id=os.getpid(),
        )
        self._at_once = at_once
        self._calls_max = max(1, limits.requests // 2)
        self._calls = 0
        self._processes: set[ProcessHandle] = set()
        self._idle: list[ProcessHandle] = []
        self._waiting: deque[asyncio.Future[ProcessHandle]] = deque()
        self._starting: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def start(self) -> None:
        """Start a process, if none waits for a call and there may be one more.

        One starts at a time: what waits may be served before by those that there are.
        """
        is_full = len(self._processes) >= self._at_once
        if not (self._idle or self._starting or self._is_closed or is_full):
            self._starting = asyncio.ensure_future(self._start_one())

    async def close(self) -> None:
        """Kill all processes."""
        self._is_closed = True
        while self._waiting:
            _fail(self._waiting.popleft(), StorageFailed("the server ends"))
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        for process in [*self._processes]:
            self._end_process(process)
        if self._ending:
            await asyncio.wait(self._ending)

    async def answer(
        self, call: Call, receive: Receive, kind: CallKind = STATEMENT
    ) -> StreamingResponse:
        """Run a call, and return the answer of HTTP, which passes its bytes on.

        Args:
            call: The call.
            receive: Receives from the client; when it leaves, the process is killed.
            kind: What the call is.

        Raises:
            SleeperError: what the call raised, or it needed too much memory.
            HTTPException: the client left.
        """
        return _StatementResponse(await self._begin(call, receive, kind), self._end)

    def write(self, call: Call, receive: Receive, file: IO[bytes]) -> Mapping[str, str]:
        """Do as `written`, in the thread of a route."""
        return from_thread.run(self.written, call, receive, file)

    async def written(
        self, call: Call, receive: Receive, file: IO[bytes], kind: CallKind = STATEMENT
    ) -> Mapping[str, str]:
        """Run a call, write its answer to a file, and return its headers.

        Raises: as `answer`.
        """
        run = await self._begin(call, receive, kind)
        try:
            async for part in run.process.parts():
                await to_thread.run_sync(file.write, part)
        finally:
            self._end(run)
        headers: Mapping[str, str] = run.head["headers"]
        return headers

    async def _begin(self, call: Call, receive: Receive, kind: CallKind = STATEMENT) -> _Run:
        """Run a call until its answer begins."""
        if self._calls >= self._calls_max:
            raise StorageFailed(
                f"the server runs {self._calls_max} statements already, or has them wait: try again"
            )
        self._calls += 1
        left = asyncio.ensure_future(_left(receive))
        begun = asyncio.ensure_future(self._begun(call, kind))
        run = None
        try:
            await asyncio.wait({left, begun}, return_when=asyncio.FIRST_COMPLETED)
            if not begun.done():
                _log.info("the client of a statement left before its answer")
                raise HTTPException(HTTPStatus.BAD_REQUEST, "the client left")
            run = begun.result()
        finally:
            left.cancel()
            begun.cancel()
            _, found = await asyncio.gather(left, begun, return_exceptions=True)
            if run is None:
                self._calls -= 1
                if isinstance(found, _Run):
                    self._release(found.process)
        return run

    async def _begun(self, call: Call, kind: CallKind) -> _Run:
        process = await self._taken()
        try:
            return _Run(process, await process.begin(call, kind))
        except BaseException:
            self._release(process)
            raise

    async def _taken(self) -> ProcessHandle:
        """Return a process that can take a call, when there is one."""
        while self._idle:
            process = self._idle.pop()
            if process.is_alive:
                self.start()
                return process
            self._end_process(process)
        if self._is_closed:
            raise StorageFailed("the server ends")
        waiting: asyncio.Future[ProcessHandle] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self.start()
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self._release(waiting.result())
            raise

    def _end(self, run: _Run) -> None:
        """Note that the answer of a call has ended, at whatever point."""
        self._calls -= 1
        self._release(run.process)

    def _release(self, process: ProcessHandle) -> None:
        """Let the next call have a process, or kill it if it cannot take one."""
        if not process.is_idle or self._is_closed:
            self._end_process(process)
            return
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(process)
                return
        self._idle.append(process)
        if len(self._idle) > _KEPT:
            asyncio.get_running_loop().call_later(_IDLE_S, self._end_oldest, self._idle[0])

    def _end_oldest(self, process: ProcessHandle) -> None:
        """End the process that was idle for longest, if it still is."""
        if len(self._idle) > _KEPT and self._idle[0] is process:
            self._end_process(self._idle.pop(0))

    def _end_process(self, process: ProcessHandle) -> None:
        """Kill a process now; another one may start when it is gone."""

        async def ended() -> None:
            try:
                await process.end()
            finally:
                self._processes.discard(process)
                self.start()

        process.kill()
        task = asyncio.ensure_future(ended())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _start_one(self) -> None:
        try:
            process = await ProcessHandle.started(self._settings)
        except SleeperError as error:
            _log.warning("no process for statements could be started: %s", error)
            while self._waiting and not self._processes:
                _fail(self._waiting.popleft(), error)
            return
        finally:
            self._starting = None
        self._processes.add(process)
        self._release(process)
        if self._waiting:
            self.start()


def statements_of(request: Request) -> StatementProcesses | None:
    """Return the processes that run SQL; None if the server does, without a limit of memory."""
    found: StatementProcesses | None = request.app.state.statements
    return found


def _fail(waiting: asyncio.Future[ProcessHandle], error: SleeperError) -> None:
    if not waiting.done():
        waiting.set_exception(error)


@dataclass(frozen=True, slots=True)
class _Run:
    """A call whose answer has begun."""

    process: ProcessHandle
    head: Mapping[str, Any]


class _StatementResponse(StreamingResponse):
    """The answer of a call; when it has ended, or is broken off, so has the call."""

    def __init__(self, run: _Run, end: Callable[[_Run], None]) -> None:
        headers = dict(run.head["headers"])
        if run.head["length"] is not None:
            headers["Content-Length"] = str(run.head["length"])
        super().__init__(run.process.parts(), headers=headers, media_type=run.head["media_type"])
        self._run = run
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end(self._run)


async def _left(receive: Receive) -> None:
    """Wait until the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
