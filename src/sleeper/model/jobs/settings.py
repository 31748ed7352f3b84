"""What an instance's properties say of the kinds of jobs: queues, handling, workers, tracking."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from sleeper.model.jobs.kinds import QUEUES, TRACKED, URGENT, JobKind, KindSpec, QueueName, TaskSpec
from sleeper.model.jobs.messages import HIDDEN_MAX_S, QueueSettings
from sleeper.model.known_properties.catalogue import INSTANCE_PROPERTIES
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.model.known_properties.value_kinds import PREFIX

_KEPT_MAX: Final = timedelta(days=36_500)  # ten thousand years are too many for a date
_KNOWN: Final = {each.name: each for each in INSTANCE_PROPERTIES}
_KEEPALIVES: Final = 3
"""How often a lease is renewed before it would end, at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlingSettings:
    """How a worker handles the messages of one queue.

    Attributes:
        keepalive_s: How often the lease of a message is renewed while it is handled; always
            shorter than the lease.
        retry_first_s: How long a message waits after its first failure.
        retry_max_s: How long it waits after any failure, at most.
    """

    keepalive_s: float
    retry_first_s: float
    retry_max_s: float


def queue_settings(properties: InstanceProperties, name: QueueName) -> QueueSettings:
    """Return how one of an instance's queues delivers.

    Messages to the committer stay in order for each table (rule STS-21); other queues promise
    no order. No message is hidden for longer than half a day, whatever a property says.
    """
    spec = QUEUES[name]
    return QueueSettings(
        fifo=spec.fifo,
        visibility_s=min(float(_value(properties, spec.lease)), HIDDEN_MAX_S),
        receives_max=spec.receives_max or properties.jobs.receives_max,
        function=URGENT.get(name) if name in (properties.jobs.called_queues or ()) else None,
    )


def handling_settings(properties: InstanceProperties, name: QueueName) -> HandlingSettings:
    """Return how messages of one of an instance's queues are handled."""
    spec = QUEUES[name]
    keepalive_s, first_s = _value(properties, spec.keepalive), _value(properties, spec.retry_first)
    visibility_s = queue_settings(properties, name).visibility_s
    retry_first_s = min(float(first_s), HIDDEN_MAX_S)
    return HandlingSettings(
        keepalive_s=min(float(keepalive_s), visibility_s / _KEEPALIVES),
        retry_first_s=retry_first_s,
        retry_max_s=max(float(properties.jobs.retry_max_s), retry_first_s),
    )


def workers_max(properties: InstanceProperties, kind: KindSpec) -> int:
    """Return how many workers of a kind there may be in AWS."""
    return 1 if kind.workers_max is None else int(_value(properties, kind.workers_max))


def _value(properties: InstanceProperties, name: str) -> Any:
    """Return the value of a property that a kind of jobs names."""
    known = _KNOWN[f"{PREFIX}{name}"]
    text = properties.text(known.name)
    return None if text is None else known.parse(text, stored=True)


# ---------------------------------------------------------------- tasks
#
# Workers that run as tasks on Fargate.


@dataclass(frozen=True, slots=True)
class TaskSize:
    """The size of a worker on Fargate.

    Attributes:
        architecture: `X86_64` or `ARM64`.
        cpu: Processor units; 1024 are one vCPU.
        memory_mb: Its memory.
    """

    architecture: str
    cpu: int
    memory_mb: int


def task_size(properties: InstanceProperties, task: TaskSpec) -> TaskSize:
    """Return the size of workers on Fargate that an instance's properties give."""
    architecture = _value(properties, task.architecture)
    cpu, memory_mb = (_value(properties, each) for each in task.size(architecture))
    return TaskSize(architecture, cpu, memory_mb)


def task_period_minutes(properties: InstanceProperties, task: TaskSpec) -> int:
    """Return how often is looked whether to start workers on Fargate."""
    return int(_value(properties, task.period))


# ---------------------------------------------------------------- tracker settings
#
# Which jobs an instance tracks, and for how long, by its properties (rule TRK-8).


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerSettings:
    """How jobs of one kind are tracked.

    Attributes:
        enabled: False: nothing is recorded or reported.
        job_ttl: How long an event of a job is kept from when it was recorded.
        task_ttl: How long an event of a task is kept.
    """

    enabled: bool
    job_ttl: timedelta
    task_ttl: timedelta


def tracker_settings(properties: InstanceProperties, kind: JobKind) -> TrackerSettings:
    """Return how jobs of a kind are tracked. Bulk imports are ingests (rule TRK-8)."""
    spec = TRACKED[kind]

    def kept(name: str) -> timedelta:
        count = int(_value(properties, name))
        return min(count, _KEPT_MAX // spec.ttl_unit) * spec.ttl_unit

    return TrackerSettings(
        enabled=spec.enabled is None or _value(properties, spec.enabled),
        job_ttl=kept(spec.job_ttl),
        task_ttl=kept(spec.task_ttl),
    )
