"""The loop that maintains tables: round after round, each table's verbs one after the other.

One thread does it all, so no table is ever maintained twice at once by one loop. Several loops on
one instance do no harm: they claim what they work on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from sleeper.errors import SleeperError

VERBS = ("compact", "split", "merge", "gc", "sweep")
"""What is done to a table, in this order: compaction first, as it makes the sizes exact."""

_log = logging.getLogger(__name__)


class Stopped(Exception):
    """The loop was asked to end while a verb was at work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceStep:
    """What became of one verb on one table.

    Attributes:
        table: The table's name; empty where the instance itself could not be read.
        verb: One of `VERBS`.
        done: What was done, in a line; None where nothing was.
        failures: What could not be done, and why; a line for each thing.
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
        """Do one of `VERBS`, and return what was done; None if nothing was to do.

        Raises:
            Stopped: it was asked to end.
        """
        ...


def run_maintenance(
    tables: Callable[[], Iterable[MaintainedTable]],
    *,
    rest: Callable[[], None],
    stopped: Callable[[], bool],
    sweep_rounds: int,
) -> Iterator[MaintenanceStep]:
    """Maintain tables until it is stopped; yield and log what was done and what failed.

    A verb that fails is reported, and the others go on: the next round tries again. Between rounds
    it rests, however long the round took.

    Args:
        tables: Returns the tables that are online now. Where even that fails, the round is over.
        rest: Waits for the next round, or until it is stopped.
        stopped: Asked before each verb.
        sweep_rounds: Orphans are looked for in the first round and then in every so many-th: it
            lists a table's whole folder.
    """
    number = 0
    while not stopped():
        verbs = VERBS if number % sweep_rounds == 0 else VERBS[:-1]
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
