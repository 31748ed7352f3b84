"""Maintenance: in each round the operations of each online table are run, in turn.

The steps of `run_maintenance`:

1. `OnlineTables` lists the tables that are online, and opens those that are new.
2. Each operation of `VERBS` is run on each table (`OnlineTable.maintain`). One that fails is
   reported, and tried again in the next round.
3. `Pace.rest` waits for the next round: longer and longer while nothing changes.

One loop runs in one thread, so it never maintains a table twice at a time. Several loops on one
instance are safe, because they claim the files that they work on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from sleeper.errors import InstanceLost, SleeperError, TableNotFound
from sleeper.instance.instance import Instance
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.ports.clock import Clock
from sleeper.tables.table import Table
from sleeper.workers.serve.metrics import TableFigures
from sleeper.workers.stop_signal import Interrupted, StopSignal

VERBS = ("compact", "split", "merge", "publish", "gc", "sweep")
"""The operations on a table, in this order: compaction first, because it makes row counts exact."""

LONGEST_S = 900.0
"""The longest pause between two rounds, unless the shortest is longer."""

_DAY_S = 24 * 60 * 60
_LOOK_S = 1.0
_log = logging.getLogger(__name__)


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
            Interrupted: the loop was asked to end.
        """
        ...


class Rounds(Protocol):
    """When the loop runs its rounds."""

    def rest(self) -> None:
        """Wait for the next round, or until the loop is to end."""
        ...

    def sweep_is_due(self) -> bool:
        """Return whether orphans are to be looked for: a sweep lists a table's whole folder."""
        ...


def run_maintenance(
    tables: Callable[[], Iterable[MaintainedTable]], *, stop: StopSignal, rounds: Rounds
) -> Iterator[MaintenanceStep]:
    """Maintain tables until `stop` is set; yield and log what was done and what failed.

    A failed operation is reported and does not stop the others; the next round retries it. The
    loop waits between rounds, however long the round took.

    Args:
        tables: Returns the tables that are online now. If that fails, the round ends.
        stop: Asks the loop to end; looked at before each operation.
        rounds: Says when the next round begins, and which of them look for orphans.
    """
    number = 0
    while not stop.is_set():
        verbs = VERBS if rounds.sweep_is_due() else VERBS[:-1]
        try:
            for table in tables():
                for step in _maintain(table, verbs, stop):
                    yield _logged(step)
        except Interrupted:
            return
        except SleeperError as failure:
            yield _logged(MaintenanceStep(table="", verb="list tables", failures=(str(failure),)))
        number += 1
        _log.debug("round %d has ended", number)
        rounds.rest()


def _maintain(
    table: MaintainedTable, verbs: Iterable[str], stop: StopSignal
) -> Iterator[MaintenanceStep]:
    for verb in verbs:
        if stop.is_set():
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


_Outcome = tuple[str | None, tuple[str, ...]]
"""What was done, as one line, and what failed."""

NotePlannedJobs = Callable[[Table, Sequence[CompactionJob]], None]
"""Called with a table, and all compaction jobs that are planned for it."""


class OnlineTables:
    """The tables of an instance that are online; their handles are reused in every round.

    Args:
        current: Returns their instance. When it is another one, tables are opened again.
        look: Called before each round; may open the instance again.
        is_paused: Returns whether the instance is paused: then there are no tables to work on.
        note_change: Called when a table changed since the round before.
        note_lost: Called with the reason if the instance is not what was opened.

    Attributes:
        figures: Takes note of each table that was looked at; None where nobody asks for them.
    """

    def __init__(
        self,
        current: Callable[[], Instance],
        *,
        look: Callable[[], object] = lambda: None,
        is_paused: Callable[[], bool],
        note_change: Callable[[], None] = lambda: None,
        note_lost: Callable[[InstanceLost], object] = lambda failure: None,
    ) -> None:
        self._current = current
        self._instance = current()
        self._look = look
        self._is_paused = is_paused
        self._note_change = note_change
        self._note_lost = note_lost
        self._handles: dict[str, Table] = {}
        self._numbers: dict[str, int] = {}
        self.figures: TableFigures | None = None

    def __call__(self) -> Iterator[Table]:
        """Yield the tables that are online now.

        Raises:
            InstanceLost: the instance is not what was opened.
        """
        self._look()
        if self._is_paused():
            return
        if self._current() is not self._instance:
            self._instance, self._handles = self._current(), {}
        try:
            yield from self._online()
        except InstanceLost as failure:
            self._note_lost(failure)
            raise

    def _online(self) -> Iterator[Table]:
        records = {record.table_id: record for record in self._instance.tables()}
        self._handles = {name: each for name, each in self._handles.items() if name in records}
        if self.figures is not None:
            self.figures.keep({record.name for record in records.values() if record.online})
        for table_id, record in records.items():
            if not record.online:
                continue
            try:
                if table_id not in self._handles:
                    self._handles[table_id] = self._instance.table(record.name)
                number = self._handles[table_id].refresh()
                if self.figures is not None:
                    self.figures.note(record.name, number, self._handles[table_id].report_files)
            except TableNotFound:
                _log.info("table %s was deleted or renamed at this moment", record.name)
                continue
            if self._numbers.get(table_id) != number:
                self._numbers[table_id] = number
                self._note_change()
            yield self._handles[table_id]


