"""Names of columns as Spark's options and properties have them: one text, with commas between."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from sleeper.errors import BadRequest

_COLUMN: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`,]*[^`,\s]))\s*(?:,|$)")


def quoted_name(name: str) -> str:
    """Write a name as SQL of Spark takes any name.

    >>> quoted_name("odd `name`")
    '`odd ``name```'
    """
    return "`" + name.replace("`", "``") + "`"


def columns_to_text(names: Iterable[str]) -> str:
    """Write names as one text.

    >>> columns_to_text(["id", "a,b"])
    '`id`,`a,b`'
    """
    return ",".join(quoted_name(name) for name in names)


def columns_from_text(text: str, what: str = "option 'columns'") -> list[str]:
    """Read names from one text, which a user may have written.

    >>> columns_from_text("a, `b,c`")
    ['a', 'b,c']

    Args:
        text: Names with commas between them; one with a comma, a backquote or spaces at its ends is
            in backquotes.
        what: What the text is, for the message.

    Raises:
        BadRequest: it is not such a text.
    """
    names: list[str] = []
    place = 0
    while place < len(text):
        found = _COLUMN.match(text, place)
        if found is None:
            raise BadRequest(
                f"{what} is names with commas between them, odd ones in backquotes, not {text!r}"
            )
        names.append(found[2] if found[1] is None else found[1].replace("``", "`"))
        place = found.end()
    return names
