"""Purges among ingests, deletions, upserts, compactions, splits and merges, in any order.

After each step the table has the rows of a list; after each purge no object has a key that no row
has any more, and no leaf is split at one.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import sleeper
from sleeper.tables.push_down import push_down_references
from tests.soak import some

SCHEMA = pa.schema([("a", pa.string()), ("b", pa.int64()), ("v", pa.string())])
POOL = [f"key{n:02}@mail.example" for n in range(24)]
PROPERTIES = {"sleeper.table.partition.splitting.threshold": "6"}
UPKEEP = {
    "compact": lambda table: table.compact(),
    "compact all": lambda table: table.compact(all_files=True),
    "split": lambda table: table.split_partitions(),
    "merge": lambda table: table.merge_partitions(rows_below=6),
    "push down": lambda table: push_down_references(table._current()),
    "collect": lambda table: table.collect_garbage(force=True),
}


class World:
    """A table, and the rows that it has to have."""

    def __init__(self, folder, drawn):
        self.folder, self.drawn = folder, drawn
        self.wide = drawn.choice([1, 2])
        instance = sleeper.connect(folder, create=True)
        points = sorted(drawn.sample(POOL, drawn.randrange(3)))
        keys = ["a", "b"][: self.wide]
        self.table = instance.create_table(
            "t", SCHEMA, row_keys=keys, split_points=points, properties=PROPERTIES
        )
        self.rows = []
        if drawn.random() < 0.5:
            self.ingest()

    def key(self, row):
        return row[: self.wide]

    def some_rows(self, count_max):
        one = range(self.drawn.randrange(1, count_max))
        return [(self.drawn.choice(POOL), self.drawn.randrange(3), "x") for _ in one]

    def ingest(self):
        new = self.some_rows(20)
        self.table.ingest([dict(zip("abv", row, strict=True)) for row in new])
        self.rows += new

    def upsert(self):
        new = {self.key(row): row for row in self.some_rows(6)}
        self.table.upsert([dict(zip("abv", row, strict=True)) for row in new.values()])
        self.rows = [row for row in self.rows if self.key(row) not in new] + [*new.values()]

    def some_keys(self):
        """Some keys, and all rows of a split point now and then."""
        keys = {self.key(row) for row in self.some_rows(8)}
        points = self.table.split_points()
        if points and self.drawn.random() < 0.5:
            point = self.drawn.choice(points)
            keys |= {self.key((point, b)) for b in range(3)}
        self.rows = [row for row in self.rows if self.key(row) not in keys]
        return keys, [key[0] if self.wide == 1 else key for key in sorted(keys)]

    def delete(self):
        _, asked = self.some_keys()
        self.table.delete(keys=asked)

    def purge(self):
        keys, asked = self.some_keys()
        proof = self.table.purge(keys=asked)
        assert proof.finished, proof.findings
        gone = {key[0] for key in keys} - {row[0] for row in self.rows}
        assert gone.isdisjoint(self.table.split_points())
        if self.wide > 1:
            return  # rows of other keys, which no reader sees any more, may have the same value
        bodies = {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        assert not [path for path, body in bodies.items() for key in gone if key.encode() in body]

    def reopen(self):
        self.table = sleeper.connect(self.folder).table("t")

    def step(self):
        name = self.drawn.choice(
            ["ingest", "ingest", "upsert", "delete", "purge", "reopen", *UPKEEP]
        )
        upkeep = UPKEEP.get(name)
        getattr(self, name)() if upkeep is None else upkeep(self.table)
        return name


@pytest.mark.parametrize("seed", some(range(60), one_in=10))
def test_purges_leave_other_rows_and_no_trace(tmp_path, seed):
    """Given steps in any order, rows, checks, chain and history are whole at the end (DEL-4)."""
    world = World(tmp_path / "instance", random.Random(seed))
    steps = []

    for _ in range(20):
        steps.append(world.step())
        found = [tuple(row.values()) for row in world.table.query().to_pylist()]
        assert sorted(found) == sorted(world.rows), steps

    world.purge()
    assert world.table.verify().findings == (), steps
    assert world.table.verify(chain=True).findings == (), steps
    assert world.table.history()
