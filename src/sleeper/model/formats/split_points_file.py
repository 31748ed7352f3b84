"""Reads and writes files of split points: one value of the first row key on each line (rule TBL-8).

Integers are decimal, bytes are base64, strings are raw or base64, dates and timestamps ISO 8601.
A line ends with LF, CR LF or CR, as in upstream, so a file that was edited on Windows means the
same. A raw string can therefore contain neither of the two characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sleeper.errors import QueryInvalid, SplitPointsInvalid
from sleeper.model.column_types import key_traits
from sleeper.model.keys import key_type, value_from_text, value_to_text
from sleeper.model.partitions import checked_split_points
from sleeper.model.schema import Schema

_BYTE_ORDER_MARK = "\ufeff"


def read_split_points(text: str, schema: Schema, *, base64_encoded: bool = False) -> list[Any]:
    r"""Return the split points in the text of a file, checked (rule TBL-9).

    Empty lines at the end are ignored; an empty file has no split points.

    >>> from sleeper.model.schema import Field, Primitive
    >>> read_split_points("10\n20\n", Schema(row_keys=(Field("n", Primitive.LONG),)))
    [10, 20]

    Raises:
        SplitPointsInvalid: a line is not a value of the first row key, or the points are not
            strictly ascending.
    """
    field = schema.row_keys[0]
    content = text.removeprefix(_BYTE_ORDER_MARK).rstrip("\r\n")
    if not content:
        return []
    raw = key_traits(key_type(field)).is_text and not base64_encoded
    points = []
    for number, line in enumerate(re.split(r"\r\n|\n|\r", content), start=1):
        text = line if raw else line.strip()
        try:
            points.append(value_from_text(field, text, base64_encoded=base64_encoded))
        except QueryInvalid as error:
            raise SplitPointsInvalid(f"Invalid split point in line {number}: {error}") from None
    return checked_split_points(schema, points)


def write_split_points(
    points: Sequence[Any], schema: Schema, *, base64_encoded: bool = False
) -> str:
    """Return the text of a split points file; `read_split_points` reads it back.

    Raises:
        SplitPointsInvalid: the points are not allowed, or one is a string that a line cannot
            hold as it is.
    """
    kind = key_type(schema.row_keys[0])
    lines = []
    for point in checked_split_points(schema, points):
        line = value_to_text(kind, point, base64_encoded=base64_encoded)
        if re.search(r"[\r\n]", line) or line.startswith(_BYTE_ORDER_MARK):
            raise SplitPointsInvalid(
                f"split point {point!r} has a line break or a byte order mark, which a line of "
                "the file cannot hold; write the file with base64 encoded strings"
            )
        lines.append(line + "\n")
    return "".join(lines)
