"""Makes the worker of each kind of job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Final, Protocol, cast

from sleeper.errors import PropertiesInvalid
from sleeper.instance.instance import Instance
from sleeper.model.jobs.events import TaskEvent
from sleeper.model.jobs.kinds import COMPACTION, JobKind, KindSpec, QueueName, kind_of
from sleeper.model.jobs.settings import handling_settings, queue_settings
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.ports.jobs import JobQueue
from sleeper.tables.table import Table
from sleeper.workers.job import JobReader
from sleeper.workers.kinds.commit import Committer
from sleeper.workers.kinds.compaction import CompactionWorker
from sleeper.workers.online_tables import OnlineTables
from sleeper.workers.serve.pause_look import PauseLook
from sleeper.workers.worker import Worker, WorkerSettings, WorkQueue


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
    *,
    host: str,
    pid: int,
    stopped: Callable[[], bool],
    rest: Callable[[float], object],
    outdated: Callable[[], bool] = lambda: False,
    delivered: Mapping[QueueName, JobQueue] | None = None,
) -> Worker | Committer | CompactionWorker:
    """Return a worker that runs jobs of one kind when its `run` is called.

    Args:
        instance: Whose jobs they are.
        kind: One of `KIND_NAMES`.
        settings: How messages are taken.
        host: The machine it runs on.
        pid: Its process id.
        stopped: Asked before each message and while a job runs.
        rest: Waits for so many seconds, or until the worker is stopped.
        outdated: Asked before each message; the worker ends when it is true.
        delivered: The queues to take messages from, where others have received them; None for
            all of the instance's that have jobs of the kind.
    """
    if kind == COMPACTION:
        return open_compaction_worker(
            instance, settings, host=host, pid=pid, stopped=stopped, rest=rest, outdated=outdated
        )
    jobs = instance.jobs
    if kind == _COMMIT:
        return Committer(
            jobs,
            settings,
            stopped=lambda: stopped() or outdated(),
            rest=rest,
            queue=(delivered or {}).get(QueueName.COMMIT),
        )
    queues = _queues(instance, kind_of(kind), delivered)
    name = next(iter(queues))
    task = TaskEvent(
        kind=queues[name].reader.kind,
        task_id=jobs.new_id(),
        at=jobs.recorder.now(),
        is_finished=False,
        host=host,
        pid=pid,
    )
    return Worker(
        [*queues.values()],
        recorder=jobs.recorder,
        task=task,
        settings=with_handling(settings, instance.properties, name),
        stopped=stopped,
        paused=_paused_of(instance, kind_of(kind)),
        outdated=outdated,
        rest=rest,
        new_id=jobs.new_id,
    )


def _paused_of(instance: Instance, kind: KindSpec) -> Callable[[], bool]:
    if kind.goes_on_paused:
        return lambda: False
    return PauseLook(instance.pause_switch, instance.ticks_s)


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


def open_compaction_worker(
    instance: Instance,
    settings: WorkerSettings,
    *,
    host: str,
    pid: int,
    stopped: Callable[[], bool],
    rest: Callable[[float], object],
    outdated: Callable[[], bool] = lambda: False,
    tables: Callable[[], Iterable[Table]] | None = None,
) -> CompactionWorker:
    """Return a compaction worker, also for an instance that has no place for jobs.

    Args:
        instance: Whose tables it compacts.
        settings, host, pid, stopped, rest, outdated: As for `open_worker`.
        tables: Returns the tables to compact; None for all that are online.
    """
    record: Callable[..., None]
    try:
        jobs = instance.jobs
    except PropertiesInvalid as missing:
        _log.warning("compactions are not tracked: %s", missing)
        record, task_id = (lambda *events: None), f"{host}:{pid}"
    else:
        record, task_id = jobs.recorder.record, jobs.new_id()
    paused = PauseLook(instance.pause_switch, instance.ticks_s)
    online = OnlineTables(
        lambda: instance, workers=1, stopped=stopped, paused=paused, note_change=lambda: None
    )
    return CompactionWorker(
        tables or (lambda: (each.table for each in online())),
        record=record,
        task=TaskEvent(
            kind=JobKind.COMPACTION,
            task_id=task_id,
            at=instance.now(),
            is_finished=False,
            host=host,
            pid=pid,
        ),
        settings=settings,
        every_s=60.0 * instance.properties.compaction_workers.period_minutes,
        now=instance.now,
        ticks_s=instance.ticks_s,
        stopped=stopped,
        paused=paused,
        outdated=outdated,
        rest=rest,
    )
