"""The operations whose requests are counted, with the numbers that the tests expect.

To change a number, change it here; `make docs` writes the table of docs/buckets.md from this list.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

import pyarrow.parquet as pq

import sleeper
from tests.requests.counting_s3 import DOLLARS_A_READ, DOLLARS_A_WRITE, Requests
from tests.requests.world import LARGE, LEAVES, ROWS, SCHEMA, World, key, rows

_DELAYS_S: Final = (0.02, 0.06, 0.2, 1.0)
"""How long requests wait, in each attempt: a loaded machine may send late what it sends at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation on a bucket, and the requests that it may make: exactly so many.

    Attributes:
        name: What it is, in the table of docs/buckets.md.
        prepare: Does what comes before, uncounted, and returns what is counted.
        requests: Its requests.
        round_trips: The longest chain of requests that are made one after the other.
        writes: How many requests have the price of a write: PUT, POST and LIST.
        read_bytes_max: The most bytes that it may receive.
    """

    name: str
    prepare: Callable[[World], Callable[[], Any]]
    requests: int
    round_trips: int
    writes: int = 0
    read_bytes_max: int = 1_000_000

    @property
    def expected(self) -> tuple[int, int, int]:
        """Requests, round trips, and writes."""
        return self.requests, self.round_trips, self.writes

    @property
    def dollars(self) -> float:
        """What Amazon charges for it: list prices for us-east-1, November 2026."""
        return self.writes * DOLLARS_A_WRITE + (self.requests - self.writes) * DOLLARS_A_READ

    def measured(self, world: World) -> Requests:
        """Do it, and return its requests; again if they were sent later than on an idle machine."""
        for delay_s in _DELAYS_S:
            counted = self.prepare(world)
            world.server.delay_s = delay_s
            world.server.take()
            counted()
            world.server.delay_s = 0.0
            seen = world.server.take()
            if found(seen) == self.expected:
                break
        return seen


def found(seen: Requests) -> tuple[int, int, int]:
    """Return the number of requests, of round trips, and of writes."""
    return len(seen), seen.round_trips, seen.writes


def _open(kind: str) -> Callable[[World], Callable[[], Any]]:
    def prepare(world: World) -> Callable[[], Any]:
        world.make(kind)

        def run() -> None:
            with sleeper.connect(world.url) as opened:
                assert opened.table(kind).query(key=key(3)).to_pylist()

        return run

    return prepare


def _elsewhere(
    prepare: Callable[[World], Callable[[], Any]],
) -> Callable[[World], Callable[[], Any]]:
    return lambda world: prepare(world.elsewhere)


def _look_up(
    number: int, *, kind: str = "one leaf", is_there: bool = True, max_age: float | None = None
) -> Callable[[World], Callable[[], Any]]:
    def prepare(world: World) -> Callable[[], Any]:
        table, asked = world.opened(kind), key(number) + ("" if is_there else "x")

        def run() -> None:
            assert len(table.query(key=asked, max_age=max_age).to_pylist()) == is_there

        return run

    return prepare


def _first_look_up_of_all(kind: str, numbers: range) -> Callable[[World], Callable[[], Any]]:
    def prepare(world: World) -> Callable[[], Any]:
        table, asked = world.table(kind), [key(number) for number in numbers]
        table.refresh()
        return lambda: table.query(keys=asked).to_pylist()

    return prepare


def _first_look_up(kind: str, number: int) -> Callable[[World], Callable[[], Any]]:
    def prepare(world: World) -> Callable[[], Any]:
        table = world.table(kind)
        table.refresh()
        return lambda: table.query(key=key(number)).to_pylist()

    return prepare


def _look_up_all(kind: str, numbers: range) -> Callable[[World], Callable[[], Any]]:
    def prepare(world: World) -> Callable[[], Any]:
        table, asked = world.opened(kind), [key(number) for number in numbers]

        def run() -> None:
            assert table.query(keys=asked).to_arrow().num_rows == len(asked)

        run()
        return run

    return prepare


def _ingest_file(world: World) -> Callable[[], Any]:
    table = world.opened("leaf to write")
    body = BytesIO()
    pq.write_table(rows(range(1_000)), body)
    store = world.instance._context.objects
    store.put("input.parquet", body.getvalue())
    return lambda: table.ingest(f"{world.url}/input.parquet")


def _range(kind: str, begin: int, end: int) -> Callable[[World], Callable[[], Any]]:
    def prepare(world: World) -> Callable[[], Any]:
        table = world.opened(kind)
        return lambda: table.query(range={"key": (key(begin), key(end))}).to_pylist()

    return prepare


def _first_rows(kind: str, limit: int) -> Callable[[World], Callable[[], Any]]:
    def prepare(world: World) -> Callable[[], Any]:
        table = world.table(kind)
        table.refresh()
        return lambda: table.query(limit=limit).to_pylist()

    return prepare


def _first_range(kind: str, begin: int, end: int) -> Callable[[World], Callable[[], Any]]:
    def prepare(world: World) -> Callable[[], Any]:
        table = world.table(kind)
        table.refresh()
        return lambda: table.query(range={"key": (key(begin), key(end))}).to_pylist()

    return prepare


def _again(
    prepare_first: Callable[[World], Callable[[], Any]],
) -> Callable[[World], Callable[[], Any]]:
    def prepare(world: World) -> Callable[[], Any]:
        run = prepare_first(world)
        run()
        return run

    return prepare


def _delete(number: int) -> Callable[[World], Callable[[], Any]]:
    def prepare(world: World) -> Callable[[], Any]:
        table = world.opened("rows to delete")
        return lambda: table.delete(key=key(number))

    return prepare


def _look_up_deleted(number: int) -> Callable[[World], Callable[[], Any]]:
    def prepare(world: World) -> Callable[[], Any]:
        table = world.opened("rows to delete")
        table.delete(key=key(number))

        def run() -> None:
            assert not table.query(key=key(number)).to_pylist()

        return run

    return prepare


def _ingest(kind: str, numbers: range) -> Callable[[World], Callable[[], Any]]:
    def prepare(world: World) -> Callable[[], Any]:
        table = world.opened(kind)
        return lambda: table.ingest(rows(numbers))

    return prepare


def _compact(world: World) -> Callable[[], Any]:
    name = f"compacted {time.monotonic_ns()}"
    table = world.instance.create_table(name, SCHEMA, row_keys=["key"])
    for _ in range(2):
        table.ingest(rows(range(1_000)))
    return lambda: table.compact(all_files=True)


def _publish(name: str, *, is_first: bool = False) -> Callable[[World], Callable[[], Any]]:
    def prepare(world: World) -> Callable[[], Any]:
        made = f"published {time.monotonic_ns()}"
        table = world.instance.create_table(made, SCHEMA, row_keys=["key"])
        for number in range(1 if is_first else 2):
            table.ingest(rows(range(number * 1_000, (number + 1) * 1_000)))
            if number == 0 and not is_first:
                table.publish(name)
        return lambda: table.publish(name)

    return prepare


def _history(world: World) -> Callable[[], Any]:
    table = world.opened("log of 500")

    def run() -> None:
        assert len(table.history(50)) == 50

    return run


OPERATIONS: Final = (
    Operation(
        name="open an instance, a table and the first key",
        prepare=_open("one leaf"),
        requests=7,
        round_trips=3,
        writes=0,
    ),
    Operation(
        name="the same, with 39 entries in the log",
        prepare=_open("log of 39"),
        requests=7,
        round_trips=3,
        writes=0,
    ),
    Operation(
        name="the same, with 500 entries in the log",
        prepare=_open("log of 500"),
        requests=7,
        round_trips=3,
        writes=0,
    ),
    *(
        Operation(name=name, prepare=_elsewhere(_open(kind)), requests=requests, round_trips=3)
        for name, kind, requests in (
            ("the same on a server that is not Amazon's", "one leaf", 9),
            ("the same there, with 39 entries in the log", "log of 39", 9),
            ("the same there, with 1,000 entries in the log", "log of 1000", 9),
            ("the same there, with 20 files that may have the key", "20 files", 28),
        )
    ),
    Operation(
        name="key that is there, on a server that is not Amazon's",
        prepare=_elsewhere(_look_up(9_000)),
        requests=3,
        round_trips=1,
    ),
    Operation(
        name="ingest of one row, on a server that is not Amazon's",
        prepare=_elsewhere(_ingest("leaf to write", range(5, 6))),
        requests=8,
        round_trips=7,
        writes=3,
    ),
    Operation(name="key that is there", prepare=_look_up(9_000), requests=3, round_trips=1),
    Operation(
        name="key that is not", prepare=_look_up(9_000, is_there=False), requests=2, round_trips=1
    ),
    Operation(
        name="key that is there, within `max_age`",
        prepare=_look_up(9_000, max_age=600),
        requests=1,
        round_trips=1,
    ),
    Operation(
        name="key that is not, within `max_age`",
        prepare=_look_up(9_000, is_there=False, max_age=600),
        requests=0,
        round_trips=0,
    ),
    Operation(
        name="first key of an open table, in one of 20 files",
        prepare=_first_look_up("20 files", 9_000),
        requests=22,
        round_trips=1,
    ),
    Operation(
        name="key that is there, in one of 20 files",
        prepare=_look_up(9_000, kind="20 files"),
        requests=3,
        round_trips=1,
    ),
    Operation(
        name="64 keys of 64 leaves, in one file",
        prepare=_look_up_all("64 leaves", range(0, ROWS, ROWS // LEAVES)),
        requests=4,
        round_trips=2,
    ),
    Operation(
        name="100 keys of a file of 400,000 rows",
        prepare=_look_up_all("large file", range(0, LARGE, LARGE // 100)),
        requests=4,
        round_trips=2,
    ),
    Operation(
        name="64 keys of 16 leaves, in 16 files",
        prepare=_look_up_all("16 leaves", range(0, ROWS, ROWS // 64)),
        requests=34,
        round_trips=2,
    ),
    Operation(
        name="the same, the first look-up in these files",
        prepare=_first_look_up_of_all("16 leaves", range(0, ROWS, ROWS // 64)),
        requests=18,
        round_trips=1,
    ),
    Operation(
        name="range of 100 rows, the first of its file",
        prepare=_range("one leaf", 500, 600),
        requests=3,
        round_trips=1,
    ),
    Operation(
        name="range of 100 rows",
        prepare=_again(_range("one leaf", 500, 600)),
        requests=3,
        round_trips=1,
    ),
    Operation(
        name="range of 100 rows in 20 files, the first of them",
        prepare=_first_range("20 files", 500, 600),
        requests=42,
        round_trips=2,
    ),
    Operation(
        name="range of 100 rows in 20 files",
        prepare=_again(_range("20 files", 500, 600)),
        requests=22,
        round_trips=1,
    ),
    Operation(
        name="range over 60 leaves, the first of their one file",
        prepare=_first_range("64 leaves", 100, ROWS - 100),
        requests=4,
        round_trips=2,
    ),
    Operation(
        name="range over 14 leaves, the first of their 14 files",
        prepare=_first_range("16 leaves", ROWS // 16, ROWS - ROWS // 16),
        requests=30,
        round_trips=2,
    ),
    Operation(
        name="first 20 rows of a table of 16 leaves",
        prepare=_first_rows("16 leaves", 20),
        requests=4,
        round_trips=2,
    ),
    Operation(
        name="first 20 rows of 20 files",
        prepare=_first_rows("20 files", 20),
        requests=42,
        round_trips=2,
    ),
    Operation(
        name="first 20 rows of a file of 128 row groups",
        prepare=_first_rows("128 row groups", 20),
        requests=4,
        round_trips=2,
    ),
    Operation(
        name="first range over a file of 128 row groups",
        prepare=_range("128 row groups", 0, ROWS),
        requests=3,
        round_trips=1,
    ),
    Operation(
        name="history of the last 50 transactions of 500",
        prepare=_history,
        requests=52,
        round_trips=4,
    ),
    Operation(
        name="ingest of one row",
        prepare=_ingest("leaf to write", range(ROWS, ROWS + 1)),
        requests=6,
        round_trips=5,
        writes=3,
    ),
    Operation(
        name="deletion of a key",
        prepare=_delete(11),
        requests=4,
        round_trips=4,
        writes=2,
    ),
    Operation(
        name="look-up of a deleted key",
        prepare=_look_up_deleted(12),
        requests=2,
        round_trips=1,
    ),
    Operation(
        name="ingest of a file of 1,000 rows in the bucket",
        prepare=_ingest_file,
        requests=9,
        round_trips=8,
        writes=3,
    ),
    Operation(
        name="ingest of 2,000 rows into 64 leaves",
        prepare=_ingest("64 leaves", range(0, ROWS, ROWS // 2_000)),
        requests=6,
        round_trips=5,
        writes=3,
    ),
    Operation(
        name="compaction of two files",
        prepare=_compact,
        requests=14,
        round_trips=13,
        writes=5,
    ),
    Operation(
        name="publishing a table as Delta for the first time",
        prepare=_publish("delta", is_first=True),
        requests=7,
        round_trips=7,
        writes=3,
    ),
    Operation(
        name="publishing one commit more as Delta",
        prepare=_publish("delta"),
        requests=5,
        round_trips=5,
        writes=2,
    ),
    Operation(
        name="publishing one commit more as Iceberg",
        prepare=_publish("iceberg"),
        requests=8,
        round_trips=8,
        writes=5,
    ),
)


def table_of_requests() -> str:
    """Return the table of docs/buckets.md."""
    lines = [
        "| operation | requests | of them PUT and LIST | round trips | dollars a million |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {each.name} | {each.requests} | {each.writes} | {each.round_trips} "
        f"| {1e6 * each.dollars:.2f} |"
        for each in OPERATIONS
    ]
    return "\n".join(lines)
