"""The decorator `dataclass` beside Python's own."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
from threading import Barrier, Thread
from types import ModuleType

import pytest

from sleeper.language import value_classes

SOURCE = """
from __future__ import annotations
from collections.abc import Callable
from dataclasses import field
from typing import ClassVar, Generic, TypeVar

T = TypeVar("T")

@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0

@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    name: str
    tags: dict[str, int] = field(default_factory=dict)
    note: str | None = field(default=None, compare=False)
    secret: str = field(default="", repr=False)

@dataclass(frozen=True, slots=True, kw_only=True)
class Longer(Named):
    length: int = 1

@dataclass(slots=True)
class Changing:
    items: list[int] = field(default_factory=list)
    total: int = field(init=False, default=3)

    def double(self):
        self.total *= 2

@dataclass(frozen=True)
class WithoutSlots:
    KIND: ClassVar[str] = "kind"
    value: float
    half: float = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        if self.value < 0:
            raise ValueError("negative")
        object.__setattr__(self, "half", self.value / 2)

@dataclass(frozen=True, slots=True)
class Holder(Generic[T]):
    value: T

@dataclass(frozen=True, slots=True)
class Shown:
    value: int

    def __repr__(self):
        return "shown"

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 7

@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Identity:
    value: int

@dataclass(frozen=True, slots=True)
class Empty:
    pass
"""


def made_by(decorator: str, name: str) -> ModuleType:
    """The classes above, made by Python's decorator or ours."""
    module = ModuleType(name)
    sys.modules[name] = module
    exec(
        f"from __future__ import annotations\n{decorator}\n{SOURCE.split('annotations', 1)[1]}",
        vars(module),
    )
    return module


THEIRS = made_by("from dataclasses import dataclass", "classes_by_dataclasses")
OURS = made_by("from sleeper.language.value_classes import dataclass", "classes_by_value_classes")
CALLS = (
    "Point(1)",
    "Point(1, 2)",
    "Point(y=2, x=1)",
    "Point(True, 2.5)",
    "Point(float('nan'))",
    "Named(name='a')",
    "Named(name='a', tags={'b': 1}, note='c', secret='d')",
    "Longer(name='a', length=2)",
    "Changing()",
    "Changing([1])",
    "WithoutSlots(4.0)",
    "Holder((1, 2))",
    "Shown(1)",
    "Identity(1)",
    "Empty()",
)
WRONG_CALLS = (
    "Point()", "Point(1, 2, 3)", "Point(1, z=2)", "Named('a')", "Named()", "Changing(total=3)",
    "WithoutSlots(-1.0)", "Empty(1)",
)  # fmt: skip


def outcome(action, module: ModuleType) -> object:
    """What an action gives, or the class and text of its error."""
    try:
        return action(module)
    except Exception as error:  # noqa: BLE001 - any error is compared
        return type(error), str(error).replace(module.__name__, "module")


def both(action) -> list[object]:
    return [outcome(action, module) for module in (THEIRS, OURS)]


@pytest.mark.parametrize("call", CALLS)
class TestEveryObject:
    """Given an object by each decorator; then both behave the same."""

    def test_is_shown_the_same(self, call):
        """Its text, its signature, and what `match` takes by place."""
        theirs, ours = both(lambda module: eval(call, vars(module)))

        assert (repr(theirs) == repr(ours)) or call == "Identity(1)"
        assert type(ours).__match_args__ == type(theirs).__match_args__
        assert str(inspect.signature(type(ours))) == str(inspect.signature(type(theirs)))

    def test_is_equal_to_the_same_objects_and_hashed_alike(self, call):
        """Objects that are equal by one decorator are by the other."""
        for other in CALLS:
            theirs, ours = both(
                lambda module, other=other: eval(
                    f"{call} == {other}, {call} != {other}", vars(module)
                )
            )
            assert ours == theirs
        if call != "Identity(1)" and "nan" not in call:
            theirs, ours = both(lambda module: hash(eval(call, vars(module))))
            assert ours == theirs or "unhashable" in str(ours)

    def test_is_changed_only_if_it_is_not_frozen(self, call):
        """Setting and deleting fields gives the same, or the same error."""
        if call == "Empty()":
            return  # Python's own fails with an error about super()

        def change(module: ModuleType) -> str:
            value = eval(call, vars(module))
            name = next(iter(dataclasses.fields(value)), None)
            setattr(value, name.name if name else "other", 5)
            return repr(value)

        def delete(module: ModuleType) -> str:
            value = eval(call, vars(module))
            delattr(value, dataclasses.fields(value)[0].name)
            return "deleted"

        for action in (change, delete):
            theirs, ours = both(action)
            assert ours == theirs

    def test_survives_pickle_copy_and_replace(self, call):
        """Copies are equal to it, and of its class."""
        value = eval(call, vars(OURS))

        copies = [pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)]
        if hasattr(value, "__dataclass_fields__") and not call.startswith(
            ("Changing", "WithoutSlots")
        ):
            copies.append(dataclasses.replace(value))

        shown = (dataclasses.astuple if call == "Identity(1)" else repr)(value)
        for each in copies:
            assert (dataclasses.astuple if call == "Identity(1)" else repr)(each) == shown
            assert type(each) is type(value)


@pytest.mark.parametrize("call", WRONG_CALLS)
def test_wrong_arguments_raise_the_same_error(call):
    """With the same text."""
    theirs, ours = both(lambda module: eval(call, vars(module)))

    assert ours == theirs
    assert isinstance(ours, tuple)


def test_fields_and_dicts_are_those_of_dataclasses():
    """So `fields`, `asdict` and `is_dataclass` know these classes."""
    theirs, ours = both(lambda module: dataclasses.asdict(module.Longer(name="a", tags={"b": 1})))
    named = [[each.name for each in dataclasses.fields(module.Longer)] for module in (THEIRS, OURS)]

    assert ours == theirs
    assert named[0] == named[1]
    assert dataclasses.is_dataclass(OURS.Point)
    assert [each.total for each in [OURS.Changing()] if each.double() is None] == [6]


def test_methods_are_compiled_once_whoever_comes_first():
    """Given threads that make the first objects of a class at once; then all are right."""
    module = made_by("from sleeper.language.value_classes import dataclass", "classes_for_threads")
    start, made = Barrier(8), []

    def make(n: int) -> None:
        start.wait()
        made.append((module.Point(n, n) == module.Point(n, n), hash(module.Point(n, n))))

    threads = [Thread(target=make, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(made) == sorted((True, hash((n, n))) for n in range(8))
    assert type(vars(module.Point)["__init__"]).__name__ == "function"


def test_a_class_whose_objects_nobody_makes_compiles_nothing():
    """That is what makes imports cheap."""
    module = made_by(
        "from sleeper.language.value_classes import dataclass", "classes_that_are_not_used"
    )

    kinds = {type(vars(module.Named)[name]) for name in ("__init__", "__eq__", "__hash__")}

    assert kinds == {value_classes._LateMethod}
