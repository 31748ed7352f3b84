"""What `sleeper serve` answers to a monitoring system: figures for Prometheus, and health.

Queues are looked at for each answer. Jobs are counted once a minute at most (`JobFigures`), and
tables are shown as maintenance saw them last (`TableFigures`), however often somebody asks.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from statistics import median
from threading import Lock, Thread
from types import TracebackType
from typing import Final, Protocol, Self

from sleeper.errors import InstanceLost, PropertiesInvalid, SleeperError
from sleeper.instance.instance import Instance
from sleeper.jobs.instance_jobs import InstanceJobs
from sleeper.model.jobs.events import JobEvent, JobEventType, JobFilter
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.jobs.statuses import job_status
from sleeper.ports.clock import Clock
from sleeper.tables.report import FilesReport

JOBS_MAX: Final = 1000
"""So many jobs of a kind are counted, those of the newest events."""

COMMITS_FOR: Final = timedelta(minutes=10)
"""Commits are counted for so long."""

_AGE_S = 60.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobCounts:
    """Jobs of all kinds.

    Attributes:
        states: How many jobs of each kind are in each state.
        commits: Seconds that commits of each kind took, and who made them: a worker, or the
            committer.
    """

    states: dict[JobKind, Counter[str]] = field(default_factory=dict)
    commits: dict[tuple[JobKind, str], list[float]] = field(default_factory=dict)

    def commit_seconds(self) -> Iterable[tuple[JobKind, str, float, float]]:
        """Yield kind, who commits, and the median and maximum of its commits."""
        for (kind, by), seconds in sorted(self.commits.items()):
            yield kind, by, median(seconds), max(seconds)


class JobFigures:
    """Counts the jobs in an instance's tracker. Safe for threads.

    Args:
        jobs: Returns the instance's jobs.
        clock: The time.
    """

    def __init__(self, jobs: Callable[[], InstanceJobs], clock: Clock) -> None:
        self._jobs = jobs
        self._clock = clock
        self._counting = Lock()
        self._counted: tuple[JobCounts, float] | None = None

    def counts(self) -> JobCounts:
        """Return counts that are a minute old at most.

        Raises:
            StorageFailed: the tracker cannot be read.
        """
        with self._counting:
            now_s = self._clock.ticks_s()
            if self._counted is None or now_s - self._counted[1] >= _AGE_S:
                self._counted = self._count(), now_s
            return self._counted[0]

    def _count(self) -> JobCounts:
        counts = JobCounts()
        jobs = self._jobs()
        since = jobs.recorder.now() - COMMITS_FOR
        for kind in JobKind:
            states = counts.states[kind] = Counter()
            for events in islice(jobs.stores.tracker.jobs(JobFilter(kind=kind)), JOBS_MAX):
                states[str(job_status(events).state)] += 1
                for event in events:
                    if event.commit_s is not None and event.at >= since:
                        counts.commits.setdefault((kind, _by(event)), []).append(event.commit_s)
        return counts


def _by(event: JobEvent) -> str:
    return "committer" if event.type is JobEventType.ADDED_FILES else "worker"


@dataclass(frozen=True, slots=True)
class TableFigure:
    """One table.

    Attributes:
        table: Its name.
        files: What it had when it last changed.
        age_s: Seconds since it was looked at.
        compactions: Compaction jobs that are planned or at work; None where maintenance compacts.
    """

    table: str
    files: FilesReport
    age_s: float
    compactions: int | None = None


class TableFigures:
    """Figures of tables, kept so that whoever asks for them asks no storage. Safe for threads.

    Args:
        clock: The time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._seen: dict[str, tuple[FilesReport, float]] = {}
        self._compactions: dict[str, int] = {}

    def note_compactions(self, table: str, jobs: int) -> None:
        """Take note of how many compaction jobs of a table are planned or at work elsewhere."""
        with self._lock:
            self._compactions[table] = jobs

    def note(self, table: str, number: int, count: Callable[[], FilesReport]) -> None:
        """Take note that a table was looked at.

        Args:
            table: Its name.
            number: Its transaction number.
            count: Counts its files; called if the table has changed since the last time.
        """
        with self._lock:
            before = self._seen.get(table)
        files = before[0] if before is not None and before[0].transaction == number else count()
        with self._lock:
            self._seen[table] = (files, self._clock.ticks_s())

    def keep(self, tables: Collection[str]) -> None:
        """Forget all tables but these."""
        with self._lock:
            self._seen = {name: seen for name, seen in self._seen.items() if name in tables}
            counted = self._compactions.items()
            self._compactions = {name: count for name, count in counted if name in tables}

    def __iter__(self) -> Iterator[TableFigure]:
        """Yield the figures of each table, by name."""
        with self._lock:
            seen, compactions = sorted(self._seen.items()), self._compactions
        now_s = self._clock.ticks_s()
        return (
            TableFigure(name, files, now_s - at_s, compactions.get(name))
            for name, (files, at_s) in seen
        )


