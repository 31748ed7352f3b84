"""Runs pieces of work in this process, one after the other, or in parallel worker processes.

A worker is a separate Python process with two pipes. `multiprocessing` is not used: it would run
the caller's script again in each worker, unless the script is guarded by
`if __name__ == "__main__":`, and its list of child processes is shared with the whole program.

A worker ends when the process that started it ends, in whatever way: an idle worker reads the end
of its pipe, and a busy one checks every second whether the id of its parent has changed.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import selectors
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, islice
from typing import Any, Self, TypeVar

from sleeper.errors import SleeperError, StorageFailed

Piece = TypeVar("Piece")
Result = TypeVar("Result")

_PARENT_CHECK_S = 1.0
_BOOTSTRAP = (
    "import json, sys\n"
    "sys.path[:] = json.loads(sys.argv[1])\n"
    f"from {__name__} import serve_pieces\n"
    "serve_pieces(*map(int, sys.argv[2:]))\n"
)
_log = logging.getLogger(__name__)


def run_pieces(
    pieces: Iterable[Piece], run: Callable[[Piece], Result], *, workers: int
) -> Generator[tuple[Piece, Result | SleeperError], None, None]:
    """Run a function on each piece, and yield it with its result, or our error, when it ends.

    With one worker, pieces run in this process. Otherwise they run in new processes that end with
    the run. If one dies (out of memory, killed), its piece fails, and a new process takes the
    next piece. Closing the iterator kills all workers.

    Args:
        pieces: Each is taken when a worker is free. With more than one worker, pieces, function
            and results are pickled, and what they refer to must be importable.
        run: The function.
        workers: Number of pieces that run in parallel.

    Raises:
        Others: an error of the function that is not a `SleeperError`.
    """
    coming = iter(pieces)
    first = [*islice(coming, 2 if workers > 1 else 1)]
    every = chain(first, coming)
    if len(first) < 2:
        return ((piece, _outcome(run, piece)) for piece in every)
    return _in_processes(every, run, workers)


def _outcome(run: Callable[[Piece], Result], piece: Piece) -> Result | SleeperError:
    try:
        return run(piece)
    except SleeperError as error:
        return error


def _in_processes(
    pieces: Iterator[Piece], run: Callable[[Piece], Result], workers: int
) -> Generator[tuple[Piece, Result | SleeperError], None, None]:
    pickle.dumps(run)  # fails before any process is started if it cannot be pickled
    idle: list[WorkerProcess] = []
    with ExitStack() as started, selectors.DefaultSelector() as busy:

        def give_out() -> None:
            for piece in islice(pieces, workers - len(busy.get_map())):
                worker = idle.pop() if idle else started.enter_context(WorkerProcess())
                worker.send(run, piece)
                busy.register(worker.results, selectors.EVENT_READ, (worker, piece))

        give_out()
        while busy.get_map():
            for key, _ in busy.select():
                worker, piece = key.data
                result = worker.receive()
                busy.unregister(key.fileobj)
                if worker.alive:
                    idle.append(worker)
                give_out()
                yield piece, result


class WorkerProcess:
    """A worker process, as its parent handles it; killed at the end of `with`.

    Attributes:
        results: The pipe from which results are read.
        alive: False once a result could not be read because the process had died.
    """

    def __init__(self) -> None:
        pieces_out, pieces_in = os.pipe()
        results_out, results_in = os.pipe()
        numbers = (pieces_out, results_in, os.getpid())
        options = [f"-W{option}" for option in sys.warnoptions]
        paths = json.dumps(sys.path)
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, *options, "-c", _BOOTSTRAP, paths, *map(str, numbers)],
            stdin=subprocess.DEVNULL,
            pass_fds=(pieces_out, results_in),
        )
        os.close(pieces_out)
        os.close(results_in)
        self._pieces = os.fdopen(pieces_in, "wb", buffering=0)
        self.results = os.fdopen(results_out, "rb")
        self.alive = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._pieces.close()
        self.results.close()

    def send(self, run: Callable[[Any], Any], piece: Any) -> None:
        """Send a function and a piece to the worker, which runs it."""
        try:
            pickle.dump(pickle.dumps((run, piece)), self._pieces)
        except BrokenPipeError:
            _log.debug("worker process %d died before its next piece", self._process.pid)

    def receive(self) -> Any:
        """Return the result of the last piece, or our error; raise other errors."""
        try:
            answer = pickle.load(self.results)  # noqa: S301 - from a process of our own
        except (EOFError, pickle.UnpicklingError):
            self.alive = False
            return self._died()
        result, fault = pickle.loads(answer)  # noqa: S301
        if fault is not None:
            raise fault
        return result

    def _died(self) -> StorageFailed:
        code = self._process.wait()
        _log.warning("worker process %d died with code %d", self._process.pid, code)
        if code == -signal.SIGKILL:
            why = "it was killed, by a user or by the kernel because memory ran out"
            advice = "Try again, with fewer workers if memory is short."
        elif code < 0:
            why = f"it ended by {signal.Signals(-code).name}"
            advice = "Try again."
        else:
            why = f"it exited with code {code}"
            advice = "See its output on stderr."
        return StorageFailed(f"a worker process died: {why}. {advice}")


def serve_pieces(pieces_fd: int, results_fd: int, parent_id: int) -> None:
    """Run pieces in a worker process, until the pipe of pieces is closed.

    Args:
        pieces_fd: The pipe from which functions and pieces are read.
        results_fd: The pipe to which results are written.
        parent_id: The parent; this process ends when it ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent
    threading.Thread(target=exit_with, args=(parent_id,), daemon=True).start()
    try:
        with os.fdopen(pieces_fd, "rb") as pieces, os.fdopen(results_fd, "wb") as results:
            while True:
                call = pickle.load(pieces)  # noqa: S301 - from the process that started this one
                results.write(pickle.dumps(_answer(call)))
                results.flush()
    except (EOFError, BrokenPipeError, pickle.UnpicklingError):
        _log.debug("process %d needs no more, or has ended, at whatever point", parent_id)


def exit_with(parent_id: int) -> None:
    """End this process when its parent has ended."""
    woken = threading.Event()  # never set
    while os.getppid() == parent_id:
        woken.wait(_PARENT_CHECK_S)
    os._exit(1)


def _answer(call: bytes) -> bytes:
    """Return the pickled result of a call, or the error that it raised."""
    try:
        run, piece = pickle.loads(call)  # noqa: S301
        return pickle.dumps((_outcome(run, piece), None))
    except Exception as fault:  # noqa: BLE001 - it is raised where the result is awaited
        fault.add_note(f"In a worker process:\n{traceback.format_exc()}")
        try:
            return pickle.dumps((None, fault))
        except Exception:  # noqa: BLE001 - one that cannot be pickled
            return pickle.dumps((None, RuntimeError(traceback.format_exc())))
