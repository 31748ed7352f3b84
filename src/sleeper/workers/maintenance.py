"""The loop that maintains tables: in each round it runs the operations of each table in turn.

One loop runs in one thread, so it never maintains a table twice at a time. Several loops on one
instance are safe, because they claim the files that they work on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from sleeper.errors import SleeperError

VERBS = ("compact", "split", "merge", "gc", "sweep")
"""The operations on a table, in this order: compaction first, because it makes row counts exact."""

_log = logging.getLogger(__name__)


class Stopped(Exception):
    """The loop was asked to stop while an operation was running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceStep:
    """The result of one operation on one table.

    Attributes:
        table: The table's name; empty if the instance itself could not be read.
        verb: One of `VERBS`.
        done: What was done, as one line; None if nothing was done.
        failures: What failed, and why; one line each.
    """

    table: str
    verb: str
    done: str | None = None
    failures: tuple[str, ...] = ()


class MaintainedTable(Protocol):
    """A table, as the loop needs it."""

    @property
    def name(self) -> str:
        """The table's name."""
        ...

    def maintain(self, verb: str) -> MaintenanceStep | None:
        """Run one of `VERBS` and return the result; None if there was nothing to do.

        Raises:
            Stopped: the loop was asked to stop.
        """
        ...


def run_maintenance(
    tables: Callable[[], Iterable[MaintainedTable]],
    *,
    rest: Callable[[], None],
    stopped: Callable[[], bool],
    sweep_is_due: Callable[[], bool],
) -> Iterator[MaintenanceStep]:
    """Maintain tables until `stopped`; yield and log what was done and what failed.

    A failed operation is reported and does not stop the others; the next round retries it. The
    loop waits between rounds, however long the round took.

    Args:
        tables: Returns the tables that are online now. If that fails, the round ends.
        rest: Waits for the next round, or until the loop is stopped.
        stopped: Returns whether to stop; called before each operation.
        sweep_rounds: How often orphans are swept: in the first round, and in every
            `sweep_rounds`-th round after it. A sweep lists a table's whole folder.
    """
    number = 0
    while not stopped():
        verbs = VERBS if sweep_is_due() else VERBS[:-1]
        try:
            for table in tables():
                for step in _maintain(table, verbs, stopped):
                    yield _logged(step)
        except Stopped:
            return
        except SleeperError as failure:
            yield _logged(MaintenanceStep(table="", verb="list tables", failures=(str(failure),)))
        _log.debug("round %d has ended", number + 1)
        number += 1
        rest()


def _maintain(
    table: MaintainedTable, verbs: Iterable[str], stopped: Callable[[], bool]
) -> Iterator[MaintenanceStep]:
    for verb in verbs:
        if stopped():
            return
        try:
            step = table.maintain(verb)
        except SleeperError as failure:
            yield MaintenanceStep(table=table.name, verb=verb, failures=(str(failure),))
        else:
            if step is not None:
                yield step


def _logged(step: MaintenanceStep) -> MaintenanceStep:
    about = step.table or "instance"
    if step.done is not None:
        _log.info("%s: %s", about, step.done)
    for failure in step.failures:
        _log.error("%s: %s failed: %s", about, step.verb, failure)
    return step
