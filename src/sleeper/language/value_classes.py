"""Classes of values, at less cost than Python's own.

The decorator `dataclass` is that of `dataclasses`, ten times cheaper to import.

Python's own writes and compiles up to six methods of a class when the module is imported, which
takes half a millisecond a class. Here a method is compiled when it is first used, and those that
need no speed are shared. Objects are made twice as quickly, because slots are set without a look-up
by name. Type checkers see Python's decorator; `fields`, `replace` and `asdict` work as ever.
Notebooks show objects as tables of their fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from reprlib import recursive_repr
from types import FunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final

from sleeper.language.html_views import repr_html

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        *,
        frozen: bool = False,
        slots: bool = False,
        kw_only: bool = False,
        eq: bool = True,
        repr: bool = True,  # noqa: A002 - the name in `dataclasses`
    ) -> Callable[[type], type]:
        """Return a decorator that makes a class a data class, as `dataclasses.dataclass` does.

        Args:
            frozen: Refuse changes of its objects, which may be hashed then.
            slots: Keep fields in slots.
            kw_only: Take arguments by keyword only.
            eq: Compare objects by their fields.
            repr: Show objects with their fields.
        """
        collect = dataclasses.dataclass(
            init=False, repr=False, eq=False, slots=slots, kw_only=kw_only
        )

        def decorate(cls: type) -> type:
            cls.__doc__ = cls.__doc__ or cls.__name__  # or Python writes one, by its signature
            own = collect(cls)
            given = {*vars(cls)}
            has_hash = "__hash__" in given and not (cls.__hash__ is None and "__eq__" in given)
            _add(own, given, "__init__", _init_lines)
            if repr and "__repr__" not in given:
                own.__repr__ = _show
            if repr and "_repr_html_" not in given:
                own._repr_html_ = repr_html
            if eq:
                _add(own, given, "__eq__", _eq_lines)
                if frozen and not has_hash:
                    _add(own, (), "__hash__", _hash_lines)
                elif not frozen and not has_hash:
                    own.__hash__ = None
            if frozen:
                own.__setattr__, own.__delattr__ = _refuse_to_set, _refuse_to_delete
                if slots:
                    _add_state(own, given)
            return own

        return decorate


__all__ = ["dataclass"]

Lines = tuple[str, Sequence[str], dict[str, Any]]
"""The parameters of a method after `self`, the lines of its body, and names that these use."""


class _MadeForEach:
    """The default of a parameter whose value is made for each object."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY: Final = _MadeForEach()


class _LateMethod:
    """A method that is compiled when it is first looked up."""

    def __init__(self, owner: type, name: str, lines: Callable[[type], Lines]) -> None:
        self._owner, self._name, self._lines = owner, name, lines

    def __get__(self, instance: object, owner: type) -> Any:
        method = _compiled(self._owner, self._name, self._lines(self._owner))
        setattr(self._owner, self._name, method)
        return method if instance is None else method.__get__(instance, owner)


def _add(cls: type, given: Iterable[str], name: str, lines: Callable[[type], Lines]) -> None:
    if name not in given:
        setattr(cls, name, _LateMethod(cls, name, lines))


def _compiled(cls: type, name: str, lines: Lines) -> FunctionType:
    parameters, body, names = lines
    text = "\n  ".join((f"def make({', '.join(names)}):\n def {name}(self{parameters}):", *body))
    made: dict[str, Any] = {"__name__": cls.__module__}
    exec(f"{text}\n return {name}", made)  # noqa: S102 - as `dataclasses` does it
    method: FunctionType = made["make"](**names)
    method.__qualname__ = f"{cls.__qualname__}.{name}"
    if name == "__init__":
        types = {each.name: each.type for each in fields(cls) if each.init}
        method.__annotations__ = {**types, "return": None}
    return method


def _init_lines(cls: type) -> Lines:
    taken = [each for each in fields(cls) if each.init]
    by_place = [_parameter(each) for each in taken if not each.kw_only]
    by_name = [_parameter(each) for each in taken if each.kw_only]
    parameters = "".join(f", {each}" for each in [*by_place, *(["*"] if by_name else []), *by_name])
    names: dict[str, Any] = {"_factory": _FACTORY}
    body = []
    for each in fields(cls):
        name = each.name
        value = name
        if each.default_factory is not MISSING:
            names[f"_make_{name}"] = each.default_factory
            value = f"_make_{name}()"
            if each.init:
                value = f"{value} if {name} is _factory else {name}"
        elif each.default is not MISSING:
            names[f"_default_{name}"] = each.default
            value = name if each.init else f"_default_{name}"
        elif not each.init:
            continue
        slot: Any = getattr(cls, name, None)
        if isinstance(slot, MemberDescriptorType):
            names[f"_set_{name}"] = slot.__set__
            body.append(f"_set_{name}(self, {value})")
        else:
            names["_set"] = object.__setattr__
            body.append(f"_set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    return parameters, body or ["pass"], names


def _parameter(field: Field[Any]) -> str:
    if field.default_factory is not MISSING:
        return f"{field.name}=_factory"
    return field.name if field.default is MISSING else f"{field.name}=_default_{field.name}"


def _eq_lines(cls: type) -> Lines:
    names = [each.name for each in fields(cls) if each.compare]
    of_self, of_other = (
        "(" + "".join(f"{who}.{name}, " for name in names) + ")" for who in ("self", "other")
    )
    body = ["if other.__class__ is self.__class__:", f" return {of_self} == {of_other}"]
    return ", other", [*body, "return NotImplemented"], {}


def _hash_lines(cls: type) -> Lines:
    hashed = [
        each.name for each in fields(cls) if (each.compare if each.hash is None else each.hash)
    ]
    return "", ["return hash((" + "".join(f"self.{name}, " for name in hashed) + "))"], {}


@recursive_repr()
def _show(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _add_state(cls: Any, given: Iterable[str]) -> None:
    """Let objects be pickled, although they are frozen and have slots."""
    if "__getstate__" not in given:
        cls.__getstate__ = _state
    if "__setstate__" not in given:
        cls.__setstate__ = _restore


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]


def _restore(self: Any, state: Sequence[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
