"""Messages as JSON objects: read field by field with all failures together, written as upstream.

Upstream reads a text, a number or a boolean where a text belongs, and so does this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

from sleeper.errors import JobInvalid

_DEPTH_MAX: Final = 100
_SHOWN_MAX: Final = 100
_FAILURES_MAX: Final = 50
_FOLDER_NAME_BYTES_MAX: Final = 200  # of 255; temp folders have longer names
_IDS: Final = ("id", "queryId", "exportId")

# What Gson escapes within texts, beside what JSON demands.
_ESCAPED: Final = {ord(each): f"\\u{ord(each):04x}" for each in "<>&='\u2028\u2029"}


def write_message(values: Mapping[str, Any], others: Mapping[str, Any] | None = None) -> str:
    r"""Return values as JSON, byte for byte as upstream's Gson: one line, nothing for None.

    Args:
        values: By the names of the message's fields, in upstream's order.
        others: Fields that nobody knows; they follow as they are.

    >>> write_message({"id": "june", "files": ["day=1/"], "tableId": None})
    '{"id":"june","files":["day\\u003d1/"]}'
    """
    said = {name: value for name, value in values.items() if value is not None}
    text = json.dumps({**said, **(others or {})}, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_ESCAPED)


class MessageFields:
    """The fields of one message. Each is read by its type; what is wrong with any is gathered.

    A field that is missing or null reads as None.

    Raises:
        JobInvalid: the text is no JSON object (rule ING-10).
    """

    def __init__(self, text: str) -> None:
        self._values = _parsed(text)
        self._read: set[str] = set()
        self._failures: list[str] = []

    def text(self, name: str) -> str | None:
        """Return a text."""
        return self._as_text(name, self._take(name))

    def flag(self, name: str) -> bool:
        """Return whether something is so; False when it is missing. A text is refused."""
        value = self._take(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        self._refuse(name, "true or false", value)
        return False

    def whole_number(self, name: str) -> int | None:
        """Return a whole number, 0 or more."""
        value = self._take(name)
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        self._refuse(name, "a whole number, 0 or more", value)
        return None

    def texts(self, name: str) -> tuple[str | None, ...] | None:
        """Return a list of texts, of which each may be null."""
        values = self._take(name)
        if values is None:
            return None
        if not isinstance(values, list):
            self._refuse(name, "a list of texts", values)
            return None
        return tuple(self._as_text(f"{name}.{at}", value) for at, value in enumerate(values))

    def settings(self, name: str) -> dict[str, str]:
        """Return an object of texts; empty when it is missing. Its nulls are left out."""
        return self._as_settings(name, self._take(name))

    def list_of_settings(self, name: str) -> tuple[dict[str, str], ...]:
        """Return a list of objects of texts; empty when it is missing."""
        values = self._take(name)
        if values is None:
            return ()
        if not isinstance(values, list):
            self._refuse(name, "a list of objects of texts", values)
            return ()
        return tuple(self._as_settings(f"{name}.{at}", value) for at, value in enumerate(values))

    def object(self, name: str) -> dict[str, Any] | None:
        """Return an object."""
        value = self._take(name)
        if value is None or isinstance(value, dict):
            return value
        self._refuse(name, "an object", value)
        return None

    def objects(self, name: str) -> tuple[dict[str, Any], ...] | None:
        """Return a list of objects."""
        values = self._take(name)
        if values is None:
            return None
        if not isinstance(values, list) or not all(isinstance(each, dict) for each in values):
            self._refuse(name, "a list of objects", values)
            return None
        return tuple(values)

    @property
    def failures(self) -> tuple[str, ...]:
        """What is wrong with the fields that were read by now: the first failures, if many."""
        first, more = self._failures[:_FAILURES_MAX], len(self._failures) - _FAILURES_MAX
        return (*first, f"and {more:,} failures more") if more > 0 else tuple(first)

    def others(self) -> dict[str, Any]:
        """Return the fields that were not read by now.

        Raises:
            JobInvalid: any of those that were read is wrong; with every reason.
        """
        if self._failures:
            raise JobInvalid(self.failures)
        return self.not_read()

    def not_read(self) -> dict[str, Any]:
        """Return the fields that were not read by now, whatever is wrong with others."""
        return {name: value for name, value in self._values.items() if name not in self._read}

    def _take(self, name: str) -> Any:
        self._read.add(name)
        return self._values.get(name)

    def _as_settings(self, place: str, values: Any) -> dict[str, str]:
        if values is None:
            return {}
        if not isinstance(values, dict):
            self._refuse(place, "an object of texts", values)
            return {}
        texts = {each: self._as_text(f"{place}.{each}", value) for each, value in values.items()}
        return {each: text for each, text in texts.items() if text is not None}

    def _as_text(self, place: str, value: Any) -> str | None:
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, int | float):
            return str(value)
        self._refuse(place, "a text", value)
        return None

    def _refuse(self, place: str, wanted: str, value: Any) -> None:
        found = json.dumps(value, ensure_ascii=False)
        found = found if len(found) <= _SHOWN_MAX else f"{found[:_SHOWN_MAX]}..."
        self._failures.append(f"Error parsing JSON. Reason: {place}: must be {wanted}, not {found}")


def _parsed(text: str) -> dict[str, Any]:
    try:
        text.encode()
        values = json.loads(
            text, parse_constant=_refuse_constant, object_pairs_hook=_without_repeats
        )
        _check_depth(values)
        if "\\u" in text:  # what is escaped may be half a pair
            json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise JobInvalid(
            ("Error parsing JSON. Reason: it has half of a surrogate pair, which is no character",)
        ) from None
    except RecursionError:
        raise JobInvalid(("Error parsing JSON. Reason: it is nested too deeply",)) from None
    except ValueError as error:
        raise JobInvalid((f"Error parsing JSON. Reason: {error}",)) from None
    if not isinstance(values, dict):
        raise JobInvalid(
            (f"Error parsing JSON. Reason: must be an object in braces, not {text[:100]!r}",)
        )
    return values


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. One that has a name twice may mean either value, so it is refused."""
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice[:_SHOWN_MAX]!r} is given twice")
    return values


