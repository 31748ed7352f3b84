"""Rows as a table of HTML: a heading for each column, and values of bounded length."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import pyarrow as pa

from sleeper.engine.python_values import python_values
from sleeper.html.markup import Markup, counted, element, grid, shortened
from sleeper.model.column_types import duration_text

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
    columns = [python_values(column) for column in shown.columns]
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
        case timedelta():
            return duration_text(value)
        case _:
            return shortened(str(value), _CELL_LETTERS_MAX)


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )
