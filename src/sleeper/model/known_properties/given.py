"""Checks properties before they are stored: the type of each value, and each name.

An unknown name is stored, because a later version, or upstream Sleeper, may know it. A name that
differs from a known one in a single character is refused as a typing error: it would be stored
without effect. No name of upstream's is that close to a name that is known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from numbers import Integral
from typing import Any, Final

from sleeper.errors import BadRequest, PropertiesInvalid
from sleeper.model.known_properties.value_kinds import PREFIX, TABLE_PREFIX, Property

PropertyValue = str | int | bool

OPEN_FAMILIES: Final = (
    "sleeper.bulk.import.spark.",
    "sleeper.bulk.import.eks.spark.",
    "sleeper.bulk.import.emr.spark.",
    "sleeper.bulk.import.emr.serverless.spark.",
)
"""Any name in these families is a setting of Spark, and is passed to Spark."""


def property_texts(given: Mapping[str, PropertyValue | None]) -> dict[str, str | None]:
    """Return values as text, as a properties file has them; None stays None.

    >>> property_texts({"sleeper.table.online": False, "sleeper.table.gc.delay.minutes": 5})
    {'sleeper.table.online': 'false', 'sleeper.table.gc.delay.minutes': '5'}

    Raises:
        BadRequest: `given` is not a mapping.
        PropertiesInvalid: a name or a value has the wrong type, or is not valid Unicode.
    """
    if not isinstance(given, Mapping):
        raise BadRequest(
            f"properties are a mapping of names to values, such as a dict, not {_kind_of(given)}"
        )
    texts: dict[str, str | None] = {}
    failures: dict[str, str] = {}
    for name, value in given.items():
        failure = _name_failure(name) or _value_failure(name, value)
        if failure:
            failures[str(name)] = failure
        elif isinstance(value, bool):
            texts[name] = "true" if value else "false"
        else:
            texts[name] = None if value is None else str(value)
    if failures:
        raise PropertiesInvalid(failures)
    return texts


def misplaced_names(
    names: Iterable[str], known: Mapping[str, Property], elsewhere: Mapping[str, Property]
) -> dict[str, str]:
    """Return a failure for each name that is misspelt, or belongs to tables or instances.

    Args:
        names: What a caller sets.
        known: The properties that may be set here.
        elsewhere: For a table, the properties of an instance; for an instance, those of tables.
    """
    return {
        name: failure
        for name in names
        if not is_known(name, known) and (failure := _misplaced(name, known, elsewhere))
    }


def unknown_names(given: Mapping[str, str | None], known: Mapping[str, Property]) -> dict[str, str]:
    """Return a failure for each name that is set and is none of `known`, with the nearest one.

    For where nobody can have an unknown name for a reason: deployments.
    """
    failures = {}
    for name, text in given.items():
        if text is None or is_known(name, known):
            continue
        near = get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        failures[name] = f"{name} is no property of an instance.{hint}"
    return failures


def is_known(name: str, known: Mapping[str, Property]) -> bool:
    """Return whether a name is one of `known`, or in a family that accepts every name."""
    return name in known or (
        name.startswith(OPEN_FAMILIES) and any(each.startswith(OPEN_FAMILIES) for each in known)
    )


def without_effect(given: Mapping[str, str | None], known: Mapping[str, Property]) -> list[str]:
    """Return a warning for each property that is set, and stored, but has no effect."""
    warnings = []
    for name in sorted(name for name, text in given.items() if text is not None):
        if name in known and not known[name].used:
            warnings.append(f"{name} is stored, but nothing here uses it.")
        elif not is_known(name, known):
            near = get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            warnings.append(f"{name} is stored, but no property has this name.{hint}")
    return warnings


def _name_failure(name: Any) -> str | None:
    if not isinstance(name, str):
        return f"{name!r} is not a property name: it is {_kind_of(name)}, not a str."
    if (
        not name.strip()
        or not _is_unicode(name)
        or len(name.splitlines()) > 1
        or name != name.strip()
    ):
        return f"{name!r} is not a property name."
    return None


def _value_failure(name: str, value: Any) -> str | None:
    if value is None or isinstance(value, Integral):  # bool is one
        return None
    if not isinstance(value, str):
        return f"{name} is {value!r}, {_kind_of(value)}, but a value is a str, an int or a bool."
    return None if _is_unicode(value) else f"{name} is {value!r}, which is not valid Unicode."


def _misplaced(
    name: str, known: Mapping[str, Property], elsewhere: Mapping[str, Property]
) -> str | None:
    if is_known(name, elsewhere):
        default = elsewhere[name].instance_default if name in elsewhere else None
        if name.startswith(TABLE_PREFIX):
            advice = f"The default of all tables is {default}." if default in known else ""
            return f"{name} is a property of a table, not of the instance. {advice}".strip()
        return f"{name} is a property of the instance, not of a table."
    near = one_slip_away(name, known, prefixes=("", PREFIX, TABLE_PREFIX))
    return f"{name} is not a property. Did you mean {near}?" if near else None


def one_slip_away(
    name: str, known: Iterable[str], *, prefixes: Sequence[str] = ("",)
) -> str | None:
    """Return the known name that differs in one character, case or separators; None without one.

    Args:
        name: What somebody wrote.
        known: All names that there are.
        prefixes: What may have been left out before the name.
    """
    spelt = _letters(name)
    tries = tuple(_letters(each) + spelt for each in prefixes)
    for each in known:
        letters = _letters(each)
        if letters in tries or _differ_in_one(spelt, letters):
            return each
    return None


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _differ_in_one(one: str, other: str) -> bool:
    """Return whether one letter is missing, added, wrong, or swapped with the next."""
    pairs = enumerate(zip(one, other, strict=False))
    shared = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
    left, right = one[shared:], other[shared:]
    swapped = left[:2] == right[:2][::-1] and left[2:] == right[2:]
    return left[1:] == right or left == right[1:] or left[1:] == right[1:] or swapped


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _kind_of(value: Any) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"
