"""What a deployment would change, stack by stack, and what would be lost by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

_MESSAGES: Final = "messages"
_WITH_DATA: Final = {
    "AWS::S3::Bucket": "objects",
    "AWS::DynamoDB::Table": "items",
    "AWS::DynamoDB::GlobalTable": "items",
    "AWS::SQS::Queue": _MESSAGES,
}
"""Kinds of resources that hold what cannot be made again, and what they hold."""

_KEPT: Final = ("Retain", "ReplaceAndRetain", "ReplaceAndSnapshot", "Snapshot")
_IGNORED: Final = "AWS::CDK::Metadata"


class ChangeKind(StrEnum):
    """What happens to a resource."""

    ADDED = "added"
    CHANGED = "changed"
    REPLACED = "replaced"
    REMOVED = "removed"
    TAKEN_OVER = "taken over"


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """A resource that a deployment changes.

    Attributes:
        kind: What happens to it.
        type: Its type in CloudFormation.
        name: Its name in the template.
        place: Its name in AWS; empty for one that is not there yet.
        properties: What of it changes.
        may_be_replaced: Whether CloudFormation cannot say before that it stays.
        is_kept: Whether it stays in AWS, where the stack gives it up.
    """

    kind: ChangeKind
    type: str
    name: str
    place: str = ""
    properties: tuple[str, ...] = ()
    may_be_replaced: bool = False
    is_kept: bool = False

    @property
    def loses(self) -> str | None:
        """What may be lost: objects, items or messages; None for nothing."""
        gone = self.kind in (ChangeKind.REMOVED, ChangeKind.REPLACED) or self.may_be_replaced
        return _WITH_DATA.get(self.type) if gone and not self.is_kept else None

    def line(self) -> str:
        """Return the change as a line."""
        of = f" ({', '.join(self.properties)})" if self.properties else ""
        kind = "may be replaced" if self.may_be_replaced else self.kind.value
        kept = "; stays in AWS, outside of the stack" if self.is_kept else ""
        lost = "" if self.loses is None else f". ITS {self.loses.upper()} WOULD BE LOST"
        return f"{kind:<15} {self.type} {self.place or self.name}{of}{kept}{lost}"


@dataclass(frozen=True, slots=True)
class StackChange:
    """What a deployment does to a stack.

    Attributes:
        name: The whole name of the stack.
        is_new: Whether it is made.
        is_removed: Whether it is deleted, because it is not chosen any more.
        resources: The resources that change.
    """

    name: str
    is_new: bool
    is_removed: bool
    resources: tuple[ResourceChange, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not (self.is_new or self.is_removed or self.resources)

    @property
    def losses(self) -> tuple[ResourceChange, ...]:
        """The resources whose data may be lost.

        A stack that is removed may have queues of its own, whose messages no job depends on.
        """
        return tuple(
            each
            for each in self.resources
            if each.loses is not None and not (self.is_removed and each.loses == _MESSAGES)
        )

    def lines(self) -> list[str]:
        """Return what changes as lines; a new stack as one line for each type of resource."""
        if self.is_empty:
            return [f"{self.name}: no change"]
        if self.is_removed:
            lost_kinds = {each.type for each in self.losses}
            kinds = sorted({each.type for each in self.resources} - lost_kinds)
            lost = [f"  {each.line()}" for each in self.losses]
            return [f"{self.name}: removed", *(f"  removed {kind}" for kind in kinds), *lost]
        if not self.is_new:
            return [f"{self.name}: changed", *(f"  {each.line()}" for each in self.resources)]
        types = [each.type for each in self.resources]
        counted = sorted({(kind, types.count(kind)) for kind in types})
        return [f"{self.name}: new", *(f"  added {n:>3} {kind}" for kind, n in counted)]


def new_stack(name: str, template: Mapping[str, Any]) -> StackChange:
    """Return the change that makes a stack from a template."""
    found = template.get("Resources", {})
    return StackChange(
        name,
        is_new=True,
        is_removed=False,
        resources=tuple(
            ResourceChange(ChangeKind.ADDED, str(each["Type"]), logical)
            for logical, each in found.items()
            if each["Type"] != _IGNORED
        ),
    )


def removed_stack(name: str, resources: Iterable[tuple[str, str, str]]) -> StackChange:
    """Return the change that deletes a stack with its resources: type, name and place of each."""
    return StackChange(
        name,
        is_new=False,
        is_removed=True,
        resources=tuple(
            ResourceChange(ChangeKind.REMOVED, kind, logical, place)
            for kind, logical, place in resources
            if kind != _IGNORED
        ),
    )


def changed_stack(name: str, changes: Iterable[Mapping[str, Any]]) -> StackChange:
    """Return what a change set of CloudFormation would change, from its `Changes`."""
    found = (each.get("ResourceChange", {}) for each in changes)
    return StackChange(
        name,
        is_new=False,
        is_removed=False,
        resources=tuple(
            _resource_change(each)
            for each in found
            if each and each.get("ResourceType") != _IGNORED
        ),
    )


def _resource_change(found: Mapping[str, Any]) -> ResourceChange:
    action, replacement = found["Action"], found.get("Replacement")
    kinds = {
        "Add": ChangeKind.ADDED,
        "Remove": ChangeKind.REMOVED,
        "Import": ChangeKind.TAKEN_OVER,
    }
    kind = kinds.get(action, ChangeKind.CHANGED)
    if action == "Modify" and replacement == "True":
        kind = ChangeKind.REPLACED
    targets = (each.get("Target", {}) for each in found.get("Details", ()))
    names = {str(each.get("Name") or each.get("Attribute")) for each in targets}
    return ResourceChange(
        kind,
        str(found["ResourceType"]),
        str(found["LogicalResourceId"]),
        str(found.get("PhysicalResourceId") or ""),
        tuple(sorted(names - {"None"})),
        may_be_replaced=action == "Modify" and replacement == "Conditional",
        is_kept=found.get("PolicyAction") in _KEPT,
    )
