"""Questions of every kind to a table, and what plain Python answers."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from sleeper import Table
from sleeper.model.schema import Primitive, Schema
from tests.random_tables.random_values import ValueSource
from tests.random_tables.table_model import Row, comparable_rows


def check_answers(pick: Random, table: Table, source: ValueSource, rows: list[Row]) -> None:
    """Ask for everything, keys, prefixes and ranges; compare each answer with `rows`.

    Args:
        pick: Where chance comes from.
        table: The table.
        source: Where keys come from that the table may not have.
        rows: What is in it, in key order.
    """
    schema = table.schema
    names = schema.row_key_names

    def key_of(row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in names)

    assert table.query().count() == len(rows)
    _compare(pick, table, {}, rows)
    absent = [tuple(source.key(each.type) for each in schema.row_keys) for _ in range(3)]
    some = [*map(key_of, pick.sample(rows, min(3, len(rows)))), *absent[:2]]
    for key in some:
        asked = key[0] if len(key) == 1 and pick.random() < 0.5 else key
        _compare(pick, table, {"key": asked}, [row for row in rows if key_of(row) == key])
    many = {*map(key_of, pick.sample(rows, min(40, len(rows)))), *absent}
    keys: list[Any] = pick.sample(sorted(many), len(many))
    if len(names) == 1:
        keys = [key for (key,) in keys]
    _compare(pick, table, {"keys": keys}, [row for row in rows if key_of(row) in many])
    if len(names) > 1:
        prefix = some[0][: pick.randrange(1, len(names))]
        found = [row for row in rows if key_of(row)[: len(prefix)] == prefix]
        _compare(pick, table, {"key": dict(zip(names, prefix, strict=False))}, found)
    for each in schema.row_keys:
        if each.type in (Primitive.STRING, Primitive.BYTES):
            _check_prefix(pick, table, each.name, source.key(each.type), rows)
    for count in (1, 1, pick.choice((2, 30))):
        _check_ranges(pick, table, source, rows, count)


def _check_prefix(pick: Random, table: Table, name: str, absent: Any, rows: list[Row]) -> None:
    """Ask for the values of a field that begin as one of them does, or as none may."""
    value = pick.choice(rows)[name] if rows and pick.random() < 0.8 else absent
    start = value[: pick.randint(0, len(value))]
    found = [row for row in rows if row[name].startswith(start)]
    _compare(pick, table, {"prefix": {name: start}}, found)


def _check_ranges(
    pick: Random, table: Table, source: ValueSource, rows: list[Row], count: int
) -> None:
    requests = [random_request(pick, table.schema, source, rows) for _ in range(count)]
    found = [row for row in rows if any(inside(row, request) for request in requests)]
    asked = {"range": requests[0]} if count == 1 else {"regions": requests}
    _compare(pick, table, asked, found)


Request = dict[str, tuple[Any, bool, Any, bool]]


def random_request(pick: Random, schema: Schema, source: ValueSource, rows: list[Row]) -> Request:
    """A range of some row keys; its ends are keys that are there, or not."""
    request: Request = {}
    for each in pick.sample(schema.row_keys, pick.randint(1, len(schema.row_keys))):
        ends = [
            pick.choice(rows)[each.name] if rows and pick.random() < 0.7 else source.key(each.type)
            for _ in range(2)
        ]
        low, high = sorted(ends)
        low = None if pick.random() < 0.2 else low
        high = None if pick.random() < 0.2 else high
        request[each.name] = (low, pick.random() < 0.7, high, pick.random() < 0.3)
    return request


def inside(row: Row, request: Request) -> bool:
    for name, (low, with_low, high, with_high) in request.items():
        value = row[name]
        if low is not None and (value < low or (value == low and not with_low)):
            return False
        if high is not None and (value > high or (value == high and not with_high)):
            return False
    return True


def _compare(pick: Random, table: Table, asked: dict[str, Any], expected: list[Row]) -> None:
    """Ask, of all columns or some of them; compare rows, their order, and their number."""
    schema = table.schema
    names = [*schema.columns]
    columns = None
    if pick.random() < 0.5:
        columns = names = pick.sample(names, pick.randint(1, len(names)))
    found = table.query(**asked, columns=columns).to_pylist()
    wanted = [{name: row[name] for name in names} for row in expected]
    assert Counter(comparable_rows(found)) == Counter(comparable_rows(wanted)), asked
    limit = pick.choice((0, 1, len(expected) // 2, len(expected), len(expected) + 1))
    first = table.query(**asked, columns=columns, limit=limit).to_pylist()
    assert len(first) == min(limit, len(expected)), (asked, limit)
    assert Counter(comparable_rows(first)) <= Counter(comparable_rows(found)), (asked, limit)
    keys = [name for name in schema.key_names if name in names]
    if len(keys) == len(schema.key_names):
        in_order = [tuple(row[name] for name in keys) for row in expected]
        assert [tuple(row[name] for name in keys) for row in found] == in_order, asked
        assert [tuple(row[name] for name in keys) for row in first] == in_order[:limit], asked
    unordered = table.query(**asked, columns=columns, ordered=False).to_pylist()
    assert Counter(comparable_rows(unordered)) == Counter(comparable_rows(wanted)), asked
    assert table.count(**asked) == len(expected), asked
