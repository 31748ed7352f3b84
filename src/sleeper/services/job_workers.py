"""Makes the worker of each kind of job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from sleeper.instance import Instance
from sleeper.jobs.instance_jobs import InstanceJobs
from sleeper.model.jobs.events import TaskEvent
from sleeper.model.jobs.messages import QueueName
from sleeper.model.jobs.queue_settings import queue_settings
from sleeper.services.job_handler import JobHandler
from sleeper.services.job_kinds.ingest import IngestHandler
from sleeper.services.worker import Worker, WorkerSettings, WorkQueue

_HANDLERS: Final[dict[str, tuple[Callable[[InstanceJobs], JobHandler], tuple[QueueName, ...]]]] = {
    "ingest": (IngestHandler, (QueueName.INGEST,)),
}
WORKER_KINDS: Final = tuple(_HANDLERS)
"""The kinds of jobs that workers run."""


def open_worker(
    instance: Instance,
    kind: str,
    settings: WorkerSettings,
    *,
    host: str,
    pid: int,
    stopped: Callable[[], bool],
    rest: Callable[[float], object],
) -> Worker:
    """Return a worker that runs jobs of one kind when it is told to.

    Args:
        instance: Whose jobs they are.
        kind: One of `WORKER_KINDS`.
        settings: How messages are taken.
        host: The machine it runs on.
        pid: Its process id.
        stopped: Asked before each message and while a job is at work.
        rest: Waits for so many seconds, or until the worker is stopped.
    """
    open_handler, names = _HANDLERS[kind]
    jobs = instance.jobs
    handler = open_handler(jobs)
    start = TaskEvent(
        kind=handler.kind,
        task_id=jobs.new_id(),
        at=jobs.recorder.now(),
        is_finished=False,
        host=host,
        pid=pid,
    )
    keepalive_s = float(instance.properties.ingest_queue.keepalive_s)
    return Worker(
        handler,
        [
            WorkQueue(jobs.stores.queue(name), queue_settings(instance.properties, name))
            for name in names
        ],
        recorder=jobs.recorder,
        task=start,
        settings=replace(settings, keepalive_s=keepalive_s),
        stopped=stopped,
        rest=rest,
        new_id=jobs.new_id,
    )
