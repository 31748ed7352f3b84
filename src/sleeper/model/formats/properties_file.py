"""Reads and writes Java properties files: `name=value`, with escapes, comments, long lines.

If a name occurs twice, the last value counts, as in Java (rule INS-4).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from sleeper.errors import (
    DataDamaged,
    FormatTooNew,
    InstanceGone,
    InstanceReplaced,
    PropertiesInvalid,
)
from sleeper.model.known_properties.value_kinds import Property

INSTANCE_FORMAT = 1
"""The newest format of instances that this Sleeper reads; it writes this one."""
FORMAT_PROPERTY = "sleeper.format.version"
VERSION_PROPERTY = "sleeper.properties.version"
_ID = "sleeper.id"
_NUMBER = re.compile("[0-9]{1,9}")
_BYTE_ORDER_MARK = "\ufeff"
_LINE_END: Final = re.compile(r"\r\n?|\n")
_SPACE: Final = " \t\f"
_GOES_ON: Final = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
"""Matches a line that ends with a backslash which no other one escapes."""

_SEPARATOR: Final = re.compile(r"(?<!\\)(?:\\\\)*([ \t\f]*[=:]|[ \t\f])[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u.{0,4}|.)")
_BY_NUMBER: Final = re.compile(r"u[0-9A-Fa-f]{4}\Z")
_BY_LETTER: Final = {"t": "\t", "n": "\n", "f": "\f", "r": "\r"}
_SURROGATE_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def read_properties(text: str) -> dict[str, str]:
    r"""Return the names and values in the text of a properties file.

    >>> read_properties("# a comment\nsleeper.filesystem=file\\://\n")
    {'sleeper.filesystem': 'file://'}

    Raises:
        PropertiesInvalid: the text has an escape `\u` without four hexadecimal digits.
    """
    values: dict[str, str] = {}
    for number, line in _whole_lines(text.removeprefix(_BYTE_ORDER_MARK)):
        separator = _SEPARATOR.search(line)
        name, value = (
            (line, "")
            if separator is None
            else (line[: separator.start(1)], line[separator.end() :])
        )
        values[_unescaped(name, number)] = _unescaped(value, number)
    return values


def _whole_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with its number, and the lines in which it goes on; no comments."""
    lines = enumerate(_LINE_END.split(text), start=1)
    for number, first in lines:
        line = first.lstrip(_SPACE)
        if line.startswith(("#", "!")):
            continue
        while _GOES_ON.search(line):
            _, more = next(lines, (0, ""))
            line = line[:-1] + more.lstrip(_SPACE)
        if line:
            yield number, line


def _unescaped(text: str, line: int) -> str:
    """Return a name or value without escapes. A pair of surrogates is one character, as in Java."""

    def character(escape: re.Match[str]) -> str:
        name = escape[1]
        if name[0] != "u":
            return _BY_LETTER.get(name, name)
        if not _BY_NUMBER.match(name):
            raise PropertiesInvalid(
                {
                    f"line {line}": f"The properties have {escape[0]!r} in line {line}: four "
                    "hexadecimal digits must follow \\u. A backslash itself is written \\\\."
                }
            )
        return chr(int(name[1:], 16))

    unescaped = _ESCAPE.sub(character, text)
    return _SURROGATE_PAIR.sub(
        lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), unescaped
    )


def is_of_instance(body: bytes) -> bool:
    """Return whether a file `instance.properties` is an instance's own, not settings for a new one.

    One that cannot be read counts as an instance's.
    """
    try:
        return FORMAT_PROPERTY in read_properties(body.decode())
    except (UnicodeDecodeError, PropertiesInvalid):
        return True


def read_instance_properties(
    body: bytes, where: str, name: str = "instance.properties", number: int | None = None
) -> dict[str, str]:
    """Return the names and values in a file of properties of an instance.

    Args:
        body: The bytes of the file.
        where: The instance, for errors.
        name: The file's name, for errors.
        number: The version that the file must have, if it is known.

    Raises:
        DataDamaged: the file is not UTF-8, has no valid id or format, or is of another version.
        FormatTooNew: a newer Sleeper made the instance.
        PropertiesInvalid: the text is not a properties file.
    """
    what = f"{name} of the instance at {where}"
    try:
        values = read_properties(body.decode())
    except UnicodeDecodeError as error:
        raise _damaged(what, f"it is not UTF-8: {error.reason} at byte {error.start}") from error
    if not values.get(_ID):
        raise _damaged(what, f"it has no {_ID}")
    for counted in (FORMAT_PROPERTY, VERSION_PROPERTY):
        if not _NUMBER.fullmatch(values.get(counted, "1")):
            raise _damaged(what, f"{counted} is {values[counted]!r:.100}, not a number")
    version = values.get(FORMAT_PROPERTY, "1")
    if int(version) > INSTANCE_FORMAT:
        raise FormatTooNew(
            f"the instance at {where} has format {version}; this Sleeper knows formats up to "
            f"{INSTANCE_FORMAT}: upgrade Sleeper"
        )
    if number is not None and properties_version(values) != number:
        raise _damaged(what, f"{VERSION_PROPERTY} is {properties_version(values)}, not {number}")
    return values


def check_instance_id(body: bytes | None, where: str, instance_id: str) -> None:
    """Check that the properties at the place of an opened instance are still its own.

    Args:
        body: The bytes of the file; None if there is none.
        where: The place, for errors.
        instance_id: The id of the instance that was opened.

    Raises:
        InstanceGone: there is no file.
        InstanceReplaced: the file has another id.
        DataDamaged, FormatTooNew, PropertiesInvalid: it cannot be read.
    """
    if body is None:
        raise InstanceGone(
            f"instance {instance_id!r} is no longer at {where}: it was moved, deleted, or its "
            "storage is not mounted. Nothing was written. Put it back, or open it where it is now."
        )
    found = read_instance_properties(body, where)[_ID]
    if found != instance_id:
        raise InstanceReplaced(
            f"instance {found!r} is at {where} now, where {instance_id!r} was opened. Nothing was "
            f"written. Open it again, or open {instance_id!r} where it is now."
        )


def properties_version(values: Mapping[str, str]) -> int | None:
    """Return how often the properties were changed; None before anybody set out to."""
    text = values.get(VERSION_PROPERTY)
    return None if text is None else int(text)


def _damaged(what: str, why: str) -> DataDamaged:
    return DataDamaged(f"{what} is damaged: {why}. Restore it from a copy")


def write_properties(values: Mapping[str, str], known: Iterable[Property]) -> str:
    """Return the text of a properties file, with headings and descriptions (rule INS-4).

    Properties come in the order of `known`, under the headings of their groups, each with its
    description. The others follow under "Unknown", sorted by name.
    """
    import javaproperties  # noqa: PLC0415 - slow to import, and readers need none

    parts: list[str] = []
    heading = ""
    described = [each for each in known if each.name in values]
    for each in described:
        if each.group != heading:
            heading = each.group
            parts.append(f"## {heading}\n")
        unused = "" if each.used else " Kept, but nothing here uses it."
        comment = javaproperties.to_comment(f" {each.description}{unused}")
        entry = javaproperties.join_key_value(each.name, values[each.name])
        parts.append(f"{comment}\n{entry}\n")
    unknown = sorted(set(values) - {each.name for each in described})
    if unknown:
        entries = [javaproperties.join_key_value(name, values[name]) for name in unknown]
        parts += ["## Unknown\n", "\n".join(entries) + "\n"]
    return "\n".join(parts)
