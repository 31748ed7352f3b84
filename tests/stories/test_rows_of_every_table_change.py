"""Rows are deleted, replaced and purged in each kind of table (rules DEL-1 to DEL-4).

Each verb meets age-off, sums, a function of the user's, several row keys and sort keys. What is
expected is made of lists of dicts: rows as they were added, of which some have gone, and what each
kind of table shows of those that are left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby, product
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import BadRequest

Row = dict[str, Any]
FUNCTION_TEXT = '''
import pyarrow as pa
import pyarrow.compute as pc


def without_odd(batches):
    """Leave out rows with an odd number."""
    for batch in batches:
        yield batch.filter(pc.equal(pc.bit_wise_and(batch["n"], 1), 0))
'''
FILTERS, FUNCTION = "sleeper.table.filters", "sleeper.table.function"
AGGREGATIONS = "sleeper.table.aggregations"
SOON = 4_000_000_000_000
"""A time in milliseconds that is not too old; 1 is."""


@dataclass(frozen=True)
class Kind:
    """A kind of table.

    Attributes:
        row_keys, sort_keys, properties: The table's.
        shown: What readers see of the rows that were added, which are in key order.
        takes_upserts: Whether rows can be replaced.
    """

    row_keys: tuple[str, ...] = ("k",)
    sort_keys: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    shown: Callable[[list[Row]], list[Row]] = lambda rows: rows
    takes_upserts: bool = True

    def key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.row_keys)

    def whole_key(self, row: Row) -> tuple[Any, ...]:
        return (*self.key(row), *(row[name] for name in self.sort_keys))


def young(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["at"] == SOON]


def sums(rows: list[Row]) -> list[Row]:
    groups = [[*group] for _, group in groupby(rows, key=lambda row: row["k"])]
    return [{**group[0], "n": sum(row["n"] for row in group)} for group in groups]


def young_sums(rows: list[Row]) -> list[Row]:
    return sums(young(rows))


def even(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["n"] % 2 == 0]


SUMS = {AGGREGATIONS: "min(j), min(at), sum(n)"}
AGE = {FILTERS: "ageOff(at,3600000)"}
KINDS = {
    "plain": Kind(),
    "age-off": Kind(properties=AGE, shown=young),
    "sums": Kind(properties=SUMS, shown=sums, takes_upserts=False),
    "age-off and sums": Kind(properties={**AGE, **SUMS}, shown=young_sums, takes_upserts=False),
    "a function": Kind(
        properties={FUNCTION: "rows_that_stay:without_odd"}, shown=even, takes_upserts=False
    ),
    "several row keys": Kind(row_keys=("k", "j")),
    "sort keys": Kind(sort_keys=("j",)),
    "several row keys, sort keys and age-off": Kind(
        row_keys=("k", "j"), sort_keys=("n",), properties=AGE, shown=young
    ),
}
DELETIONS = ("few keys", "many keys", "a range", "a purge")
UPSERTS = ("an upsert of few rows", "an upsert of many rows")
CASES = [
    (name, verb)
    for name, verb in product(KINDS, (*DELETIONS, *UPSERTS))
    if verb in DELETIONS or KINDS[name].takes_upserts
]
MANY = 1_100
"""More keys than one entry has."""


class Model:
    """A table of some kind, and all rows that were added to it and did not go."""

    def __init__(self, kind, table):
        self.kind, self.table, self.rows = kind, table, []

    def new_rows(self, keys, n=0):
        """Two rows of each key, and of each whole key one; some are old, some odd."""
        return [
            {"k": f"key-{k:05}", "j": j, "at": 1 if (k + n) % 3 == 0 else SOON, "n": n + k % 4}
            for k in keys
            for j in (0, 1)
        ]

    def ingest(self, rows):
        self.table.ingest(rows)
        self.rows += rows

    def go(self, keys):
        self.rows = [row for row in self.rows if self.kind.key(row) not in keys]

    def upsert(self, rows):
        new = {self.kind.whole_key(row): row for row in rows}
        self.table.upsert([*new.values()])
        kept = self.kind.shown([*new.values()])  # a row that is left out replaces nothing
        self.go({self.kind.key(row) for row in kept})
        self.rows += kept

    def shown(self):
        return self.kind.shown(sorted(self.rows, key=self.kind.whole_key))

    def check(self):
        """Each reader sees the rows of the list."""
        table, wanted = self.table, self.shown()
        assert in_order(table.query().to_pylist()) == in_order(wanted)
        assert table.count() == len(wanted)
        total = table.sql("SELECT count(*) AS c, sum(n) AS s FROM t").to_pylist()[0]
        assert (total["c"], total["s"] or 0) == (len(wanted), sum(row["n"] for row in wanted))
        for k in (f"key-{n:05}" for n in (0, 3, 7, 1_500)):
            of_key = in_order(row for row in wanted if row["k"] == k)
            assert in_order(table.query(range={"k": (k, f"{k}!")}).to_pylist()) == of_key
            asked = sorted({self.kind.key(row) for row in self.new_rows([int(k[4:])])})
            plain = [key if len(key) > 1 else key[0] for key in asked]
            assert in_order(table.query(keys=plain).to_pylist()) == of_key
            found = [row for key in plain for row in table.query(key=key).to_pylist()]
            assert in_order(found) == of_key


def in_order(rows):
    return sorted(rows, key=repr)


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Make a table of two leaves, of a kind, and its model with rows in two files of each."""
    (tmp_path / "rows_that_stay.py").write_text(FUNCTION_TEXT)
    monkeypatch.syspath_prepend(tmp_path)
    instance = sleeper.connect(tmp_path / "instance", create=True, allow_functions=["*"])
    schema = pa.schema(
        [
            pa.field("k", pa.string(), nullable=False),
            pa.field("j", pa.int64(), nullable=False),
            pa.field("at", pa.int64(), nullable=False),
            pa.field("n", pa.int64(), nullable=False),
        ]
    )

    def made(kind):
        table = instance.create_table(
            "t",
            schema,
            row_keys=[*kind.row_keys],
            sort_keys=[*kind.sort_keys],
            split_points=["key-00010"],
            properties=kind.properties,
        )
        model = Model(kind, table)
        model.ingest(model.new_rows(range(2_000)))
        model.ingest(model.new_rows(range(5, 15), n=6))
        return model

    return made