class Workers(Protocol):
    """The workers of a process, such as a `WorkerFleet`."""

    @property
    def running(self) -> Mapping[str, int]:
        """How many of each kind run."""
        ...

    @property
    def resting(self) -> Sequence[str]:
        """The kinds that keep failing, so that none is started now."""
        ...


class NoWorkers:
    """The workers of a process that has none."""

    running: Final[Mapping[str, int]] = {}
    resting: Final[Sequence[str]] = ()


class Metrics:
    """Figures of an instance: its queues as they are, its jobs and tables as they were lately.

    Tables are not looked at here, so that no bucket is asked however often somebody looks. An
    instance without a place for jobs has neither queues nor jobs.

    Args:
        instance: Returns the instance.
        fleet: Returns the workers of this process.
        tables: What maintenance saw of tables.
        clock: The time.
        lost: Returns why maintenance cannot use the instance; None if it can.
    """

    def __init__(
        self,
        instance: Callable[[], Instance],
        fleet: Callable[[], Workers],
        tables: Iterable[TableFigure],
        clock: Clock,
        lost: Callable[[], InstanceLost | None] = lambda: None,
    ) -> None:
        self._lost = lost
        self._instance = instance
        self._fleet = fleet
        self._tables = tables
        self._figures = JobFigures(lambda: instance().jobs, clock)

    def text(self) -> str:
        """Return the figures in Prometheus' text format.

        Raises:
            StorageFailed: queues or tracker cannot be read.
        """
        return "".join(f"{line}\n" for line in self._lines())

    def problems(self) -> list[str]:
        """Return why this process cannot do its work; none when it can."""
        found = [
            f"{kind} workers keep failing, and none is started for a while"
            for kind in self._fleet().resting
        ]
        if (lost := self._lost()) is not None:
            found.append(str(lost))
        try:
            if (jobs := self._jobs()) is not None:
                jobs.queue_depths()
        except InstanceLost as failure:
            if lost is None:
                found.append(str(failure))
        except SleeperError as failure:
            found.append(f"the queues cannot be read: {failure}")
        return found

    def _jobs(self) -> InstanceJobs | None:
        try:
            return self._instance().jobs
        except PropertiesInvalid:  # it has no place for them
            return None

    def _lines(self) -> Iterator[str]:
        if (jobs := self._jobs()) is not None:
            yield from self._of_queues(jobs)
            yield from self._of_jobs(self._figures.counts())
        yield from _gauge("sleeper_workers", "Worker processes of this sleeper serve.")
        for worker, running in self._fleet().running.items():
            yield f'sleeper_workers{{kind="{worker}"}} {running}'
        yield from self._of_tables()

    def _of_queues(self, jobs: InstanceJobs) -> Iterator[str]:
        depths = jobs.queue_depths()
        yield from _gauge("sleeper_queue_messages_ready", "Messages that wait for a worker.")
        for name, depth in depths.items():
            yield f'sleeper_queue_messages_ready{{queue="{name}"}} {depth.ready}'
        yield from _gauge("sleeper_queue_messages_hidden", "Messages at work, or that wait a time.")
        for name, depth in depths.items():
            yield f'sleeper_queue_messages_hidden{{queue="{name}"}} {depth.hidden}'
        yield from _gauge("sleeper_queue_dead_letters", "Messages that are delivered no more.")
        for name, depth in depths.items():
            yield f'sleeper_queue_dead_letters{{queue="{name}"}} {depth.dead}'
        yield from _gauge("sleeper_queue_oldest_seconds", "Age of the oldest message.")
        for name, depth in depths.items():
            if depth.oldest_s is not None or not depth.ready + depth.hidden:  # else it is not known
                yield f'sleeper_queue_oldest_seconds{{queue="{name}"}} {depth.oldest_s or 0.0:.3f}'

    def _of_jobs(self, counts: JobCounts) -> Iterator[str]:
        yield from _gauge("sleeper_jobs", f"The last {JOBS_MAX} jobs of a kind, by state.")
        for kind, states in counts.states.items():
            for state, count in sorted(states.items()):
                yield f'sleeper_jobs{{kind="{kind}",state="{state}"}} {count}'
        commits = [*counts.commit_seconds()]
        about = "of commits in the last 10 minutes."
        yield from _gauge("sleeper_commit_seconds_median", f"Median duration {about}")
        for kind, by, middle, _ in commits:
            yield f'sleeper_commit_seconds_median{{kind="{kind}",by="{by}"}} {middle:.3f}'
        yield from _gauge("sleeper_commit_seconds_max", f"Longest duration {about}")
        for kind, by, _, longest in commits:
            yield f'sleeper_commit_seconds_max{{kind="{kind}",by="{by}"}} {longest:.3f}'

    def _of_tables(self) -> Iterator[str]:
        tables = [(_label(each.table), each) for each in self._tables]
        for which in ("mean", "max"):
            name = f"sleeper_table_leaf_files_{which}"
            yield from _gauge(name, f"Files of a leaf partition: {which} of those that have any.")
            for label, each in tables:
                yield f'{name}{{table="{label}"}} {each.files.references_per_leaf[which]:g}'
        yield from _gauge("sleeper_table_age_seconds", "Since maintenance looked at the table.")
        for label, each in tables:
            yield f'sleeper_table_age_seconds{{table="{label}"}} {each.age_s:.0f}'
        left = [(label, each.compactions) for label, each in tables if each.compactions is not None]
        if left:
            about = "Compaction jobs that are planned or at work, where workers run them."
            yield from _gauge("sleeper_compaction_jobs", about)
            for label, count in left:
                yield f'sleeper_compaction_jobs{{table="{label}"}} {count}'


class MetricsServer:
    """Answers `/metrics` and `/healthz` by HTTP while its block runs.

    Args:
        metrics: What is served.
        host: The address to listen at.
        port: The port; 0 for any that is free.

    Raises:
        OSError: the address cannot be listened at.
    """

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        class Answers(_Answers):
            figures = metrics

        self._server = ThreadingHTTPServer((host, port), Answers)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Answers(BaseHTTPRequestHandler):
    """Answers one request."""

    figures: Metrics
    timeout = 10

    def do_GET(self) -> None:
        if self.path == "/metrics":
            try:
                self._answer(HTTPStatus.OK, "text/plain; version=0.0.4", self.figures.text())
            except SleeperError as failure:
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{failure}\n")
        elif self.path == "/healthz":
            reasons = self.figures.problems()
            status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
            body = json.dumps({"healthy": not reasons, "reasons": reasons})
            self._answer(status, "application/json", body)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "ask for /metrics or /healthz\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        _log.debug(format, *args)

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _label(text: str) -> str:
    """Return a text as the value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _gauge(name: str, about: str) -> tuple[str, str]:
    return f"# HELP {name} {about}", f"# TYPE {name} gauge"
