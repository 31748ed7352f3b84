"""What a simulated process has for its instances: a clock and ids that a test decides."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from sleeper.instance.instance import process_context
from sleeper.ports.clock import Clock
from sleeper.tables.instance_context import ProcessContext


def simulated_process(
    *,
    now: Callable[[], datetime],
    new_id: Callable[[], str],
    ticks_s: Callable[[], float] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    back_off: Callable[[int], None] = lambda attempt: None,
) -> ProcessContext:
    """Return the context of a process; its ticks go on with its clock unless it has others."""
    clock = Clock(
        now=now,
        ticks_s=ticks_s or (lambda: now().timestamp()),
        sleep=sleep,
        back_off=back_off,
    )
    return process_context(clock=clock, new_id=new_id)
