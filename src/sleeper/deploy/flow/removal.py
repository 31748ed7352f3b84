"""Removes a deployed instance: its stacks, and its data unless that is to be kept."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sleeper.deploy.flow.deployed_stacks import DeployedStacks
from sleeper.deploy.names import RETAIN
from sleeper.errors import BadRequest, StorageFailed
from sleeper.instance.destroy import Removal
from sleeper.instance.pause import PauseSwitch
from sleeper.ports.objects import Belonging
from sleeper.storage.aws.clients import aws_client, aws_failure, error_code, vendor_errors

logger = logging.getLogger(__name__)

_DATA: Final = ("AWS::S3::Bucket", "AWS::DynamoDB::Table")
_CLUSTER: Final = "AWS::ECS::Cluster"
_NO_CLUSTER: Final = ("ClusterNotFoundException", "InvalidParameterException")
_TASK_PERMISSION: Final = "ecs:ListTasks and StopTask"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedRemoval:
    """What is removed with an instance that was deployed.

    Attributes:
        url: The instance.
        stacks: Its stacks, in the order in which they are deleted.
        data_stacks: Those of them that have buckets or tables; they are last.
        data: Its tables, queues, buckets, in their order of removal.
        keeps_data: Whether buckets, tables and what they hold stay.
    """

    url: str
    stacks: tuple[str, ...]
    data_stacks: tuple[str, ...]
    data: Removal | None
    keeps_data: bool

    @property
    def belongings(self) -> tuple[Belonging, ...]:
        """What is there, stacks aside."""
        return () if self.data is None else self.data.belongings

    @property
    def table_names(self) -> tuple[str, ...]:
        """The instance's tables."""
        return () if self.data is None else self.data.table_names

    def carry_out(
        self,
        stacks: DeployedStacks,
        pause: PauseSwitch | None,
        report: Callable[[str], object],
    ) -> None:
        """Remove it. After any failure or interruption it can be planned and carried out again.

        Args:
            stacks: The stacks of the instance.
            pause: Stops its services from beginning anything; None without properties.
            report: Called with each thing before it is removed.

        Raises:
            DeploymentFailed: a stack cannot be deleted.
            StorageFailed: something else cannot be removed.
        """
        if pause is not None:
            pause.pause()
        core = [each for each in self.stacks if each in self.data_stacks]
        for name in (each for each in self.stacks if each not in core):
            report(f"removing stack {name}")
            stop_tasks(stacks, name)
            stacks.delete(name, report)
        if self.data is not None and not self.keeps_data:
            self.data.carry_out(lambda each: report(f"removing {each.kind} {each.name}"))
        for name in core:
            report(f"removing stack {name}")
            stacks.delete(name, report)
        if self.keeps_data and pause is not None:
            pause.resume()


def stop_tasks(stacks: DeployedStacks, name: str) -> None:
    """Stop what runs on the clusters of a stack: CloudFormation deletes no busy cluster.

    A worker that is stopped gives its job back.
    """
    for kind, _, cluster in stacks.resources(name):
        if kind == _CLUSTER and cluster:
            _stop_tasks_of(aws_client("ecs", stacks.region), cluster)


