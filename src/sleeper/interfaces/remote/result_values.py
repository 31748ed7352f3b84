"""Makes result values of JSON documents: data classes, by the types of their fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Result = TypeVar("Result")


def result_of(kind: type[Result], document: Mapping[str, Any]) -> Result:
    """Return an object of a data class, from the document that `asdict` and JSON made of it.

    What the document has more, from a newer server, is left out.
    """
    hints = get_type_hints(kind)
    names = [each.name for each in fields(kind) if each.init]  # type: ignore[arg-type]
    given = {name: _value(hints[name], document[name]) for name in names if name in document}
    return kind(**given)


def _value(hint: Any, value: Any) -> Any:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        others = [part for part in parts if part is not NoneType]
        return None if value is None else _value(others[0], value)
    if isinstance(value, list):
        element = parts[0] if parts else Any
        items = [_value(element, item) for item in value]
        return items if origin in (list, Sequence) else tuple(items)
    if isinstance(value, dict) and origin is not None:
        return {key: _value(parts[1], item) for key, item in value.items()}
    if not isinstance(hint, type) or value is None:
        return value
    if is_dataclass(hint):
        return result_of(hint, value)
    if issubclass(hint, datetime | date):
        return hint.fromisoformat(value)
    return hint(value) if issubclass(hint, Enum) else value
