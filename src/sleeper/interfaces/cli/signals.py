"""How a process is asked to end: by SIGINT or SIGTERM, or because its parent has ended."""

from __future__ import annotations

import logging
import os
import signal
import threading
from typing import Any

from sleeper.interfaces.cli.stderr import EXIT_TERMINATED
from sleeper.workers.stop_signal import StopSignal

_PARENT_CHECK_S = 1.0
_ORPHAN_PATIENCE_S = 5.0
_log = logging.getLogger(__name__)


def stop_on_signals(stop: StopSignal) -> None:
    """Set `stop` at SIGTERM and at the first Ctrl-C; a second Ctrl-C ends the process at once."""

    def ask_to_stop(number: int, _: Any) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask_to_stop)


def stop_with_parent(stop: StopSignal, parent_id: int, *, with_children: bool = False) -> None:
    """Set `stop` when the process `parent_id`, which started this one, has ended.

    A job that does not notice in time is ended with the process: nothing of it is committed by
    halves, and its message comes again. The parent's id shows it, however that one died,
    on every system that has processes.

    Args:
        stop: Set when the parent has ended.
        parent_id: The parent.
        with_children: Whether to kill what this process has started too, where it leads a process
            group of its own.
    """

    def watch() -> None:
        woken = threading.Event()  # by nobody
        while os.getppid() == parent_id:
            woken.wait(_PARENT_CHECK_S)
        _log.warning("ending: process %d, which started this one, has ended", parent_id)
        stop.set()
        woken.wait(_ORPHAN_PATIENCE_S)
        if with_children and os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
        os._exit(EXIT_TERMINATED)

    threading.Thread(target=watch, name="parent", daemon=True).start()
