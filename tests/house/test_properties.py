"""Each known property is read by some code, or marked as one that nothing uses yet."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property

import pytest

from sleeper.model.known_properties.catalogue import INSTANCE_PROPERTIES, TABLE_PROPERTIES
from sleeper.model.known_properties.given import OPEN_FAMILIES
from sleeper.model.known_properties.typed import InstanceProperties, TableProperties
from sleeper.model.known_properties.value_kinds import JAVA_ITERATOR, TEXT, Property
from tests.house.sources import PACKAGE, Source, check_none, package, read

FOLDER = f"{PACKAGE}/model/known_properties"
DECLARATIONS = {
    f"{FOLDER}/{name}.py"
    for name in (
        *("cloud", "clusters", "instance", "jobs", "maintenance"),
        *("table", "upstream", "value_kinds"),
    )
}
ACCESSORS = {f"{FOLDER}/{name}.py" for name in ("typed",)}

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


@dataclass(frozen=True)
class Readers:
    """What the modules that may read a property say: attributes and names of each, texts of all."""

    modules: tuple[tuple[set[str], set[str]], ...]
    texts: frozenset[str]

    @classmethod
    def of(cls, sources: Iterable[Source]) -> Readers:
        """What these modules say."""
        modules, texts = [], set()
        for source in sources:
            attributes = {
                node.attr for node in source.nodes(ast.Attribute) if isinstance(node.ctx, ast.Load)
            }
            modules.append((attributes, {node.id for node in source.nodes(ast.Name)}))
            constants = (node.value for node in source.nodes(ast.Constant))
            texts |= {value for value in constants if isinstance(value, str)}
        return cls(tuple(modules), frozenset(texts))

    @cached_property
    def endings(self) -> tuple[str, ...]:
        """Texts that may be the end of a property's name."""
        return tuple(text for text in self.texts if text.count(".") and len(text) > len("id.x"))

    def read_as_attribute(self, accessor: str, group: str, field: str) -> bool:
        """Whether some module names the typed group and reads the field."""
        return any(
            field in attributes and (accessor in attributes or group in names)
            for attributes, names in self.modules
        )

    def read_by_name(self, name: str) -> bool:
        """Whether some module has the name, or the end of it, as a text."""
        return name in self.texts or name.startswith(OPEN_FAMILIES) or name.endswith(self.endings)


def wrongly_marked(
    properties: Iterable[Property], readers: Readers, groups: Mapping[str, tuple[str, str, str]]
) -> Iterator[str]:
    """Properties that nothing reads, and those that something reads although they say otherwise."""
    for known in properties:
        if (
            known.kind is JAVA_ITERATOR or known.name in SWITCHES
        ):  # the first: every value is refused
            continue
        typed = known.name in groups and readers.read_as_attribute(*groups[known.name])
        if known.used and not (typed or readers.read_by_name(known.name)):
            yield f"{known.name}: nothing reads it: mark it used=False"
        if not known.used and (typed or known.name in readers.texts):
            yield f"{known.name}: some code reads it: take used=False away"


def test_properties_are_read_or_marked_as_not_used():
    """The page of properties says which have no effect; `used=False` is what it is made from."""
    readers = Readers.of(each for each in package() if each.name not in DECLARATIONS | ACCESSORS)

    check_none(
        wrongly_marked([*INSTANCE_PROPERTIES, *TABLE_PROPERTIES], readers, TYPED),
        "what `used` says is shown on the pages of properties",
    )


def test_modules_of_properties_are_there():
    """What declares properties does not count as reading them, whatever the modules are called."""
    assert all(read(name).text for name in DECLARATIONS | ACCESSORS)


@pytest.mark.parametrize(
    ("code", "read_so"),
    [
        ("def f(p): return p.group.field", True),
        ("def f(g: Group): return g.field", True),
        ("def f(g): return g.field", False),
        ("def f(p): p.group.field = 1", False),
        ("NAME = 'sleeper.a.property'", True),
        ("NAME = 'a.property'", True),
        ("NAME = 'property'", False),
        ("# sleeper.a.property", False),
    ],
)
def test_a_property_that_is_wrongly_marked_is_found(code, read_so):
    """Given a module that reads a property or does not, then the other mark is the wrong one."""
    name = "sleeper.a.property"
    readers = Readers.of([Source(f"{PACKAGE}/a.py", code)])
    groups = {name: ("group", "Group", "field")}
    used, unused = (Property(name, None, TEXT, "Text.", used=each) for each in (True, False))

    assert [*wrongly_marked([used], readers, groups)] == (
        [] if read_so else [f"{name}: nothing reads it: mark it used=False"]
    )
    # The end of a name may be that of another property: it does not show that this one is read.
    by_end = "'a.property'" in code
    assert [*wrongly_marked([unused], readers, groups)] == (
        [f"{name}: some code reads it: take used=False away"] if read_so and not by_end else []
    )
