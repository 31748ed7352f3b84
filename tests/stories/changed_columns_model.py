"""A plain model of a table whose columns change, and ways to draw changes and rows for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

NAMES = ("a", "b", "c", "d e", "é")
"""Few names, so that dropped ones come back."""

VALUES = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    pa.binary(): st.binary(max_size=5),
    pa.bool_(): st.booleans(),
    pa.time64("us"): st.times().map(lambda value: value.replace(fold=0)),
    pa.duration("us"): st.timedeltas(timedelta(days=-10_000), timedelta(days=10_000)),
    pa.timestamp("us"): st.datetimes().map(lambda value: value.replace(fold=0)),
    pa.date32(): st.dates(date(1, 1, 1), date(9999, 12, 31)),
    pa.decimal128(5, 2): st.decimals(-999, 999, places=2),
    pa.decimal128(12, 2): st.decimals(-999, 999_999_999, places=2),
    pa.decimal128(30, 2): st.decimals(-999, 999_999_999, places=2),
}
WIDER = {
    pa.int32(): [pa.int64()],
    pa.float32(): [pa.float64()],
    pa.decimal128(5, 2): [pa.decimal128(12, 2), pa.decimal128(30, 2)],
    pa.decimal128(12, 2): [pa.decimal128(30, 2)],
}
NESTED = pa.list_(pa.field("element", pa.int64(), nullable=False))


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if kind == NESTED:
        return st.lists(st.integers(-9, 9), max_size=3)
    return VALUES[kind]


@dataclass
class Column:
    """A column of the model; `number` is never used again."""

    number: int
    name: str
    type: pa.DataType
    nullable: bool
    default: Any = None


@dataclass
class Model:
    """Columns, and rows as {number of a column: value}; a row has nothing for later columns."""

    columns: list[Column] = field(default_factory=list)
    rows: list[dict[int, Any]] = field(default_factory=list)
    made: int = 0

    def new_column(self, name, kind, *, nullable, default=None) -> Column:
        self.made += 1
        return Column(self.made, name, kind, nullable, default)

    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.type, c.nullable) for c in self.columns])

    def free_names(self) -> list[str]:
        return [name for name in NAMES if name not in {c.name for c in self.columns}]

    def values(self) -> list[Column]:
        """The columns that may change: all but the key."""
        return [c for c in self.columns if c.name != "k"]

    def shown(self, rows=None) -> list[dict[str, Any]]:
        """The rows as a reader has them now, in an order of their own."""
        found = [
            {c.name: row.get(c.number, c.default) for c in self.columns}
            for row in (self.rows if rows is None else rows)
        ]
        return in_order(found)


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["k"], repr(sorted(row.items()))))


@st.composite
def first_models(draw) -> Model:
    model = Model()
    model.columns = [model.new_column("k", pa.int64(), nullable=False)]
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3)):
        kind = draw(st.sampled_from([*VALUES, NESTED]))
        model.columns.append(model.new_column(name, kind, nullable=draw(st.booleans())))
    model.columns = draw(st.permutations(model.columns))
    return model


def drawn_rows(data, model: Model, count: int) -> list[dict[int, Any]]:
    def row(number: int) -> dict[int, Any]:
        found = {}
        for column in model.columns:
            if column.name == "k":
                found[column.number] = data.draw(st.integers(0, 60))
                continue
            value = values_of(column.type)
            found[column.number] = data.draw(st.none() | value if column.nullable else value)
        return found

    return [row(number) for number in range(count)]


def drawn_change(data, model: Model) -> dict[str, Any]:
    """Draw a change of several columns, make it in the model, and return it for `alter`."""
    asked: dict[str, Any] = {"drop": [], "rename": {}, "widen": {}, "nullable": []}
    for column in model.values():
        what = data.draw(st.sampled_from(["", "", "drop", "widen", "nullable", "rename"]))
        if what == "drop":
            asked["drop"].append(column.name)
            model.columns.remove(column)
        elif what == "widen" and column.type in WIDER:
            wider = data.draw(st.sampled_from(WIDER[column.type]))
            asked["widen"][column.name] = column.type = wider
        elif what == "nullable":
            asked["nullable"].append(column.name)
            column.nullable = True
        elif what == "rename" and (free := model.free_names()):
            new = data.draw(st.sampled_from(free))
            if new not in asked["drop"]:
                asked["rename"][column.name] = column.name = new
    added, defaults = [], {}
    free = [name for name in model.free_names() if name not in asked["rename"]]
    names = st.lists(st.sampled_from(free), unique=True, max_size=2) if free else st.just([])
    for name in data.draw(names):
        kind = data.draw(st.sampled_from([*VALUES, NESTED]))
        nullable = kind == NESTED or data.draw(st.booleans())
        column = model.new_column(name, kind, nullable=nullable)
        if not nullable or (kind != NESTED and data.draw(st.booleans())):
            column.default = defaults[name] = data.draw(values_of(kind))
        model.columns.append(column)
        added.append(pa.field(name, kind, nullable))
    return {**asked, "add": added, "defaults": defaults}
