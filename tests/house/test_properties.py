"""Each known property is read by some code, or marked as one that nothing uses yet."""

from __future__ import annotations

import ast
from dataclasses import fields
from functools import cached_property
from pathlib import Path

import pytest

from sleeper.model.known_properties.kinds import JAVA_ITERATOR
from sleeper.model.known_properties.typed import (
    INSTANCE_PROPERTIES,
    TABLE_PROPERTIES,
    InstanceProperties,
    TableProperties,
)
from sleeper.model.known_properties.upstream import OPEN_FAMILIES

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "sleeper"
DECLARATIONS = {
    *(
        SOURCE / "model" / "known_properties" / f"{name}.py"
        for name in ("cloud", "clusters", "instance", "jobs", "kinds")
    ),
    *(SOURCE / "model" / "known_properties" / f"{name}.py" for name in ("maintenance", "table")),
    SOURCE / "model" / "known_properties" / "upstream.py",
}
ACCESSORS = {
    SOURCE / "model" / "known_properties" / f"{name}.py" for name in ("typed", "typed_instance")
}


class Module:
    """What a module reads: attributes, names and texts."""

    def __init__(self, path: Path) -> None:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        self.attributes = {
            node.attr
            for node in nodes
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
        }
        self.names = {node.id for node in nodes if isinstance(node, ast.Name)}
        self.texts = {
            node.value
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }


MODULES = {path: Module(path) for path in SOURCE.rglob("*.py") if path not in DECLARATIONS}
READERS = [module for path, module in MODULES.items() if path not in ACCESSORS]
TEXTS = set().union(*(module.texts for module in READERS))
ENDINGS = tuple(text for text in TEXTS if text.count(".") and len(text) > len("id.x"))

# (property, group's name in TableProperties or InstanceProperties, its class, field)
TYPED = {
    item.metadata["property"].name: (accessor, type(group).__name__, item.name)
    for owner in (TableProperties, InstanceProperties)
    for accessor, descriptor in vars(owner).items()
    if isinstance(descriptor, cached_property)
    for group in [getattr(owner(), accessor)]
    for item in fields(group)
}
# Switches of other properties, which the group of these reads.
SWITCHES = (
    "sleeper.default.table.statestore.commit.async.behaviour",
    "sleeper.table.statestore.commit.async.enabled",
)
ALL = [*INSTANCE_PROPERTIES, *TABLE_PROPERTIES]


def is_read_as_attribute(name: str) -> bool:
    """Some module names the typed group and reads the field."""
    accessor, group, field = TYPED[name]
    return any(
        field in module.attributes and (accessor in module.attributes or group in module.names)
        for module in READERS
    )


def is_read_by_name(name: str) -> bool:
    """Some module has the name, or the end of it, as a text."""
    return name in TEXTS or name.startswith(OPEN_FAMILIES) or name.endswith(ENDINGS)


@pytest.mark.parametrize("known", ALL, ids=lambda known: known.name)
def test_a_property_is_read_or_marked_as_not_used(known):
    """The page of properties says which have no effect; `used=False` is what it is made from."""
    if known.kind is JAVA_ITERATOR or known.name in SWITCHES:  # the first: every value is refused
        return
    typed = known.name in TYPED and is_read_as_attribute(known.name)

    if known.used:
        assert typed or is_read_by_name(known.name), "nothing reads it: mark it used=False"
    else:
        assert not typed, "some code reads it: take used=False away"
        assert known.name not in TEXTS, "some code reads it: take used=False away"
