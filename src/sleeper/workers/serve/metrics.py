"""What `sleeper serve` tells a monitoring system: figures as Prometheus reads them, and health."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Protocol, Self

from sleeper.errors import InstanceLost, SleeperError
from sleeper.jobs.instance_jobs import InstanceJobs
from sleeper.workers.serve.job_figures import JOBS_MAX, JobCounts, JobFigures
from sleeper.workers.serve.table_figures import TableFigure

_log = logging.getLogger(__name__)


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


class Metrics:
    """Figures of an instance: its queues as they are, its jobs and tables as they were lately.

    Tables are not looked at here, so that no bucket is asked however often somebody looks.

    Args:
        jobs: Returns the instance's jobs.
        fleet: The workers of this process.
        tables: What maintenance saw of tables.
        ticks_s: A clock that is never set, in seconds.
        lost: Returns why maintenance cannot use the instance; None if it can.
    """

    def __init__(
        self,
        jobs: Callable[[], InstanceJobs],
        fleet: Workers,
        tables: Iterable[TableFigure],
        ticks_s: Callable[[], float],
        lost: Callable[[], InstanceLost | None] = lambda: None,
    ) -> None:
        self._lost = lost
        self._jobs = jobs
        self._fleet = fleet
        self._tables = tables
        self._figures = JobFigures(jobs, ticks_s)

    def text(self) -> str:
        """Return the figures in Prometheus' text format.

        Raises:
            StorageFailed: queues or tracker cannot be read.
        """
        return "".join(f"{line}\n" for line in self._lines())

    def ailments(self) -> list[str]:
        """Return why this process cannot do its work; none when it can."""
        found = [
            f"{kind} workers keep failing, and none is started for a while"
            for kind in self._fleet.resting
        ]
        if (lost := self._lost()) is not None:
            found.append(str(lost))
        try:
            self._jobs().queue_depths()
        except InstanceLost as failure:
            if lost is None:
                found.append(str(failure))
        except SleeperError as failure:
            found.append(f"the queues cannot be read: {failure}")
        return found

    def _lines(self) -> Iterator[str]:
        depths = self._jobs().queue_depths()
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
        yield from self._of_jobs(self._figures.counts())
        yield from _gauge("sleeper_workers", "Worker processes of this sleeper serve.")
        for worker, running in self._fleet.running.items():
            yield f'sleeper_workers{{kind="{worker}"}} {running}'
        yield from self._of_tables()

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
            told = metrics

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

    told: Metrics
    timeout = 10

    def do_GET(self) -> None:
        if self.path == "/metrics":
            try:
                self._answer(HTTPStatus.OK, "text/plain; version=0.0.4", self.told.text())
            except SleeperError as failure:
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{failure}\n")
        elif self.path == "/healthz":
            reasons = self.told.ailments()
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