@pytest.mark.parametrize(("name", "verb"), CASES, ids=[" - ".join(each) for each in CASES])
def test_rows_that_go_are_seen_by_no_reader_and_others_by_all(make, name, verb):
    """
    Given rows of keys that go and stay in several files, of which age-off or a function hides
    some; and rows of the same keys that are added later.
    """
    kind = KINDS[name]
    model = make(kind)
    table = model.table
    gone = range(MANY) if "many" in verb else range(3, 9)
    if verb in UPSERTS:
        model.upsert(model.new_rows(gone, n=20))
    elif verb == "a range":
        table.delete(range={"k": ("key-00003", "key-00009")})
        model.go({kind.key(row) for row in model.new_rows(gone)})
    else:
        keys = sorted({kind.key(row) for row in model.new_rows(gone)})
        plain = [key if len(key) > 1 else key[0] for key in keys]
        if verb == "a purge":
            assert table.purge(keys=plain).finished
        else:
            table.delete(keys=plain)
        model.go({*keys})

    model.check()
    model.ingest(model.new_rows([3, 10, 3_000], n=40))
    model.check()
    table.compact(all_files=True)
    model.check()
    assert table.state().deletes == ()
    assert table.verify().findings == ()


@pytest.mark.parametrize("verb", [*DELETIONS, *UPSERTS])
def test_rows_that_age_off_hides_go_as_well(make, verb):
    """Given a filter that is taken away later, no hidden row of a key that went comes back."""
    model = make(KINDS["age-off"])
    table = model.table
    gone = range(MANY) if "many" in verb else range(3, 9)
    keys = [f"key-{k:05}" for k in gone]
    if verb in UPSERTS:
        model.upsert(model.new_rows(gone, n=20))
    elif verb == "a purge":
        table.purge(keys=keys)
    elif verb == "a range":
        table.delete(range={"k": ("key-00003", "key-00009")})
    else:
        table.delete(keys=keys)

    table.set_properties({FILTERS: None})

    found = table.query(keys=keys).to_pylist()
    if verb in UPSERTS:
        replaced = {row["k"] for row in young(model.new_rows(gone, n=20))}
        found = [row for row in found if row["k"] in replaced]
        assert {row["n"] // 20 for row in found} == {1}
    assert len(found) == (len(replaced) if verb in UPSERTS else 0)


@pytest.mark.parametrize("name", [name for name in KINDS if not KINDS[name].takes_upserts])
def test_an_upsert_of_a_table_that_unites_rows_is_refused(make, name):
    """Given sums or a function, the error says what to do instead, and nothing is changed."""
    model = make(KINDS[name])

    with pytest.raises(BadRequest, match=r"unites rows of equal keys.*Use ingest\(\)"):
        model.table.upsert(model.new_rows([3]))

    model.check()
