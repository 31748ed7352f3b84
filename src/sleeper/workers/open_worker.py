"""Makes the worker of each kind of job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Final, Protocol, cast

from sleeper.errors import PropertiesInvalid
from sleeper.instance.instance import Instance
from sleeper.model.jobs.events import JobEvent, TaskEvent
from sleeper.model.jobs.kinds import COMPACTION, JobKind, KindSpec, QueueName, kind_of
from sleeper.model.jobs.settings import handling_settings, queue_settings
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.ports.jobs import JobQueue
from sleeper.tables.table import Table
from sleeper.workers.instance_changes import PauseLook
from sleeper.workers.job import JobReader
from sleeper.workers.kinds.commit import Committer
from sleeper.workers.kinds.compaction import Compactions
from sleeper.workers.maintenance import OnlineTables
from sleeper.workers.stop_signal import StopSignal
from sleeper.workers.worker import (
    QueuedJobs,
    Recorder,
    TaskProcess,
    Worker,
    WorkerControl,
    WorkerSettings,
    WorkQueue,
)


class _ReaderModule(Protocol):
    """What a module in `workers/kinds` has for the worker loop."""

    def open_reader(self, instance: Instance, queue: QueueName) -> JobReader:
        """Return what reads the messages of a queue."""
        ...


_COMMIT: Final = "commit"

_log = logging.getLogger(__name__)


def reader_of(instance: Instance, kind: KindSpec, queue: QueueName) -> JobReader:
    """Return what reads the messages of a kind of jobs, from its module in `workers/kinds`."""
    module = cast("_ReaderModule", import_module(f"sleeper.workers.kinds.{kind.module}"))
    return module.open_reader(instance, queue)


def with_handling(
    settings: WorkerSettings, properties: InstanceProperties, name: QueueName
) -> WorkerSettings:
    """Return a worker's settings with those that the instance has for messages of a queue."""
    handling = handling_settings(properties, name)
    return replace(
        settings,
        keepalive_s=handling.keepalive_s,
        retry_first_s=handling.retry_first_s,
        retry_max_s=handling.retry_max_s,
    )


def open_worker(
    instance: Instance,
    kind: str,
    settings: WorkerSettings,
    stop: StopSignal,
    *,
    process: TaskProcess | None = None,
    is_outdated: Callable[[], bool] = lambda: False,
    delivered: Mapping[QueueName, JobQueue] | None = None,
) -> Worker:
    """Return a worker that runs jobs of one kind when its `run` is called.

    A worker takes messages from the queues of its kind, and runs each as a job. Two kinds work
    otherwise: compactions have no queue, and claim files in tables; a committer takes many
    messages at once, and commits those of a table in one entry.

    Args:
        instance: Whose jobs they are.
        kind: One of `KIND_NAMES`.
        settings: How messages are taken, and when the worker ends by itself.
        stop: Asks it to end; looked at before each message and while a job runs.
        process: Who runs them; None for this process.
        is_outdated: Asked before each message; the worker ends when it is true.
        delivered: The queues to take messages from, where others have received them; None for
            all of the instance's that have jobs of the kind.
    """
    process = process or TaskProcess.this()
    if kind == COMPACTION:
        return open_compaction_worker(
            instance, settings, stop, process=process, is_outdated=is_outdated
        )
    if kind == _COMMIT:
        return _open_committer(instance, settings, stop, process, is_outdated, delivered or {})
    jobs = instance.jobs
    queues = _queues(instance, kind_of(kind), delivered)
    name = next(iter(queues))
    control = WorkerControl(
        with_handling(settings, instance.properties, name),
        stop,
        is_paused=(lambda: False) if kind_of(kind).goes_on_paused else PauseLook(instance),
        is_outdated=is_outdated,
    )
    task = process.task(queues[name].reader.kind, jobs.new_id(), jobs.recorder.now())
    work = QueuedJobs(
        [*queues.values()],
        control,
        recorder=jobs.recorder,
        task_id=task.task_id,
        new_id=jobs.new_id,
    )
    return Worker(work, control, task=task, recorder=jobs.recorder, clock=instance.clock)


def _queues(
    instance: Instance, kind: KindSpec, delivered: Mapping[QueueName, JobQueue] | None
) -> dict[QueueName, WorkQueue]:
    found = delivered or {name: instance.jobs.stores.queue(name) for name in kind.queue_names}
    return {
        name: WorkQueue(
            reader_of(instance, kind, name), queue, queue_settings(instance.properties, name)
        )
        for name, queue in found.items()
    }


def _open_committer(
    instance: Instance,
    settings: WorkerSettings,
    stop: StopSignal,
    process: TaskProcess,
    is_outdated: Callable[[], bool],
    delivered: Mapping[QueueName, JobQueue],
) -> Worker:
    """Return a worker that commits. The tracker shows its commits, and not the worker itself."""
    jobs = instance.jobs
    control = WorkerControl(replace(settings, is_reported=False), stop, is_outdated=is_outdated)
    queue = delivered.get(QueueName.COMMIT) or jobs.stores.queue(QueueName.COMMIT)
    return Worker(
        Committer(jobs, control, queue),
        control,
        task=process.task(JobKind.INGEST, jobs.new_id(), jobs.recorder.now()),
        recorder=jobs.recorder,
        clock=instance.clock,
    )


class _NoTracker:
    """Records nothing: the instance has no place for jobs."""

    def record(self, *events: JobEvent | TaskEvent) -> None:
        """Leave events out."""


def open_compaction_worker(
    instance: Instance,
    settings: WorkerSettings,
    stop: StopSignal,
    *,
    process: TaskProcess | None = None,
    is_outdated: Callable[[], bool] = lambda: False,
    tables: Callable[[], Iterable[Table]] | None = None,
) -> Worker:
    """Return a compaction worker, also for an instance that has no place for jobs.

    Args:
        instance: Whose tables it compacts.
        settings: When it ends by itself.
        stop, process, is_outdated: As for `open_worker`.
        tables: Returns the tables to compact; None for all that are online.
    """
    process = process or TaskProcess.this()
    recorder: Recorder
    try:
        jobs = instance.jobs
    except PropertiesInvalid as missing:
        _log.warning("compactions are not tracked: %s", missing)
        recorder, task_id = _NoTracker(), f"{process.host}:{process.pid}"
    else:
        recorder, task_id = jobs.recorder, jobs.new_id()
    clock = instance.clock
    is_paused = PauseLook(instance)
    control = WorkerControl(settings, stop, is_paused=is_paused, is_outdated=is_outdated)
    work = Compactions(
        tables or OnlineTables(lambda: instance, is_paused=is_paused),
        control,
        task_id=task_id,
        recorder=recorder,
        clock=clock,
        every_s=60.0 * instance.properties.compaction_workers.period_minutes,
    )
    task = process.task(JobKind.COMPACTION, task_id, clock.now())
    return Worker(work, control, task=task, recorder=recorder, clock=clock)
