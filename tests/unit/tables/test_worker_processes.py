"""Work side by side in processes: what comes back, and what becomes of those that die."""

from __future__ import annotations

import hashlib
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from sleeper.errors import DataDamaged, StorageFailed
from sleeper.tables.worker_processes import run_pieces
from tests.patience import PATIENCE_S, becomes_true

KILLED_PARENT = """
import pathlib, sys
from sleeper.tables.worker_processes import run_pieces
from tests.unit.tables.test_worker_processes import {function} as function
folder = pathlib.Path(sys.argv[1])
for _ in run_pieces([folder / "1", folder / "2"], function, workers=2):
    pass
"""
SCRIPT_WITHOUT_GUARD = """
import sys
sys.stdout.write("began\\n")
from sleeper.tables.worker_processes import run_pieces
from tests.unit.tables.test_worker_processes import doubled_here
print(sorted(result for _, (result, _) in run_pieces([1, 2, 3], doubled_here, workers=2)))
"""


def start_script(path, text, *arguments, stderr=None):
    """Write a script, and start it as a process."""
    path.write_text(text)
    return subprocess.Popen(
        [sys.executable, path, *arguments],
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        text=True,
    )


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


def sleeping(path):
    """Sleep, having said so."""
    write_process_id(path)
    time.sleep(600)


def in_native_code(path):
    """Spend minutes in one call of C code, having said so."""
    write_process_id(path)
    hashlib.pbkdf2_hmac("sha512", b"a", b"b", 2_000_000_000)


def ending_with_parent(path):
    """End at the moment at which the parent does, having said so."""
    parent = os.getppid()
    write_process_id(path)
    while os.getppid() == parent:
        time.sleep(0.001)


def write_process_id(path):
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)


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
    """Its piece fails, and the other pieces are run; nothing hangs."""
    done = dict(run_pieces([1, 2, 3, 4], killed, workers=2))

    failure = done.pop(3)
    assert isinstance(failure, StorageFailed)
    assert "a worker process died: it was killed" in str(failure)
    assert done == {1: 1, 2: 2, 4: 4}


def test_a_worker_that_ends_by_itself_is_not_taken_for_killed():
    """Memory is not blamed, and the message says where to look."""
    done = dict(run_pieces([7, 8], os._exit, workers=2))

    assert "it exited with code 7. See its output on stderr" in str(done[7])


def test_pieces_are_taken_when_a_worker_is_free_for_them():
    """So that who hands them out may claim them a few at a time."""
    taken = itertools.count(1)
    running = run_pieces((next(taken) for _ in range(8)), doubled_here, workers=2)

    next(running)

    assert next(taken) <= 4
    running.close()


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


def test_processes_of_others_live_on_when_a_run_is_closed(tmp_path):
    """One that another thread of the program has started meanwhile."""
    running = run_pieces([tmp_path / "sleeps", tmp_path / "waits"], sleeping_or_waiting, workers=2)
    next(running)
    other = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    other.start()

    running.close()

    assert not becomes_true(lambda: not other.is_alive(), 0.5)
    other.kill()
    other.join()


@pytest.mark.parametrize("function", ["sleeping", "in_native_code"])
def test_workers_end_when_their_parent_is_killed(tmp_path, function):
    """Nobody can tell them any more; they notice within two seconds."""
    script = KILLED_PARENT.format(function=function)
    parent = start_script(tmp_path / "script.py", script, tmp_path)
    files = [tmp_path / "1", tmp_path / "2"]
    assert becomes_true(lambda: all(file.exists() for file in files))
    workers = [int(file.read_text()) for file in files]

    parent.kill()
    parent.wait()
    parent.stdout.close()  # workers that live on would keep it open

    ended = becomes_true(lambda: not any(map(is_alive, workers)))
    for worker in filter(is_alive, workers):
        os.kill(worker, signal.SIGKILL)
    assert ended


def test_workers_that_end_with_their_killed_parent_say_nothing(tmp_path):
    """Given a result that nobody can be told any more, then there is no traceback on stderr."""
    script = KILLED_PARENT.format(function="ending_with_parent")
    files, stderr = [tmp_path / "1", tmp_path / "2"], tmp_path / "stderr"
    with stderr.open("wb") as output:
        parent = start_script(tmp_path / "script.py", script, tmp_path, stderr=output)
    assert becomes_true(lambda: all(file.exists() for file in files))

    parent.kill()
    parent.wait()
    parent.stdout.close()

    assert becomes_true(lambda: not any(is_alive(int(file.read_text())) for file in files))
    assert stderr.read_text() == ""


def test_a_script_needs_no_main_guard(tmp_path):
    """Workers do not run the caller's script again."""
    said, _ = start_script(tmp_path / "script.py", SCRIPT_WITHOUT_GUARD).communicate(
        timeout=PATIENCE_S
    )

    assert said.splitlines() == ["began", "[2, 4, 6]"]
