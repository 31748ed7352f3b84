"""The online tables of an instance, and how each operation of maintenance is run on one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sleeper.errors import InstanceLost, TableNotFound
from sleeper.instance.instance import Instance
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.tables.table import Table
from sleeper.workers.maintenance import MaintenanceStep, Stopped
from sleeper.workers.serve.metrics import TableFigures

_log = logging.getLogger(__name__)

_Outcome = tuple[str | None, tuple[str, ...]]
"""What was done, as one line, and what failed."""

TellJobs = Callable[[str, Sequence[CompactionJob]], None]
"""Told a table's id, and all compaction jobs that it wants."""


class OnlineTables:
    """The tables to maintain; their handles are reused in every round.

    Args:
        current: Returns their instance. When it is another one, tables are opened again.
        look: Called before each round; may open the instance again.
        workers: Number of compaction jobs that run in parallel.
        stopped: Returns whether to stop; called after each compaction job.
        paused: Returns whether the instance is paused: then no table is to be maintained.
        note_change: Called for each table that changed since the round before.
        note_lost: Called with the reason if the instance is not what was opened.

    Attributes:
        leave_compactions: Told which jobs a table wants, if workers are to run them; None where
            the loop does.
        figures: Takes note of each table that was looked at; None where nobody asks for them.
    """

    def __init__(
        self,
        current: Callable[[], Instance],
        *,
        look: Callable[[], object] = lambda: None,
        workers: int,
        stopped: Callable[[], bool],
        paused: Callable[[], bool],
        note_change: Callable[[], None],
        note_lost: Callable[[InstanceLost], object] = lambda failure: None,
    ) -> None:
        self._current = current
        self._instance = current()
        self._look = look
        self._workers = workers
        self._stopped = stopped
        self._paused = paused
        self._note_change = note_change
        self._note_lost = note_lost
        self._handles: dict[str, Table] = {}
        self._numbers: dict[str, int] = {}
        self.leave_compactions: TellJobs | None = None
        self.figures: TableFigures | None = None

    def __call__(self) -> Iterator[OnlineTable]:
        """Yield the tables that are online now.

        Raises:
            InstanceLost: the instance is not what was opened.
        """
        self._look()
        if self._paused():
            return
        if self._current() is not self._instance:
            self._instance, self._handles = self._current(), {}
        try:
            yield from self._online()
        except InstanceLost as failure:
            self._note_lost(failure)
            raise

    def _online(self) -> Iterator[OnlineTable]:
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
            yield OnlineTable(
                self._handles[table_id], self._workers, self._stopped, self.leave_compactions
            )


@dataclass(frozen=True, slots=True)
class OnlineTable:
    """One table to maintain, by public methods of `Table`.

    Attributes:
        table: The table.
        workers: Number of compaction jobs that run in parallel.
        stopped: Returns whether to stop; called after each compaction job.
        leave_compactions: Told which jobs the table wants, if workers run them; else None.
    """

    table: Table
    workers: int
    stopped: Callable[[], bool]
    leave_compactions: TellJobs | None = None

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table.name

    def maintain(self, verb: str) -> MaintenanceStep | None:
        """Run one of `VERBS` and return the result; None if there was nothing to do.

        Raises:
            Stopped: the loop was asked to stop between two compaction jobs.
        """
        verbs: dict[str, Callable[[], _Outcome]] = {
            "compact": self._compact,
            "split": self._split,
            "merge": self._merge,
            "gc": self._gc,
            "sweep": self._sweep,
        }
        done, failures = verbs[verb]()
        if done is None and not failures:
            return None
        return MaintenanceStep(table=self.name, verb=verb, done=done, failures=failures)

    def _compact(self) -> _Outcome:
        if self.leave_compactions is not None:
            if self.table.claims():  # workers release them too, if they live long enough
                self.table.release_claims(expired_only=True)
            self.leave_compactions(self.table.table_id, self.table.plan_compaction().jobs)
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
        if self.stopped() and done < total:
            raise Stopped

    def _split(self) -> _Outcome:
        split = [each for each in self.table.split_partitions() if each.reason is None]
        return f"split {_counted(len(split), 'leaf partition')}" if split else None, ()

    def _merge(self) -> _Outcome:
        merged = [each for each in self.table.merge_partitions() if each.reason is None]
        return f"merged {_counted(len(merged), 'pair')} of leaf partitions" if merged else None, ()

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
