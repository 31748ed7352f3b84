"""How a service is asked to end: by SIGINT or SIGTERM, or because its parent has ended."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

_PARENT_CHECK_S = 1.0


def stop_on_signals(stop: threading.Event) -> None:
    """Set `stop` at SIGTERM and at the first Ctrl-C; a second Ctrl-C ends the process at once."""

    def ask_to_stop(number: int, _: Any) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask_to_stop)


def stop_with_parent(stop: threading.Event, parent_id: int) -> None:
    """Set `stop` when the process `parent_id`, which started this one, has ended."""

    def watch() -> None:
        while not stop.wait(_PARENT_CHECK_S):
            if os.getppid() != parent_id:
                stop.set()

    threading.Thread(target=watch, name="parent", daemon=True).start()
