"""A whole instance as lists of rows: what every operation must come to, said once more.

Slow, small and obvious. A table is the list of its rows at each of its transaction numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

RETENTION = timedelta(days=30)
Row = tuple[Any, ...]


def moment(day: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day, microseconds=day)


LONGS = [-(2**63), -7, -1, 0, 1, 2, 3, 5, 2**63 - 1]
INTS = [-(2**31), -1, 0, 1, 2**31 - 1]
TEXTS = ["", "\0", "a", "a\0", "aa", "b", "é", "\uffff", "\U0001f600"]
BYTES = [b"", b"\0", b"a", b"a\0", b"\x7f", b"\x80", b"\xff", b"\xff\xff"]
MOMENTS = [moment(day) for day in (-800, -1, 0, 1, 40)]
DATES = [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2026, 11, 21)]


def null_or(strategy):
    return st.none() | strategy


@dataclass(frozen=True)
class Kind:
    """A kind of table: its columns, how many of them are keys, and values to draw from."""

    name: str
    arrow_schema: pa.Schema
    row_keys: int
    sort_keys: int
    domains: tuple[list[Any], ...]
    values: tuple[st.SearchStrategy[Any], ...]

    @property
    def names(self) -> list[str]:
        return self.arrow_schema.names

    @property
    def key_names(self) -> list[str]:
        return self.names[: self.row_keys]

    @property
    def order_wide(self) -> int:
        return self.row_keys + self.sort_keys

    def rows(self) -> st.SearchStrategy[Row]:
        keys = (st.sampled_from(domain) for domain in self.domains)
        return st.tuples(*keys, *self.values)


def columns(*fields: tuple[str, pa.DataType, bool]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable) for name, kind, nullable in fields])


LIST = pa.list_(pa.field("element", pa.int32(), False))
MAP = pa.map_(pa.string(), pa.field("value", pa.int64(), False))
KINDS = (
    Kind(
        "numbers",
        columns(("k", pa.int64(), False), ("s", pa.int32(), False), ("v", pa.string(), True)),
        1,
        1,
        (LONGS, INTS),
        (null_or(st.sampled_from(TEXTS)),),
    ),
    Kind(
        "texts and numbers",
        columns(
            ("k", pa.string(), False),
            ("l", pa.int32(), False),
            ("items", LIST, True),
            ("d", pa.float64(), False),
        ),
        2,
        0,
        (TEXTS, INTS),
        (null_or(st.lists(st.integers(0, 3), max_size=3)), st.sampled_from([0.5, -1.0])),
    ),
    Kind(
        "bytes",
        columns(
            ("k", pa.binary(), False),
            ("s", pa.string(), False),
            ("yes", pa.bool_(), True),
            ("m", MAP, True),
        ),
        1,
        1,
        (BYTES, TEXTS),
        (
            null_or(st.booleans()),
            null_or(st.sampled_from([[], [("a", 1)], [("a", 1), ("b", -2)]])),
        ),
    ),
    Kind(
        "times",
        columns(
            ("at", pa.timestamp("us", "UTC"), False),
            ("day", pa.date32(), False),
            ("n", pa.int64(), False),
            ("sum", pa.decimal128(9, 2), True),
        ),
        2,
        1,
        (MOMENTS, DATES, LONGS),
        (null_or(st.sampled_from([Decimal("0.00"), Decimal("-7.25")])),),
    ),
)


@dataclass
class Job:
    number: int
    keep_until: datetime
    rows: int


@dataclass
class TableModel:
    """One table: its rows at every transaction, and the jobs it remembers.

    Attributes:
        versions: Rows by transaction number.
        kinds: Its kinds, by the transaction from which on its columns are so.
        readable_from: The first version whose files have not been deleted.
        replaced: Whether a compaction has left files that wait to be deleted.
    """

    kind: Kind
    table_id: str
    versions: dict[int, list[Row]] = field(default_factory=lambda: {1: []})
    kinds: dict[int, Kind] = field(default_factory=dict)
    number: int = 1
    readable_from: int = 1
    replaced: bool = False
    jobs: dict[str, Job] = field(default_factory=dict)
    online: bool = True
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> list[Row]:
        return self.versions[self.number]

    def advance(self, rows: list[Row] | None = None) -> None:
        """One transaction further; without rows they stay as they are."""
        now = self.rows if rows is None else rows
        self.number += 1
        self.versions[self.number] = now

    def kind_at(self, number: int) -> Kind:
        """The columns that a version has."""
        before = [first for first in self.kinds if first <= number]
        if before:
            return self.kinds[max(before)]
        return self.kinds.get(0, self.kind)

    def alter(self, kind: Kind, change: Callable[[Row], Row]) -> None:
        """Have other columns; each row becomes one of these."""
        self.kinds.setdefault(0, self.kind)
        self.advance([change(row) for row in self.rows])
        self.kind = self.kinds[self.number] = kind

    def catch_up(self, number: int) -> None:
        """Transactions up to this one were committed, none of which changed a row."""
        assert number >= self.number
        while self.number < number:
            self.advance()

    def find_job(self, job_id: str | None) -> Job | None:
        """A job whatever its age: no test here makes entries enough to have one forgotten."""
        return self.jobs.get(job_id) if job_id is not None else None

    def ingest(self, rows: list[Row], job_id: str | None, at: datetime) -> bool:
        """Add rows. False when the job was done before, so that nothing happens."""
        if self.find_job(job_id) is not None:
            return False
        if not rows and job_id is None:
            return True
        self.advance([*self.rows, *rows])
        if job_id is not None:
            self.jobs[job_id] = Job(self.number, at + RETENTION, len(rows))
        return True

    def reinitialise(self, *, has_files: bool, new_tree: bool) -> None:
        if new_tree or has_files or self.jobs:
            self.advance([])
        self.jobs, self.replaced = {}, False
        self.readable_from = self.number


@dataclass(frozen=True)
class Question:
    """A query: what it is asked by, and which rows answer it."""

    asked: dict[str, Any]
    wanted: Callable[[Row], bool]


def inside(value: Any, asked: tuple[Any, bool, Any, bool]) -> bool:
    low, low_in, high, high_in = asked
    above = low is None or low < value or (low_in and low == value)
    below = high is None or value < high or (high_in and value == high)
    return above and below


@st.composite
def regions(draw, kind: Kind) -> dict[str, tuple[Any, bool, Any, bool]]:
    """Ranges of some row keys, every limit and its belonging said."""
    region = {}
    for place in draw(st.sets(st.integers(0, kind.row_keys - 1), max_size=kind.row_keys)):
        values = st.sampled_from(kind.domains[place])
        low, high = sorted(draw(st.tuples(values, values)))
        low, high = draw(
            st.sampled_from([(low, high), (low, high), (None, high), (low, None), (None, None)])
        )
        region[kind.names[place]] = (low, draw(st.booleans()), high, draw(st.booleans()))
    return region


def in_region(kind: Kind, region: dict[str, Any], row: Row) -> bool:
    return all(inside(row[kind.names.index(name)], asked) for name, asked in region.items())


def as_short(asked: tuple[Any, bool, Any, bool]) -> tuple[Any, ...]:
    """`[min, max)` is what two values alone mean."""
    low, low_in, high, high_in = asked
    return (low, high) if low_in and not high_in else asked


@st.composite
def questions(draw, kind: Kind, rows: list[Row]) -> Question:
    """A query by one of the ways there are, for keys that are there or not."""
    whole_key = st.tuples(*(st.sampled_from(kind.domains[n]) for n in range(kind.row_keys)))
    if rows:
        whole_key |= st.sampled_from([row[: kind.row_keys] for row in rows])
    way = draw(st.sampled_from(["all", "key", "prefix", "names", "keys", "range", "regions"]))
    if way in ("key", "prefix"):
        key = draw(whole_key)[: 1 if way == "prefix" else kind.row_keys]
        asked = key[0] if len(key) == 1 and draw(st.booleans()) else key
        return Question({"key": asked}, lambda row: row[: len(key)] == key)
    if way == "names":
        place = draw(st.integers(0, kind.row_keys - 1))
        value = draw(st.sampled_from(kind.domains[place]))
        return Question({"key": {kind.names[place]: value}}, lambda row: row[place] == value)
    if way == "keys":
        keys = draw(st.lists(whole_key, max_size=6))
        plain = [key[0] for key in keys] if kind.row_keys == 1 else keys
        return Question({"keys": plain}, lambda row: row[: kind.row_keys] in keys)
    if way == "range":
        region = draw(regions(kind))
        short = {name: as_short(asked) for name, asked in region.items()}
        return Question({"range": short}, lambda row: in_region(kind, region, row))
    if way == "regions":
        some = draw(st.lists(regions(kind), min_size=1, max_size=3))
        return Question({"regions": some}, lambda row: any(in_region(kind, r, row) for r in some))
    return Question({}, lambda row: True)


@dataclass(frozen=True)
class Alteration:
    """A change of columns: what it is asked by, the kind that comes of it, and each row of it."""

    asked: dict[str, Any]
    kind: Kind
    change: Callable[[Row], Row]


@st.composite
def alterations(draw, kind: Kind) -> Alteration:
    """Add a column, which may have a default, or drop or rename one; names come back."""
    known = [*kind.arrow_schema][kind.order_wide :]
    free = [name for name in ("v", "d", "x", "y") if name not in kind.names]
    ways = [*(["add"] if free else []), *(["drop"] if known else [])]
    ways += ["rename"] if known and free else []
    way = draw(st.sampled_from(ways))
    if way == "add":
        default = draw(st.none() | st.integers(0, 3))
        column = pa.field(draw(st.sampled_from(free)), pa.int64(), default is None)
        value = st.integers(0, 3)
        wider = replace(
            kind,
            arrow_schema=kind.arrow_schema.append(column),
            values=(*kind.values, null_or(value) if default is None else value),
        )
        asked = {"add": [column], "defaults": {} if default is None else {column.name: default}}
        return Alteration(asked, wider, lambda row: (*row, default))
    column = draw(st.sampled_from(known))
    place = kind.names.index(column.name)
    if way == "rename":
        name = draw(st.sampled_from(free))
        renamed = kind.arrow_schema.set(place, column.with_name(name))
        asked = {"rename": {column.name: name}}
        return Alteration(asked, replace(kind, arrow_schema=renamed), lambda row: row)
    values = [each for n, each in enumerate(kind.values, kind.order_wide) if n != place]
    fewer = replace(kind, arrow_schema=kind.arrow_schema.remove(place), values=(*values,))
    return Alteration({"drop": [column.name]}, fewer, lambda row: (*row[:place], *row[place + 1 :]))


def deletions(kind: Kind, rows: list[Row]) -> st.SearchStrategy[Question]:
    """What a deletion is asked by: a question that names some keys."""
    return questions(kind, rows).filter(lambda question: any(question.asked.values()))
