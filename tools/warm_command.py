"""Runs `sleeper` in copies of a process that has imported it, so that pages are written sooner.

To start the command and import what it needs takes half a second of a processor, and most commands
of a page take less. Here a program `sleeper`, for the PATH, passes its words, its environment and
its streams to a process that has everything imported and has done nothing else; a copy of it
(`os.fork`) is the command from then on.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from functools import cache
from pathlib import Path

_STARTS_MAX_S = 60
_LARGEST = 1 << 20
_started: list[subprocess.Popen[bytes]] = []
_THREADS = {Path(sys.executable).name, "python", "jemalloc_bg_thd", "polars-ooc-clea"}
"""Of Python, of the memory allocator of Arrow, which looks after copies, and one of polars that
deletes what it spilled, which is nothing here."""
_CLIENT = """\
import json, os, signal, socket, sys
to = socket.socket(socket.AF_UNIX)
to.connect({socket!r})
said = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
socket.send_fds(to, [b"%8d" % len(said)], [0, 1, 2])
to.sendall(said)
answers = to.makefile()
command = int(answers.readline())
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda got, frame: os.kill(command, got))
ended = int(answers.readline())
if ended < 0:
    signal.signal(-ended, signal.SIG_DFL)
    os.kill(os.getpid(), -ended)
os._exit(ended)
"""


@cache
def folder_of_program() -> Path:
    """Start the process, once in this one, and return the folder of its program.

    The process ends with this one, however that ends, and deletes the folder.
    """
    folder = Path(tempfile.mkdtemp()).resolve()
    address = folder / "socket"
    program = folder / "sleeper"
    # Without `site` and what it imports: a Python that starts in a hundredth of a second.
    program.write_text(f"#!{sys.executable} -IS\n{_CLIENT.format(socket=str(address))}")
    program.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, __file__, str(address)],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,  # which is closed when this process ends
    )
    begun = time.monotonic()
    while not address.exists():
        if process.poll() is not None or time.monotonic() - begun > _STARTS_MAX_S:
            raise RuntimeError("the process that runs commands did not start")
        time.sleep(0.02)
    _started.append(process)
    return folder


def serve(address: Path) -> None:
    """Answer programs, each with a copy of this process, until the one that started it ends."""
    _import_all()
    gc.collect()
    gc.freeze()  # copies need not look at it
    if others := _threads() - _THREADS:
        raise RuntimeError(f"a process with threads of {others} cannot be copied")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{address}.new")
    listener.listen(16)
    Path(f"{address}.new").rename(address)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            shutil.rmtree(address.parent)
            return
        asker, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _attend(asker)
            return
        asker.close()


def _threads() -> set[str]:
    """Return the names of this process's threads, where the system tells them."""
    return {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}


def _attend(asker: socket.socket) -> None:
    """Copy this process once more, which is the command; say which it is, and how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    begin, streams, _, _ = socket.recv_fds(asker, 8, 3)
    said = b""
    while len(said) < int(begin):
        said += asker.recv(_LARGEST)
    words, environment, folder = json.loads(said)
    command = os.fork()
    if command == 0:
        asker.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        _become(words, environment, folder)
        return
    asker.sendall(b"%d\n" % command)
    _, status = os.waitpid(command, 0)
    asker.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _become(words: list[str], environment: dict[str, str], folder: str) -> None:
    """Be the command, and end without taking apart what was imported, which takes a while."""
    from sleeper.interfaces.cli.main import main  # noqa: PLC0415 - imported by `serve` already

    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    sys.argv = ["sleeper", *words]
    ended: object = None
    try:
        main()
    except SystemExit as end:
        ended = end.code
    except BaseException:  # noqa: BLE001 - told as Python itself tells it
        traceback.print_exc()
        ended = 1
    if isinstance(ended, str):
        print(ended, file=sys.stderr)
    # What Python itself does at the end.
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended if isinstance(ended, int) else int(ended is not None))


def _import_all() -> None:
    """Import what commands import, but for what starts threads or belongs to extras."""
    import sleeper  # noqa: PLC0415 - the programs need none of it

    for room in ("engine", "instance", "interfaces.cli", "lookup", "state", "storage", "tables"):
        package = importlib.import_module(f"{sleeper.__name__}.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(".__main__"):
                importlib.import_module(module.name)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
