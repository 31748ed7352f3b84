"""What is wrong with a line of JSON, in words of JSON, and what to do about it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa


def unexpected_fields(line: bytes, schema: pa.Schema) -> str:
    """Return the fields of a line that a schema does not have, also those inside of values."""
    try:
        names = [*dict.fromkeys(_unknown_parts(json.loads(line), pa.struct(schema)))]
    except ValueError:
        return ""
    return f"{', '.join(map(repr, names))}; the table has {', '.join(schema.names)}"


def _unknown_parts(value: object, kind: pa.DataType, place: str = "") -> Iterator[str]:
    """Yield what a value of JSON has, and its type has not, as `field.part`."""
    if isinstance(value, list) and pa.types.is_list(kind):
        for each in value:
            yield from _unknown_parts(each, kind.value_type, place)
    if isinstance(value, dict) and pa.types.is_struct(kind):
        for name, part in value.items():
            at = kind.get_field_index(name)
            if at < 0:
                yield f"{place}{name}"
            else:
                yield from _unknown_parts(part, kind.field(at).type, f"{place}{name}.")


def json_place(reason: str) -> str:
    """Return where an error of the first 8 MiB is, as far as pyarrow says it."""
    found = re.search(r" in row (\d+)$", reason)
    return f"row {int(found[1]) + 1:,}: " if found else ""


def json_reason(reason: str, maps: Sequence[str]) -> str:
    """Return the reason of an error in one line, in the words of JSON."""
    plain = re.sub(r" in row \d+$", "", reason.removeprefix("JSON parse error: "))
    changed = re.fullmatch(r"Column\((?:/(.*))?\) changed from (\w+) to (\w+)", plain)
    if changed and changed[1] is None:
        advice = ". Write its elements one a line, as jq -c '.[]' does"
        is_list = changed[3] == "array"
        return f"each line must be one {changed[2]}; here is: {changed[3]}{advice * is_list}"
    if changed:
        name, _, part = changed[1].partition("/[]")
        if name in maps:
            what = "an object" if not part else f"an object whose values are of type {changed[2]}"
            return f"the map {name!r} must be {what}, not a {changed[3]}"
        kinds = [f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}" for kind in changed.groups()[1:]]
        advice = _QUOTES.get((changed[2], changed[3]), "")
        return f"field {changed[1]!r} must be {kinds[0]}, not {kinds[1]}{advice}"
    if number := re.fullmatch(r"Failed to convert JSON to (u?int\d+), couldn't parse:(.*)", plain):
        is_whole = number[2].removeprefix("-").isdigit()
        advice = (
            "it is too large or small" if is_whole else "write whole numbers without a fraction"
        )
        return f"{number[2]} is no value of {number[1]}: {advice}"
    if "Missing a name" in plain:
        return f"{plain.removesuffix('.')} Names and texts of JSON are in double quotes"
    return plain.removesuffix(".")


_QUOTES: Final = {
    ("number", "string"): ": write it without quotes, or give the field the type StringType",
    ("string", "number"): ": write it in quotes",
    ("string", "boolean"): ": write it in quotes",
    ("boolean", "string"): ": write true or false, without quotes",
}
"""What to do where a field has values of two kinds."""