def _check_depth(values: Any) -> None:
    """Check that objects and lists are in few others, as many functions recurse into them."""
    level = [values]
    for _ in range(_DEPTH_MAX):
        inner = [
            each.values() if isinstance(each, dict) else each
            for each in level
            if isinstance(each, dict | list)
        ]
        if not inner:
            return
        level = [*chain.from_iterable(inner)]
    raise ValueError(f"it is nested more than {_DEPTH_MAX} deep")


def id_in_message(text: str) -> str | None:
    """Return the id that a message gives its job, whatever else is wrong with it; None without.

    >>> id_in_message('{"id": "june", "files": 5}')
    'june'
    """
    try:
        message = MessageFields(text)
    except JobInvalid:
        return None
    ids = (message.text(name) for name in _IDS)
    return next((each for each in ids if each and each.strip()), None)


def table_in_message(text: str) -> tuple[str | None, str | None]:
    """Return the id and the name that a message gives its table, whatever else is wrong with it.

    >>> table_in_message('{"tableName": "trips", "files": 5}')
    (None, 'trips')
    """
    try:
        message = MessageFields(text)
    except JobInvalid:
        return None, None
    return message.text("tableId"), message.text("tableName")


def folder_name_failures(field: str, name: str) -> list[str]:
    """Return why an id cannot name a folder of results, if it cannot.

    Args:
        field: The message's field that has it.
        name: The id.
    """
    if "/" in name or name in (".", "..") or name.startswith(".tmp-") or not name.isprintable():
        shown = name if len(name) <= _SHOWN_MAX else f"{name[:_SHOWN_MAX]}..."
        return [f"{field} names a folder of results, so it cannot be {shown!r}"]
    size = len(name.encode(errors="replace"))
    if size > _FOLDER_NAME_BYTES_MAX:
        most = _FOLDER_NAME_BYTES_MAX
        return [f"{field} names a folder of results: it has {size:,} bytes of UTF-8, above {most}"]
    return []


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")
