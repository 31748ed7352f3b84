"""The stacks of an instance that CloudFormation has."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sleeper.errors import DeploymentFailed, StorageFailed
from sleeper.storage.aws.clients import (
    OWNER_TAG,
    aws_client,
    aws_failure,
    owner_tag_value,
    resource_prefix,
    vendor_errors,
)

logger = logging.getLogger(__name__)

_PERMISSION: Final = (
    "cloudformation:DescribeStacks, DescribeStackEvents, ListStackResources, CreateChangeSet, "
    "DescribeChangeSet, DeleteChangeSet and DeleteStack"
)
_LOOK_S: Final = 5.0
_LOOKS_MAX: Final = 720
"""An hour: what EMR and EKS take is less."""
_UNMADE: Final = ("REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE", "CREATE_FAILED", "DELETE_COMPLETE")
"""States of a stack that has no resources in use: it is made anew."""
_STUCK: Final = {
    "UPDATE_ROLLBACK_FAILED": "aws cloudformation continue-update-rollback --stack-name {}",
    "ROLLBACK_FAILED": "aws cloudformation delete-stack --stack-name {}",
}
"""States from which a stack cannot be deployed, and what to type."""


@dataclass(frozen=True, slots=True)
class DeployedStack:
    """A stack in CloudFormation.

    Attributes:
        name: Its whole name.
        status: Its state, such as `CREATE_COMPLETE`.
        owner: Its tag that names an instance; empty without one.
        reason: Why it is in this state, where CloudFormation says so.
        made: When it was made, as text that sorts by time.
        root: The name of the outermost stack that it is nested in; empty where it is in none.
    """

    name: str
    status: str
    owner: str
    reason: str = ""
    made: str = ""
    root: str = ""

    @property
    def is_made(self) -> bool:
        """Whether it has resources that are in use."""
        return self.status not in _UNMADE

    @property
    def is_changing(self) -> bool:
        """Whether CloudFormation is at work on it."""
        return self.status.endswith("_IN_PROGRESS") and self.status != "REVIEW_IN_PROGRESS"

    @property
    def has_failed(self) -> bool:
        """Whether its last change failed."""
        return "FAILED" in self.status or "ROLLBACK" in self.status

    @property
    def way_out(self) -> str | None:
        """What to type before it can be deployed again; None where nothing is in the way."""
        command = _STUCK.get(self.status)
        return None if command is None else command.format(self.name)


class DeployedStacks:
    """The stacks of one instance.

    Args:
        instance_id: Its id.
        region: Its region.
        rest: Waits for so many seconds.

    Attributes:
        region: Its region.
    """

    def __init__(self, instance_id: str, region: str, *, rest: Callable[[float], object]) -> None:
        self._prefix = resource_prefix(instance_id)
        self._url = f"aws://{instance_id}"
        self.region = region
        self._rest = rest

    @property
    def client(self) -> Any:
        """The client of CloudFormation."""
        return aws_client("cloudformation", self.region)

    def all(self) -> dict[str, DeployedStack]:
        """Return the stacks whose names begin as the instance's do, by name.

        Those of another owner are among them: see `check_owner`. So may be those of an instance
        whose id begins with this one's and a dash, which have that one's tag: they are left out.
        """
        mine = owner_tag_value(self._url)
        return {
            each.name: each
            for each in self._of_account()
            if not each.root
            and each.name.startswith(self._prefix)
            and (each.owner == mine or "-" not in each.name.removeprefix(self._prefix))
        }

    def nesting(self) -> tuple[str, ...]:
        """Return the names of stacks in which stacks of the instance are nested.

        Their names are the CDK's, so these are known by their tag.
        """
        mine = owner_tag_value(self._url)
        found = self._of_account()
        return tuple(sorted({each.root for each in found if each.root and each.owner == mine}))

    def _of_account(self) -> list[DeployedStack]:
        """Return all stacks that there are in the account and the region."""
        try:
            pages = self.client.get_paginator("describe_stacks").paginate()
            found = [_stack(each) for page in pages for each in page["Stacks"]]
        except vendor_errors() as error:
            raise self._failure(error, "look for", f"stacks {self._prefix}*") from error
        return [each for each in found if each.status != "DELETE_COMPLETE"]

    def one(self, name: str) -> DeployedStack | None:
        """Return a stack by its whole name; None if there is none."""
        try:
            found = self.client.describe_stacks(StackName=name)["Stacks"]
        except vendor_errors() as error:
            if "does not exist" in str(error):
                return None
            raise self._failure(error, "look at", f"stack {name}") from error
        stack = _stack(found[0])
        return None if stack.status == "DELETE_COMPLETE" else stack

    def owner_failures(self, stacks: Iterable[DeployedStack]) -> list[str]:
        """Return a sentence for each stack that has a name of the instance's and another owner."""
        return [
            f"stack {each.name} is there already, and "
            f"{f'belongs to {each.owner}' if each.owner else f'has no tag {OWNER_TAG}'}: choose "
            "another id, or delete that stack"
            for each in stacks
            if each.owner != owner_tag_value(self._url)
        ]

    def settle(self, name: str, report: Callable[[str], object]) -> DeployedStack | None:
        """Wait until CloudFormation is not at work on a stack; return it, None if it is gone.

        Raises:
            DeploymentFailed: it is at work still after an hour.
        """
        for look in range(_LOOKS_MAX):
            stack = self.one(name)
            if stack is None or not stack.is_changing:
                return stack
            if look % 12 == 0:
                report(f"waiting for stack {name}, which is {stack.status}")
            self._rest(_LOOK_S)
        raise DeploymentFailed(
            f"CloudFormation is at work on stack {name} since an hour. Look at its events: "
            f"aws cloudformation describe-stack-events --stack-name {name}"
        )

    def delete(self, name: str, report: Callable[[str], object]) -> None:
        """Delete a stack, and wait until it is gone. One that is gone counts as deleted.

        Raises:
            DeploymentFailed: something of it cannot be deleted.
        """
        if self.settle(name, report) is None:
            return
        try:
            self.client.delete_stack(StackName=name)
        except vendor_errors() as error:
            raise self._failure(error, "delete", f"stack {name}", writes=True) from error
        left = self.settle(name, report)
        if left is not None:
            raise DeploymentFailed(
                f"stack {name} cannot be deleted: it is {left.status}. {self.failed_events(name)} "
                "Correct the cause, and run the same command again."
            )
        logger.info("deleted stack %s", name)

    def failed_events(self, name: str) -> str:
        """Return what failed in the last change of a stack, as a sentence; empty if not known."""
        try:
            events = self.client.describe_stack_events(StackName=name)["StackEvents"]
        except vendor_errors() as error:
            logger.warning("the events of stack %s are not known: %s", name, error)
            return ""
        failed = [
            f"{each['LogicalResourceId']}: {each.get('ResourceStatusReason', 'no reason is given')}"
            for each in events
            if str(each.get("ResourceStatus", "")).endswith("_FAILED")
        ]
        return f"{'; '.join(failed[:3])}." if failed else ""

    def resources(self, name: str) -> list[tuple[str, str, str]]:
        """Return kind, name in the template and name in AWS of the resources of a stack."""
        try:
            pages = self.client.get_paginator("list_stack_resources").paginate(StackName=name)
            found = [each for page in pages for each in page["StackResourceSummaries"]]
        except vendor_errors() as error:
            raise self._failure(error, "list the resources of", f"stack {name}") from error
        return [
            (
                str(each["ResourceType"]),
                str(each["LogicalResourceId"]),
                str(each.get("PhysicalResourceId", "")),
            )
            for each in found
            if each["ResourceStatus"] != "DELETE_COMPLETE"
        ]

    def template(self, name: str) -> str | Mapping[str, Any]:
        """Return the template that a stack was deployed with: text of YAML, or what JSON says."""
        try:
            body: str | Mapping[str, Any] = self.client.get_template(StackName=name)["TemplateBody"]
        except vendor_errors() as error:
            raise self._failure(error, "read the template of", f"stack {name}") from error
        return body

    def _failure(
        self, error: Exception, verb: str, what: str, *, writes: bool = False
    ) -> StorageFailed:
        return aws_failure(error, verb, what, writes=writes, permission=_PERMISSION)


def _stack(found: Mapping[str, Any]) -> DeployedStack:
    tags = {each["Key"]: each["Value"] for each in found.get("Tags", ())}
    return DeployedStack(
        str(found["StackName"]),
        str(found["StackStatus"]),
        tags.get(OWNER_TAG, ""),
        str(found.get("StackStatusReason") or ""),
        str(found.get("CreationTime") or ""),
        str(found.get("RootId") or "").rpartition(":stack/")[2].partition("/")[0],
    )
