"""HTML of any value: facts of a result or report, fields of a schema, properties, rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import singledispatch
from typing import Any, Final

import pyarrow as pa

from sleeper.engine.rows import Rows
from sleeper.model.known_properties.typed import (
    InstanceProperties,
    PropertyInForce,
    TableProperties,
)
from sleeper.model.schema import Schema, type_to_text
from sleeper.pictures.markup import (
    Markup,
    counted,
    element,
    facts,
    grid,
    joined,
    shortened,
    size_text,
    time_text,
)

# ---------------------------------------------------------------- row grid
#
# Shows the first rows of a result as a table of HTML.

FIRST_ROWS: Final = 20
COLUMNS_MAX: Final = 50
_CELL_LETTERS_MAX: Final = 120
_BYTES_SHOWN: Final = 24


def row_grid(rows: pa.Table, caption: object = None) -> Markup:
    """Return rows as a table: a heading for each column, with its type.

    Args:
        rows: Few rows; all of them are shown.
        caption: What they are.
    """
    shown = rows.select(range(min(rows.num_columns, COLUMNS_MAX)))
    headings = [
        Markup(
            f"{element('span', field.name)}<br>{element('small', str(field.type), class_='none')}"
        )
        for field in shown.schema
    ]
    if shown.num_columns < rows.num_columns:
        left_out = counted(rows.num_columns - shown.num_columns, "column")
        caption = f"{caption or ''}; {left_out} more"
    numeric = [n for n, field in enumerate(shown.schema) if _is_number(field.type)]
    columns = [column.to_pylist(maps_as_pydicts="lossy") for column in shown.columns]
    cells = ([cell_text(value) for value in row] for row in zip(*columns, strict=True))
    return grid(headings, cells, caption=caption, numeric=numeric)


def cell_text(value: Any) -> object:
    """Return one value as text of bounded length."""
    match value:
        case None:
            return element("span", "null", class_="none")
        case bytes():
            more = "\u2026" if len(value) > _BYTES_SHOWN else ""
            return f"0x{value[:_BYTES_SHOWN].hex()}{more}"
        case _:
            return shortened(str(value), _CELL_LETTERS_MAX)


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


_ITEMS_MAX: Final = 20
_COLUMNS_MAX: Final = 6
_LETTERS_MAX: Final = 160

VIEW_STYLE: Final = element(
    "style",
    Markup(
        ".sleeper-view table{border-collapse:collapse;margin:.3em 0;font-size:13px}"
        ".sleeper-view caption{caption-side:top;text-align:left;opacity:.75;padding:.2em 0}"
        ".sleeper-view th,.sleeper-view td{text-align:left;padding:.25em .7em;"
        "border-bottom:1px solid rgba(128,128,128,.35);vertical-align:top;"
        "max-width:32em;overflow-wrap:anywhere;unicode-bidi:isolate}"
        ".sleeper-view .number{text-align:right;font-variant-numeric:tabular-nums}"
        ".sleeper-view .facts>tbody>tr>th{font-weight:normal;opacity:.75;white-space:nowrap}"
        ".sleeper-view .facts>tbody>tr>td{max-width:none}"
        ".sleeper-view .none{opacity:.55}"
        ".sleeper-view .scroll{overflow-x:auto}"
    ),
)
"""Readable on light and dark: it sets no colour of text or background."""


def notebook_html(value: object) -> str:
    """Return a value as HTML that brings its own style, for notebooks."""
    return element("div", VIEW_STYLE, view_of(value), class_="sleeper-view")


@singledispatch
def view_of(value: object) -> Markup:
    """Return the HTML of a value: its name, and its public fields."""
    return joined([element("strong", type(value).__name__), facts(_named(value))])


@view_of.register
def _(value: Schema) -> Markup:
    return joined([element("strong", "Schema"), schema_grid(value)])


def schema_grid(schema: Schema) -> Markup:
    """Return a table of the fields of a schema, in the order of columns: name, type and role."""
    fields = {field.name: field for field in schema.fields}
    roles = {
        **{field.name: "row key" for field in schema.row_keys},
        **{field.name: "sort key" for field in schema.sort_keys},
    }
    return grid(
        ["field", "type", "role"],
        [
            (
                field.name,
                type_to_text(field.type) + (", or null" if field.nullable else ""),
                roles.get(field.name, "value"),
            )
            for field in map(fields.__getitem__, schema.columns)
        ],
    )


@view_of.register
def _(value: InstanceProperties) -> Markup:
    return _properties("Properties of an instance", value.values, dict(value.values))


@view_of.register
def _(value: TableProperties) -> Markup:
    return _properties("Properties of a table", value.values, dict(value.values))


def _properties(title: str, own: Mapping[str, str], shown: Mapping[str, str]) -> Markup:
    words = f"{len(own)} are set; all others have their defaults"
    rows = [(name, text_of(shown[name])) for name in sorted(shown)]
    return joined([element("strong", title), grid(["name", "value"], rows, caption=words)])


@view_of.register
def _(value: Rows) -> Markup:
    found = value.peek(FIRST_ROWS + 1)
    if found is None:
        return element("p", "These rows were read or closed before. Query again to see them.")
    if found.num_rows > FIRST_ROWS:
        caption = f"The first {FIRST_ROWS} rows; more are not read yet"
        if (rows := value.known_count()) is not None:
            caption = f"The first {FIRST_ROWS} of {counted(rows, 'row')}"
    else:
        caption = counted(found.num_rows, "row")
    caption += f", of transaction {value.transaction:,}"
    return element("div", row_grid(found.slice(0, FIRST_ROWS), caption), class_="scroll")


def text_of(value: object) -> object:
    """Return a field's value as a person reads it."""
    match value:
        case None:
            return element("span", "none", class_="none")
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.3f}".rstrip("0").rstrip(".")
        case datetime():
            return time_text(value)
        case Mapping():
            return ", ".join(f"{name} {text_of(each)}" for name, each in value.items()) or "none"
        case list() | tuple():
            return _items(value)
        case _:
            return shortened(str(value), _LETTERS_MAX)


