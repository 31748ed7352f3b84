"""Sixty changes of columns, and what each reader has after them (rules COL-1 to COL-8).

Each kind of change meets each kind of table, with files that were written, compacted, split or
left alone at different times. What is expected is kept in lists of dicts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

import sleeper
from sleeper.errors import QueryInvalid
from sleeper.interfaces.rest.app import make_app

TEXT, INT, LONG = pa.string(), pa.int32(), pa.int64()
FLOAT, DOUBLE, CENTS, MONEY = pa.float32(), pa.float64(), pa.decimal128(5, 2), pa.decimal128(12, 2)
COLUMNS = (
    pa.field("n", INT, nullable=False),
    pa.field("f", FLOAT, nullable=False),
    pa.field("d", CENTS, nullable=False),
    pa.field("t", TEXT, nullable=False),
)
"""The first columns beside the keys."""


def added(name: str, kind: pa.DataType = LONG, default: Any = None) -> dict[str, Any]:
    """A change that adds a column, which may be null if it has no default."""
    defaults = {} if default is None else {name: default}
    return {"add": [pa.field(name, kind, default is None)], "defaults": defaults}


CHANGES: dict[str, list[dict[str, Any]]] = {
    "a column that may be null is added": [added("x")],
    "a column with a default is added": [added("x", LONG, 7)],
    "a column is dropped": [{"drop": ["n"]}],
    "a column is renamed": [{"rename": {"n": "m"}}],
    "an int is widened": [{"widen": {"n": LONG}}],
    "a float is widened": [{"widen": {"f": DOUBLE}}],
    "a decimal is widened": [{"widen": {"d": MONEY}}],
    "a column may be null": [{"nullable": ["n"]}],
    "a column is dropped and added again at once": [{"drop": ["n"], **added("n", INT)}],
    "a column is dropped, and later added again": [{"drop": ["n"]}, added("n", DOUBLE, 0.5)],
    "columns exchange their names": [{"rename": {"n": "f", "f": "n"}}],
    "a column is added, renamed and dropped": [
        added("x", LONG, 7),
        {"rename": {"x": "y"}},
        {"drop": ["y"]},
    ],
    "another column takes a name": [{"rename": {"n": "m"}}, added("n", INT, 3)],
    "a column is added, widened, and may be null": [
        added("x", INT, 7),
        {"widen": {"x": LONG}},
        {"nullable": ["x"]},
    ],
    "a column comes back twice": [
        {"drop": ["n"]},
        added("n", INT, 1),
        {"drop": ["n"]},
        added("n", INT, 2),
    ],
}
KINDS = ("one row key", "two row keys", "a sort key", "aggregations")
MOMENTS = ("left alone", "compacted before", "compacted after", "split after")
CASES = [
    (change, kind, MOMENTS[(place + other) % len(MOMENTS)])
    for (place, change), (other, kind) in product(enumerate(CHANGES), enumerate(KINDS))
]
AGGREGATIONS = "sleeper.table.aggregations"


def value_of(column: pa.Field, number: int) -> Any:
    """A value that a row of some number has in a column."""
    if column.nullable and number % 5 == 0:
        return None
    if column.type == TEXT:
        return f"text {number}"
    if column.type in (CENTS, MONEY):
        return Decimal(f"{number / 4 + (10**6 if column.type == MONEY else 0):.2f}")
    large = {LONG: 2**40, DOUBLE: 2.0**60}.get(column.type, 0)
    return number / 4 + large if column.type in (FLOAT, DOUBLE) else number + large


@dataclass
class Model:
    """Columns and rows of a table, as lists."""

    kind: str
    columns: list[pa.Field]
    rows: list[dict[str, Any]] = field(default_factory=list)
    made: int = 0

    @property
    def row_keys(self) -> list[str]:
        return ["k", "j"] if self.kind == "two row keys" else ["k"]

    @property
    def sort_keys(self) -> list[str]:
        return ["j"] if self.kind in ("a sort key", "aggregations") else []

    @property
    def schema(self) -> pa.Schema:
        keys = [pa.field(name, LONG, nullable=False) for name in self.row_keys + self.sort_keys]
        return pa.schema([*keys, *self.columns])

    @property
    def properties(self) -> dict[str, str]:
        """How rows of a key are united, if they are."""
        if self.kind != "aggregations":
            return {}
        pairs = ((each.name, "last" if self.is_of_last(each) else "max") for each in self.columns)
        return {AGGREGATIONS: ",".join(f"{how}({name})" for name, how in pairs)}

    def is_of_last(self, column: pa.Field) -> bool:
        return column.nullable or column.type == TEXT

    def new_rows(self) -> list[dict[str, Any]]:
        """Twelve more rows, of ten keys."""
        numbers = range(self.made, self.made + 12)
        self.made += 12
        keys = [{"k": n % 10, "j": n}.items() for n in numbers]
        found = [
            {name: value for name, value in key if name in self.schema.names}
            | {each.name: value_of(each, n) for each in self.columns}
            for key, n in zip(keys, numbers, strict=True)
        ]
        self.rows += found
        return found

    def alter(self, change: dict[str, Any]) -> None:
        """Change columns, and what rows have in them."""
        drop, rename = change.get("drop", []), change.get("rename", {})
        widen, nullable = change.get("widen", {}), change.get("nullable", [])
        add, defaults = change.get("add", []), change.get("defaults", {})
        self.columns = [
            pa.field(
                rename.get(each.name, each.name),
                widen.get(each.name, each.type),
                each.nullable or each.name in nullable,
            )
            for each in self.columns
            if each.name not in drop
        ] + add
        self.rows = [
            {rename.get(name, name): value for name, value in row.items() if name not in drop}
            | {each.name: defaults.get(each.name) for each in add}
            for row in self.rows
        ]

    def shown(self) -> list[dict[str, Any]]:
        """The rows as readers have them, in an order of their own."""
        if self.kind != "aggregations":
            return in_order(self.rows)
        of_keys: dict[int, list[dict[str, Any]]] = {}
        for row in self.rows:  # the last one has the greatest sort key
            of_keys.setdefault(row["k"], []).append(row)
        largest = [each.name for each in self.columns if not self.is_of_last(each)]
        return in_order(
            [
                rows[-1] | {name: max(row[name] for row in rows) for name in largest}
                for rows in of_keys.values()
            ]
        )


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["k"], repr(sorted(row.items()))))


@pytest.fixture(scope="module")
def instance(tmp_path_factory):
    with sleeper.connect(tmp_path_factory.mktemp("cases") / "instance", create=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def served(instance):
    """Ask a server for the rows of a query."""
    with TestClient(make_app(instance), base_url="http://localhost") as client:
        yield lambda table, **body: client.post(f"/sleeper/tables/{table.name}/query", json=body)


@pytest.mark.parametrize(
    ("change", "kind", "moment"), CASES, ids=[" - ".join(each) for each in CASES]
)
def test_every_reader_has_the_rows_of_the_model(instance, served, tmp_path, change, kind, moment):
    """Given rows of before and after each step, and of a version before the first one."""
    model = Model(kind, [*COLUMNS])
    table = instance.create_table(
        f"t{CASES.index((change, kind, moment))}",
        model.schema,
        row_keys=model.row_keys,
        sort_keys=model.sort_keys,
        properties=model.properties,
    )
    table.ingest(pa.Table.from_pylist(model.new_rows(), schema=model.schema))
    then, old_schema, old_rows = table.refresh(), model.schema, model.shown()

    for step in CHANGES[change]:
        if moment == "compacted before":
            table.compact(all_files=True)
        model.alter(step)
        table.alter(**step, properties=model.properties)
        table.ingest(pa.Table.from_pylist(model.new_rows(), schema=model.schema))
    if moment == "compacted after":
        table.compact(all_files=True)
    elif moment == "split after":
        table.set_properties({"sleeper.table.partition.splitting.threshold": "4"})
        assert table.split_partitions()

    check_readers(table, model, tmp_path / "out", served)
    if model.properties and {*model.schema.names} != {*old_schema.names}:
        with pytest.raises(QueryInvalid, match="fit its columns of now"):
            table.query(as_of=then)
    else:
        old = table.query(as_of=then).to_arrow()
        assert old.schema.equals(old_schema)
        assert in_order(old.to_pylist()) == old_rows
    assert table.verify().findings == ()


def check_readers(table, model, folder, served):
    """Check that every reader has the columns and rows of the model, and no others."""
    expected, names = model.shown(), model.schema.names
    whole = table.query().to_arrow()
    assert whole.schema.equals(model.schema)
    assert in_order(whole.to_pylist()) == expected
    assert whole["k"].to_pylist() == sorted(row["k"] for row in expected)
    assert in_order(table.query(ordered=False).to_pylist()) == expected
    assert table.count() == len(expected)
    row = expected[0]
    key = {name: row[name] for name in model.row_keys}
    found = table.query(key if len(key) > 1 else row["k"]).to_pylist()
    assert in_order(found) == [each for each in expected if key.items() <= each.items()]
    keys = [tuple(each[name] for name in key) for each in expected]
    asked = sorted({each if len(each) > 1 else each[0] for each in keys})
    assert in_order(table.query(keys=asked).to_pylist()) == expected
    some = [each for each in expected if 2 <= each["k"] < 5]
    assert in_order(table.query(range={"k": (2, 5)}).to_pylist()) == some
    assert in_order(table.query(where="k >= 2 AND k < 5").to_pylist()) == some
    assert in_order(table.sql(f'SELECT * FROM "{table.name}"').to_pylist()) == expected
    assert [each["k"] for each in table.query(limit=3).to_pylist()] == [
        each["k"] for each in expected[:3]
    ]
    for name in names:
        alone = table.query(columns=[name]).to_arrow()
        assert alone.schema.names == [name]
        values = sorted(map(repr, alone[name].to_pylist()))
        assert values == sorted(repr(each[name]) for each in expected)
        met = table.query(where=f"{name} IS NULL", columns=["k"]).to_pylist()
        assert len(met) == sum(each[name] is None for each in expected)
    frame = table.query().to_pandas()
    assert (list(frame.columns), len(frame)) == (names, len(expected))
    table.export(folder)
    assert in_order(pq.read_table(folder).to_pylist()) == expected
    answer = served(table, format="arrow")
    with pa.ipc.open_stream(answer.content) as stream:
        assert in_order(stream.read_all().to_pylist()) == expected
