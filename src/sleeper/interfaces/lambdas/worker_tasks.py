"""Starts workers as tasks of ECS, as the environment of a function says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sleeper.errors import BadRequest
from sleeper.instance.instance import Instance, new_secret
from sleeper.interfaces.lambdas.called_functions import FUNCTIONS
from sleeper.interfaces.lambdas.warm_instance import needed
from sleeper.model.jobs.kinds import KIND_NAMES, kind_of
from sleeper.model.jobs.settings import workers_max
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.storage.aws.clients import aws_client
from sleeper.storage.aws.ecs_tasks import EcsTasks, TaskPlace
from sleeper.workers.scheduled_starts import RunningWorkers, ScheduledStarts

_CAPACITIES: Final = ("FARGATE", "FARGATE_SPOT")
_warm: dict[tuple[str, str], ScheduledStarts] = {}


@dataclass(frozen=True, slots=True)
class EcsWorkers:
    """Workers that are tasks of ECS.

    Attributes:
        tasks: The tasks.
        environment: Names the task definition of each kind.
    """

    tasks: EcsTasks
    environment: Mapping[str, str]

    def running(self, kind: str) -> RunningWorkers:
        """Return the workers of a kind."""
        return RunningWorkers(*self.tasks.running(self._family(kind)))

    def start(self, kind: str, count: int) -> int:
        """Start workers of a kind, and return how many were started."""
        return self.tasks.start(self._family(kind), count)

    def _family(self, kind: str) -> str:
        return needed(self.environment, kind_of(kind).variable("SLEEPER_TASK"))


def warm_starts(
    instance: Callable[[], Instance], environment: Mapping[str, str]
) -> ScheduledStarts:
    """Return what starts workers; the same for all calls of a process.

    Raises:
        BadRequest: the environment is not complete.
    """
    place = task_place(environment)
    opened = instance()
    key = (opened.url, place.cluster)
    if key not in _warm:
        _warm.clear()
        tasks = EcsTasks(partial(aws_client, "ecs"), place, new_id=_request_id)
        _warm[key] = ScheduledStarts(instance, EcsWorkers(tasks, environment))
    return _warm[key]


def task_place(environment: Mapping[str, str]) -> TaskPlace:
    """Return where tasks run, by the environment.

    Raises:
        BadRequest: a variable is missing or wrong.
    """
    capacity = _listed(environment.get("SLEEPER_CAPACITY", "")) or ("FARGATE",)
    if not set(capacity) <= set(_CAPACITIES):
        raise BadRequest(
            f"SLEEPER_CAPACITY is {','.join(capacity)!r}, but it must be FARGATE, FARGATE_SPOT, or "
            "FARGATE_SPOT,FARGATE"
        )
    public_ip = environment.get("SLEEPER_PUBLIC_IP", "").strip() or "ENABLED"
    if public_ip not in ("ENABLED", "DISABLED"):
        raise BadRequest(f"SLEEPER_PUBLIC_IP is {public_ip!r}, but it must be ENABLED or DISABLED")
    return TaskPlace(
        cluster=needed(environment, "SLEEPER_CLUSTER"),
        subnets=_listed(needed(environment, "SLEEPER_SUBNETS")),
        security_groups=_listed(environment.get("SLEEPER_SECURITY_GROUP", "")),
        has_public_ip=public_ip == "ENABLED",
        capacity=capacity,
        platform_version=environment.get("SLEEPER_PLATFORM_VERSION", "").strip() or None,
    )


def worker_limits(
    event: Mapping[str, Any], environment: Mapping[str, str], properties: InstanceProperties
) -> list[tuple[str, int]]:
    """Return the kinds of workers that an event names, and how many of each there may be.

    An event with functions to call may name none.

    Raises:
        BadRequest: it names none, or others, or a limit is no number.
    """
    kinds = event.get("kinds")
    if kinds == [] and event.get(FUNCTIONS):
        return []
    if not isinstance(kinds, list) or not kinds or not set(map(str, kinds)) <= set(KIND_NAMES):
        raise BadRequest(
            f"kinds is {kinds!r:.200}, but it must be a list of {', '.join(KIND_NAMES)}"
        )
    return [(kind, _limit(kind, environment, properties)) for kind in kinds]


def _limit(kind: str, environment: Mapping[str, str], properties: InstanceProperties) -> int:
    spec = kind_of(kind)
    of_instance, name = workers_max(properties, spec), spec.variable("SLEEPER_WORKERS_MAX")
    given = environment.get(name, "").strip()
    if not given:
        return of_instance
    if not given.isascii() or not given.isdecimal():
        raise BadRequest(f"{name} is {given!r:.100}, but it must be a number")
    return min(int(given), of_instance)


def _listed(text: str) -> tuple[str, ...]:
    parts: Sequence[str] = [part.strip() for part in text.split(",")]
    return tuple(part for part in parts if part)


def _request_id() -> str:
    return new_secret()[:32]
