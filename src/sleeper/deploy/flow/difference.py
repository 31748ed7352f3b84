"""Compares an assembly with what is deployed, by change sets that are never executed."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sleeper.deploy.flow.deployed_stacks import DeployedStack, DeployedStacks
from sleeper.deploy.flow.stack_changes import (
    StackChange,
    changed_stack,
    new_stack,
    removed_stack,
)
from sleeper.errors import DeploymentFailed
from sleeper.storage.aws.clients import aws_failure, error_code, vendor_errors

logger = logging.getLogger(__name__)

_CHANGE_SET: Final = "sleeper-deploy-looks"
_CAPABILITIES: Final = ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"]
_NO_CHANGE: Final = ("didn't contain changes", "No updates are to be performed")
_LOOK_S: Final = 1.0
_LOOKS_MAX: Final = 300
_PERMISSION: Final = "cloudformation:CreateChangeSet, DescribeChangeSet and DeleteChangeSet"


@dataclass(frozen=True, slots=True)
class NewTemplate:
    """A stack as it was synthesised.

    Attributes:
        stack: Its whole name.
        path: The file of its template.
    """

    stack: str
    path: Path

    def text(self) -> str:
        """Return the template."""
        return self.path.read_text()


def differences(
    stacks: DeployedStacks,
    deployed: Mapping[str, DeployedStack],
    templates: Sequence[NewTemplate],
    *,
    rest: Callable[[float], object],
) -> list[StackChange]:
    """Return what a deployment would change, in its order; nothing is changed by looking.

    Args:
        stacks: The stacks of the instance.
        deployed: Those that CloudFormation has, by name.
        templates: What is to be deployed, in this order.
        rest: Waits for so many seconds.

    Raises:
        DeploymentFailed: CloudFormation refuses a template.
        StorageFailed: it cannot be asked.
    """
    changes = []
    for each in templates:
        before = deployed.get(each.stack)
        if before is None or not before.is_made:
            changes.append(new_stack(each.stack, json.loads(each.text())))
        else:
            changes.append(_changed(stacks, each, rest))
    wanted = {each.stack for each in templates}
    unwanted = [name for name in deployed if name not in wanted]
    changes += [removed_stack(name, stacks.resources(name)) for name in sorted(unwanted)]
    return changes


def _changed(
    stacks: DeployedStacks, template: NewTemplate, rest: Callable[[float], object]
) -> StackChange:
    client, name = stacks.client, template.stack
    with _translated(name):
        _forget(client, name)
        client.create_change_set(
            StackName=name,
            ChangeSetName=_CHANGE_SET,
            TemplateBody=template.text(),
            Capabilities=_CAPABILITIES,
        )
        try:
            found = _described(client, name, rest)
        finally:
            _forget(client, name)
    reason = str(found.get("StatusReason") or "")
    if found["Status"] == "FAILED" and not any(each in reason for each in _NO_CHANGE):
        raise DeploymentFailed(f"CloudFormation refuses the template of stack {name}: {reason}")
    return changed_stack(name, found.get("Changes", ()))


def _described(client: Any, name: str, rest: Callable[[float], object]) -> dict[str, Any]:
    """Wait for the change set of a stack; return it with all of its pages of changes."""
    for _ in range(_LOOKS_MAX):
        found: dict[str, Any] = client.describe_change_set(
            StackName=name, ChangeSetName=_CHANGE_SET
        )
        if found["Status"] not in ("CREATE_PENDING", "CREATE_IN_PROGRESS"):
            break
        rest(_LOOK_S)
    else:
        raise DeploymentFailed(
            f"CloudFormation has not compared stack {name} in five minutes. Try again later."
        )
    changes = list(found.get("Changes", ()))
    token = found.get("NextToken")
    while token:
        page = client.describe_change_set(
            StackName=name, ChangeSetName=_CHANGE_SET, NextToken=token
        )
        changes += page.get("Changes", ())
        token = page.get("NextToken")
    return {**found, "Changes": changes}


def _forget(client: Any, name: str) -> None:
    """Delete the change set of a look, of an interrupted run too."""
    try:
        client.delete_change_set(StackName=name, ChangeSetName=_CHANGE_SET)
    except vendor_errors() as error:
        if error_code(error) not in ("ChangeSetNotFound", "ChangeSetNotFoundException"):
            logger.warning("change set %s of stack %s stays: %s", _CHANGE_SET, name, error)


@contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except vendor_errors() as error:
        if error_code(error) == "ValidationError":
            raise DeploymentFailed(
                f"CloudFormation refuses the template of stack {name}: {error}"
            ) from error
        raise aws_failure(
            error, "compare", f"stack {name}", writes=True, permission=_PERMISSION
        ) from error