def _items(items: Sequence[object]) -> object:
    if not items:
        return element("span", "none", class_="none")
    first = items[:_ITEMS_MAX]
    more = [f"and {len(items) - len(first):,} more"] if len(items) > len(first) else []
    kinds = {type(each) for each in first}
    if len(kinds) == 1 and is_dataclass(kind := kinds.pop()):
        shown = [each.name for each in fields(kind) if each.repr]
        names = [n for n in shown if any(getattr(each, n) is not None for each in first)]
        names = names[:_COLUMNS_MAX]
        rows = [[_in_grid(getattr(each, name)) for name in names] for each in first]
        headings = [name.replace("_", " ") for name in names]
        return joined([grid(headings, rows), *more])
    return joined(part for each in [*first, *more] for part in (text_of(each), element("br")))


def _in_grid(value: object) -> object:
    """Return a value as text for a cell: no table is inside another's."""
    if isinstance(value, list | tuple) and value and is_dataclass(value[0]):
        return counted(len(value), "item")
    return text_of(value)


def _named(value: object) -> list[tuple[object, object]]:
    """Return the fields of a value that its `repr` shows, each with its text."""
    if not is_dataclass(value):
        return [("value", shortened(str(value), _LETTERS_MAX))]
    shown: list[tuple[object, object]] = []
    for each in fields(value):
        if not each.repr or each.name.startswith("_"):
            continue
        found = getattr(value, each.name)
        is_size = each.name.endswith("bytes") and isinstance(found, int)
        words = size_text(found) if is_size else text_of(found)
        shown.append((each.name.replace("_", " "), words))
    return shown


@view_of.register
def _(value: PropertyInForce) -> Markup:
    return joined([element("strong", value.name), facts(_named(value)[1:])])
