"""Work side by side in processes: what comes back, and what becomes of those that die."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time

import pytest

from sleeper.errors import DataDamaged, StorageFailed
from sleeper.operations.maintenance.worker_processes import run_pieces


def doubled_here(number):
    """Twice a number, and who has computed it."""
    if number == 13:
        raise DataDamaged("13 is damaged")
    return 2 * number, os.getpid()


def killed(number):
    """The third piece is killed as the kernel kills who takes too much memory."""
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def sleeping_or_waiting(path):
    """Sleep, having said so; or wait until somebody sleeps."""
    if path.name == "sleeps":
        path.write_text(str(os.getpid()))
        time.sleep(600)
    while not (path.parent / "sleeps").exists():
        time.sleep(0.01)


def wrong(number):
    raise ZeroDivisionError(number)


def is_alive(process_id):
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_worker_is_this_process():
    """Piece after piece, in order."""
    done = list(run_pieces([1, 2, 3], doubled_here, workers=1))

    assert done == [(n, (2 * n, os.getpid())) for n in (1, 2, 3)]


def test_more_workers_are_processes_that_end_with_the_run():
    """Each piece comes with its result; an error of ours is one, and the others go on."""
    done = dict(run_pieces([1, 2, 13, 4], doubled_here, workers=2))

    failure = done.pop(13)
    assert isinstance(failure, DataDamaged)
    assert {n: result[0] for n, result in done.items()} == {1: 2, 2: 4, 4: 8}
    processes = {result[1] for result in done.values()}
    assert os.getpid() not in processes
    assert not any(map(is_alive, processes))


def test_one_piece_needs_no_process():
    """However many workers there might be."""
    assert list(run_pieces([4], doubled_here, workers=8)) == [(4, (8, os.getpid()))]
    assert list(run_pieces([], doubled_here, workers=8)) == []


def test_a_worker_that_dies_is_told():
    """Its piece fails, and so may those that waited; nothing hangs."""
    done = dict(run_pieces([1, 2, 3, 4], killed, workers=2))

    assert isinstance(done[3], StorageFailed)
    assert "a worker process died" in str(done[3])
    assert set(done) == {1, 2, 3, 4}


def test_a_fault_of_the_program_ends_the_run():
    """It is no outcome of a piece, and no process stays behind."""
    with pytest.raises(ZeroDivisionError):
        list(run_pieces([1, 2], wrong, workers=2))

    assert multiprocessing.active_children() == []


def test_what_runs_is_killed_when_the_run_is_closed(tmp_path):
    """As by Ctrl-C: nobody waits for a piece that takes ten minutes."""
    running = run_pieces([tmp_path / "sleeps", tmp_path / "waits"], sleeping_or_waiting, workers=2)
    assert next(running)[0] == tmp_path / "waits"
    sleeper = int((tmp_path / "sleeps").read_text())

    running.close()

    assert not is_alive(sleeper)
    assert multiprocessing.active_children() == []
