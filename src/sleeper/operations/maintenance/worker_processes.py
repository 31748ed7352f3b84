"""Work that is done here, piece after piece, or side by side in processes of its own."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import TypeVar

from sleeper.errors import SleeperError, StorageFailed

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def run_pieces(
    pieces: Sequence[Piece], run: Callable[[Piece], Result], *, workers: int
) -> Generator[tuple[Piece, Result | SleeperError], None, None]:
    """Run a function on each piece, and yield it with its result, or our error, as they end.

    One worker is this process. More are new processes, each with memory and threads of its own,
    that end with the run; one that dies (out of memory, killed) takes its piece with it, and the
    pieces that wait for a worker. Closing the iterator ends them at once.

    Args:
        pieces: With more than one worker they, the function and its results go through pickle.
        run: What to do.
        workers: How many pieces at once.

    Raises:
        Others: what the function raised that is no error of ours.
    """
    workers = min(workers, len(pieces))
    if workers <= 1:
        return ((piece, _outcome(run, piece)) for piece in pieces)
    return _in_processes(pieces, partial(_outcome, run), workers)


def _outcome(run: Callable[[Piece], Result], piece: Piece) -> Result | SleeperError:
    try:
        return run(piece)
    except SleeperError as error:
        return error


def _in_processes(
    pieces: Sequence[Piece], run: Callable[[Piece], Result | SleeperError], workers: int
) -> Generator[tuple[Piece, Result | SleeperError], None, None]:
    pickle.dumps(run)  # what cannot go there is told before any process is started
    others = {*multiprocessing.active_children()}
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),  # Ctrl-C is for the process that waits
    )
    try:
        started = {pool.submit(run, piece): piece for piece in pieces}
        for future in as_completed(started):
            yield started[future], _result(future)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in {*multiprocessing.active_children()} - others:
            process.kill()
            process.join()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _result(future: Future[Result | SleeperError]) -> Result | SleeperError:
    try:
        return future.result()
    except BrokenProcessPool as error:
        return StorageFailed(
            "a worker process died, killed or out of memory, and the others were stopped with "
            f"it: {error}. Try again with fewer workers."
        )
