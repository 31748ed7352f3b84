"""Tasks of ECS: counts those that run, and starts more."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sleeper.errors import StorageFailed
from sleeper.ports.ids import NewId
from sleeper.storage.aws.clients import aws_failure, error_code, vendor_errors

logger = logging.getLogger(__name__)

_STARTED_TOGETHER: Final = 10
"""Amazon's limit."""
_DESCRIBED_TOGETHER: Final = 100
_STARTING: Final = ("PROVISIONING", "PENDING", "ACTIVATING")
_NO_ROOM: Final = ("Capacity is unavailable", "RESOURCE:", "capacity")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlace:
    """Where tasks run.

    Attributes:
        cluster: The cluster.
        subnets: The subnets.
        security_groups: The security groups; none for the VPC's own.
        has_public_ip: Whether each task gets a public address: without a NAT it needs one.
        capacity: Capacity providers, in the order in which they are tried: `FARGATE_SPOT` and
            `FARGATE`.
        platform_version: The version of Fargate; None for the newest.
    """

    cluster: str
    subnets: tuple[str, ...]
    security_groups: tuple[str, ...] = ()
    has_public_ip: bool = True
    capacity: tuple[str, ...] = ("FARGATE",)
    platform_version: str | None = None


class EcsTasks:
    """Tasks in one cluster.

    Args:
        client: Returns boto3's client of ECS.
        place: Where they run.
        new_id: Makes ids of requests: a call whose reply was lost starts nothing twice.
    """

    def __init__(self, client: Callable[[], Any], place: TaskPlace, *, new_id: NewId) -> None:
        self._client, self._place, self._new_id = client, place, new_id

    def running(self, family: str) -> tuple[int, int]:
        """Return how many tasks of a family there are, and how many of them are starting.

        Those that are starting count as running: ECS wants them to run.

        Raises:
            StorageFailed: ECS does not answer.
        """
        arns: list[str] = []
        request: dict[str, Any] = {"cluster": self._place.cluster, "family": family}
        request["desiredStatus"] = "RUNNING"
        while True:
            page = self._call("list_tasks", request, "list")
            arns += page.get("taskArns", ())
            if not page.get("nextToken"):
                break
            request["nextToken"] = page["nextToken"]
        starting = 0
        for start in range(0, len(arns), _DESCRIBED_TOGETHER):
            batch = arns[start : start + _DESCRIBED_TOGETHER]
            asked = {"cluster": self._place.cluster, "tasks": batch}
            tasks = self._call("describe_tasks", asked, "describe").get("tasks", ())
            starting += sum(task.get("lastStatus") in _STARTING for task in tasks)
        return len(arns), starting

    def start(self, family: str, count: int) -> int:
        """Start tasks of a family; return how many were started.

        Where there is no room with one capacity provider, the next one is tried.

        Raises:
            StorageFailed: none was started.
        """
        left, reasons = count, list[str]()
        for capacity in self._place.capacity:
            while left > 0:
                asked = min(left, _STARTED_TOGETHER)
                started, reason = self._run(family, asked, capacity)
                left -= started
                if started < asked:
                    reasons.append(f"{capacity}: {reason}")
                    logger.warning("%d tasks of %s were not started: %s", left, family, reasons[-1])
                    break
        if left == count:
            raise StorageFailed(
                f"cannot start tasks of {family} in the cluster {self._place.cluster}: "
                f"{'; '.join(reasons)}. Try again later."
            )
        return count - left

    def _run(self, family: str, count: int, capacity: str) -> tuple[int, str]:
        """Start up to ten tasks; return how many were, and why not more."""
        place = self._place
        network = {
            "subnets": list(place.subnets),
            "assignPublicIp": "ENABLED" if place.has_public_ip else "DISABLED",
        }
        if place.security_groups:
            network["securityGroups"] = list(place.security_groups)
        request = {
            "cluster": place.cluster,
            "taskDefinition": family,
            "count": count,
            "capacityProviderStrategy": [{"capacityProvider": capacity, "weight": 1}],
            "networkConfiguration": {"awsvpcConfiguration": network},
            "clientToken": self._new_id(),
            "propagateTags": "TASK_DEFINITION",  # a budget finds what an instance costs by its tag
        }
        if place.platform_version is not None:
            request["platformVersion"] = place.platform_version
        try:
            answer = self._client().run_task(**request)
        except vendor_errors() as error:
            if error_code(error) and any(each in str(error) for each in _NO_ROOM):
                return 0, str(error)
            raise self._failure(error, "run_task", "start") from error
        failures = answer.get("failures", ())
        reason = "; ".join(sorted({_reason(each) for each in failures})) or "ECS gave no reason"
        return len(answer.get("tasks", ())), reason

    def _call(self, operation: str, request: dict[str, Any], verb: str) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = getattr(self._client(), operation)(**request)
        except vendor_errors() as error:
            raise self._failure(error, operation, verb) from error
        return answer

    def _failure(self, error: Exception, operation: str, verb: str) -> StorageFailed:
        permission = operation.title().replace("_", "")
        return aws_failure(
            error,
            f"{verb} tasks in",
            f"the cluster {self._place.cluster}",
            writes=operation == "run_task",
            permission=f"ecs:{permission}",
        )


def _reason(failure: dict[str, Any]) -> str:
    texts: Sequence[str] = [str(failure.get(name) or "") for name in ("reason", "detail")]
    return ", ".join(filter(None, texts))
