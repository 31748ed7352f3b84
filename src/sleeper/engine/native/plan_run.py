"""Runs a plan of DataFusion's that writes a file, so that it can be stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any

_LOOK_S = 0.1  # how often a caller is asked whether to go on


def run_plan(context: Any, plan: Any, check: Callable[[], None]) -> int:
    """Run a plan that writes rows, and return how many it says that it wrote.

    Args:
        context: DataFusion's context.
        plan: The physical plan.
        check: Called about ten times a second; what it raises stops the plan, and is raised. What
            was written of the file so far may stay.

    Raises: what DataFusion raises.
    """
    run = _Run(context, plan)
    run.start()
    try:
        while run.is_alive():
            run.join(_LOOK_S)
            check()
    except BaseException:
        run.stop()
        raise
    if run.failure is not None:
        raise run.failure
    return run.row_count


class _Run(Thread):
    """A thread with an event loop in which a plan runs."""

    def __init__(self, context: Any, plan: Any) -> None:
        super().__init__(name="sleeper-plan", daemon=True)
        self._context, self._plan = context, plan
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self.row_count = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Run the plan to its end, or until `stop`."""
        self._task = self._loop.create_task(self._drain())
        try:
            self._loop.run_until_complete(self._task)
        except BaseException as failure:  # noqa: BLE001 - raised again where it is awaited
            self.failure = failure
        finally:
            self._loop.close()

    def stop(self) -> None:
        """Stop the plan, and wait until it has ended."""
        with suppress(RuntimeError):  # the loop is closed: the plan has ended
            self._loop.call_soon_threadsafe(self._cancel)
        self.join()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _drain(self) -> None:
        stream = self._context.execute(self._plan, 0)
        async for batch in stream:
            self.row_count += sum(batch.to_pyarrow().column(0).to_pylist())
