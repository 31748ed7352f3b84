"""The loop that takes care of tables: round after round, each table's verbs one after the other.

One thread does it all, so no table is ever cared for twice at once by one loop. Several loops on
one instance do no harm: they claim what they work on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from sleeper.errors import SleeperError

VERBS = ("compact", "split", "merge", "gc", "sweep")
"""What is done to a table, in this order: compaction first, as it makes the sizes exact."""


class MaintainedTable(Protocol):
    """A table, as the loop needs it."""

    @property
    def name(self) -> str:
        """The table's name."""
        ...

    def care(self, verb: str) -> str | None:
        """Do one of `VERBS`, and return what was done, in a line; None if nothing was to do."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceStep:
    """What became of one verb on one table.

    Attributes:
        table: The table's name.
        verb: One of `VERBS`.
        done: What was done, in a line; None where it failed.
        failure: Why it failed; None where it did not.
    """

    table: str
    verb: str
    done: str | None = None
    failure: SleeperError | None = None


def run_maintenance(
    tables: Callable[[], Iterable[MaintainedTable]],
    *,
    rest: Callable[[], None],
    stopped: Callable[[], bool],
    sweep_rounds: int,
) -> Iterator[MaintenanceStep]:
    """Take care of tables until it is stopped; yield what was done and what failed, as it happens.

    A verb that fails is told, and the others go on: the next round tries again. Between rounds it
    rests, however long the round took.

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
                yield from _care_for(table, verbs, stopped)
        except SleeperError as failure:
            yield MaintenanceStep(table="", verb="list tables", failure=failure)
        number += 1
        rest()


def _care_for(
    table: MaintainedTable, verbs: Iterable[str], stopped: Callable[[], bool]
) -> Iterator[MaintenanceStep]:
    for verb in verbs:
        if stopped():
            return
        try:
            done = table.care(verb)
        except SleeperError as failure:
            yield MaintenanceStep(table=table.name, verb=verb, failure=failure)
        else:
            if done is not None:
                yield MaintenanceStep(table=table.name, verb=verb, done=done)