def plan_deployed_removal(
    url: str,
    stacks: DeployedStacks,
    values: Mapping[str, str] | None,
    data: Removal | None,
) -> DeployedRemoval | None:
    """List what is removed with a deployed instance; return None if it has no stacks.

    Args:
        url: The instance.
        stacks: Its stacks.
        values: Its properties; None without any.
        data: What belongs to it, stacks aside; None if nothing does.

    Raises:
        BadRequest: a stack belongs to somebody else, or is nested in another, or nothing is left
            but data to be kept.
        StorageFailed: the stacks of a deployed instance cannot be looked for.
    """
    keeps_data = values is not None and (values.get(RETAIN) or "").strip().lower() == "true"
    try:
        found, nesting = stacks.all(), stacks.nesting()
    except StorageFailed as error:
        if keeps_data:
            raise
        logger.warning("it is not known whether %s has stacks: %s", url, error)
        return None
    failures = stacks.owner_failures(found.values())
    if failures:
        raise BadRequest(f"nothing was removed: {'; '.join(failures)}")
    if nesting:
        data_goes = (
            f"Buckets and tables stay, for {RETAIN} is true"
            if keeps_data
            else "Tables and empty buckets go with them"
        )
        raise BadRequest(
            f"nothing was removed: stacks of {url} are nested in {', '.join(nesting)}, and are "
            "removed by it. Take the construct out of that app and deploy the app again, or remove "
            f"the whole stack with all that it has: cdk destroy {nesting[0]}. {data_goes}; the "
            "same command as now sees to what is left then."
        )
    if not found:
        if keeps_data and data is not None:
            raise BadRequest(
                f"nothing was removed: {url} has no stacks, and {RETAIN} keeps its data. To "
                f"remove that too: sleeper instance set {RETAIN}=false --instance {url}, and the "
                "same command again."
            )
        return None
    newest_first = sorted(found.values(), key=lambda each: each.made, reverse=True)
    names = [each.name for each in newest_first]
    of_data = tuple(
        name for name in names if any(kind in _DATA for kind, *_ in stacks.resources(name))
    )
    names.sort(key=lambda name: name in of_data)
    losing = [each for name in of_data for each in unkept(stacks.template(name))]
    if keeps_data and losing:
        raise BadRequest(
            f"nothing was removed: {RETAIN} is true, but the deployed stack would delete "
            f"{', '.join(losing)}. Run `sleeper deploy aws {url.partition('://')[2]}` before, "
            f"which changes that; or set {RETAIN} to false."
        )
    return DeployedRemoval(
        url=url,
        stacks=tuple(names),
        data_stacks=of_data,
        data=data,
        keeps_data=keeps_data,
    )


def unkept(template: str | Mapping[str, Any]) -> list[str]:
    """Return the buckets and tables of a template, in JSON or YAML, that its stack would delete.

    The CDK writes YAML with two spaces for each level, and nothing else is read here.
    """
    if isinstance(template, str):
        return _unkept_in_text(template)
    return [
        name
        for name, each in template.get("Resources", {}).items()
        if each["Type"] in _DATA and not _is_kept(each.get("DeletionPolicy", ""))
    ]


def _unkept_in_text(template: str) -> list[str]:
    at = re.search(r"^Resources:\n", template, re.MULTILINE)
    resources = "" if at is None else template[at.end() :]
    found: dict[str, dict[str, str]] = {}
    name = ""
    for line in resources.splitlines():
        if line and not line.startswith(" "):
            break
        if at := re.fullmatch(r"  (\S[^:]*):", line):
            name = at[1].strip("\"'")
            found[name] = {}
        elif at := re.fullmatch(r"    (Type|DeletionPolicy): (\S+)", line):
            found[name][at[1]] = at[2].strip("\"'")
    return [
        name
        for name, each in found.items()
        if each.get("Type") in _DATA and not _is_kept(each.get("DeletionPolicy", ""))
    ]


def _is_kept(policy: str) -> bool:
    return policy.startswith("Retain")


def _stop_tasks_of(client: Any, cluster: str) -> None:
    try:
        pages = client.get_paginator("list_tasks").paginate(cluster=cluster)
        tasks = [task for page in pages for task in page["taskArns"]]
        for task in tasks:
            client.stop_task(cluster=cluster, task=task, reason="the instance is removed")
            logger.info("stopped task %s of cluster %s", task, cluster)
    except vendor_errors() as error:
        if error_code(error) in _NO_CLUSTER:
            logger.info("cluster %s has no tasks: %s", cluster, error)
            return
        raise aws_failure(
            error, "stop tasks of", f"cluster {cluster}", writes=True, permission=_TASK_PERMISSION
        ) from error