@dataclass(frozen=True, slots=True)
class OnlineTable:
    """One table to maintain, by public methods of `Table`.

    Attributes:
        table: The table.
        stop: Asks for the end; looked at after each compaction job.
        workers: Number of compaction jobs that run in parallel.
        note_planned: Called with the jobs that are planned for the table, if workers run them;
            None where this process does.
    """

    table: Table
    stop: StopSignal
    workers: int = 1
    note_planned: NotePlannedJobs | None = None

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table.name

    def maintain(self, verb: str) -> MaintenanceStep | None:
        """Run one of `VERBS` and return the result; None if there was nothing to do.

        Raises:
            Interrupted: the loop was asked to end between two compaction jobs.
        """
        verbs: dict[str, Callable[[], _Outcome]] = {
            "compact": self._compact,
            "split": self._split,
            "merge": self._merge,
            "publish": self._publish,
            "gc": self._gc,
            "sweep": self._sweep,
        }
        done, failures = verbs[verb]()
        if done is None and not failures:
            return None
        return MaintenanceStep(table=self.name, verb=verb, done=done, failures=failures)

    def _compact(self) -> _Outcome:
        if self.note_planned is not None:
            if self.table.claims():  # workers release them too, if they live long enough
                self.table.release_claims(expired_only=True)
            self.note_planned(self.table, self.table.plan_compaction().jobs)
            return None, ()
        run = self.table.compact(workers=self.workers, progress=self._check_stopped)
        ended = [job for job in run.jobs if job.failure is None]
        files = sum(len(job.job.inputs) for job in ended)
        failures = (
            f"compaction job {job.job.job_id} of leaf {job.job.partition_id[:8]}: {job.failure}"
            for job in run.failed
        )
        return f"{_counted(files, 'file')} became {len(ended):,}" if ended else None, (*failures,)

    def _check_stopped(self, done: int, total: int) -> None:
        if done < total:
            self.stop.check()

    def _split(self) -> _Outcome:
        split = [each for each in self.table.split_partitions() if each.reason is None]
        return f"split {_counted(len(split), 'leaf partition')}" if split else None, ()

    def _merge(self) -> _Outcome:
        merged = [each for each in self.table.merge_partitions() if each.reason is None]
        return f"merged {_counted(len(merged), 'pair')} of leaf partitions" if merged else None, ()

    def _publish(self) -> _Outcome:
        done = [
            f"published transaction {each.transaction} as {each.format}"
            for each in self.table.publish_if_due()
        ]
        return ", ".join(done) or None, ()

    def _gc(self) -> _Outcome:
        run = self.table.collect_garbage()
        done = f"deleted {_counted(len(run.deleted), 'file')}" if run.deleted else None
        return done, _not_deleted(run.failures)

    def _sweep(self) -> _Outcome:
        swept = self.table.sweep_orphans()
        done = []
        if swept.gone:
            done.append(f"deleted {_counted(swept.gone, 'file')} that killed jobs left")
        if swept.gone_states:
            done.append(f"deleted {_counted(swept.gone_states, 'part')} of old states")
        return ", ".join(done) or None, _not_deleted(swept.failures)


def _not_deleted(failures: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"{name} could not be deleted: {why}" for name, why in failures.items())


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


class Pace:
    """The pauses between rounds: the shortest after a change, else twice as long as the last.

    Args:
        every_s: The shortest pause.
        stop: Ends a rest.
        clock: The time.
    """

    def __init__(self, every_s: float, *, stop: StopSignal, clock: Clock) -> None:
        self._every_s = every_s
        self._longest_s = max(every_s, LONGEST_S)
        self._stop = stop
        self._clock = clock
        self._pause_s = every_s / 2
        self._changed = False
        self._swept_s: float | None = None

    def note_change(self) -> None:
        """Take note that a table changed, or a job runs: the shortest pause suffices now.

        May be called from any thread; it shortens the current rest.
        """
        self._changed = True

    def rest(self) -> None:
        """Wait for the next round, or until all is to end."""
        begun_s = self._clock.ticks_s()
        self._pause_s = min(self._longest_s, 2 * self._pause_s)
        while True:
            pause_s = self._every_s if self._changed else self._pause_s
            left_s = begun_s + pause_s - self._clock.ticks_s()
            if left_s <= 0 or self._stop.wait(min(left_s, _LOOK_S)):
                break
        if self._changed:
            self._pause_s = self._every_s / 2
        self._changed = False

    def sweep_is_due(self) -> bool:
        """Return whether orphans are to be looked for: at first, and then once a day."""
        now_s = self._clock.ticks_s()
        if self._swept_s is not None and now_s - self._swept_s < _DAY_S:
            return False
        self._swept_s = now_s
        return True


class OneRound:
    """A single round, in which orphans are looked for.

    Args:
        stop: Set at the end of the round.
    """

    def __init__(self, stop: StopSignal) -> None:
        self._stop = stop

    def rest(self) -> None:
        """Let the loop end."""
        self._stop.set()

    def sweep_is_due(self) -> bool:
        """Return true."""
        return True
