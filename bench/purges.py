"""What it costs to purge row keys, beside a compaction of the same files.

A table of 16 leaves and two files in each is purged of random keys, which every leaf has; a copy of
it is compacted. Most of a purge is the same work; the rest is to find the keys, and to search.

    python -m bench.purges --rows 1000000 --keys 1000
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from time import perf_counter

import pyarrow as pa

import sleeper

LEAVES = 16


def key_of(number: int) -> str:
    """Return an address."""
    return f"{number * 7_919 % 100_003:06}.{number:08}@mail.example"


def make(folder: Path, row_count: int) -> list[str]:
    """Make a table with two files in each leaf, and return its keys."""
    keys = sorted(key_of(number) for number in range(row_count))
    table = sleeper.connect(folder, create=True).create_table(
        "t",
        pa.schema([("email", pa.string()), ("n", pa.int64()), ("text", pa.string())]),
        row_keys=["email"],
        split_points=keys[row_count // LEAVES :: row_count // LEAVES][: LEAVES - 1],
    )
    for half in (keys[::2], keys[1::2]):
        numbers = pa.array(range(len(half)), pa.int64())
        texts = pa.array([f"some text of {number % 997}" for number in range(len(half))])
        table.ingest(pa.table({"email": half, "n": numbers, "text": texts}))
    return keys


def main(row_count: int, key_count: int) -> list[str]:
    """Return the lines of the result."""
    with TemporaryDirectory() as folder:
        purged, compacted = Path(folder, "purged"), Path(folder, "compacted")
        keys = make(purged, row_count)
        copytree(purged, compacted)
        asked = random.Random(1).sample(keys, key_count)
        begun_s = perf_counter()
        sleeper.connect(compacted).table("t").compact(all_files=True)
        compacted_s = perf_counter() - begun_s
        begun_s = perf_counter()
        proof = sleeper.connect(purged).table("t").purge(keys=asked)
        purged_s = perf_counter() - begun_s
        begun_s = perf_counter()
        sleeper.connect(purged).table("t").purge(keys=asked)
        again_s = perf_counter() - begun_s
    return [
        f"{row_count:,} rows in {LEAVES} leaves, {key_count:,} keys purged: {dict(proof.counts)}",
        f"compaction of all files   {compacted_s:6.2f} s",
        f"purge                     {purged_s:6.2f} s, finished: {proof.finished}",
        f"the same purge again      {again_s:6.2f} s, which finds and searches alone",
    ]


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--rows", type=int, default=1_000_000)
    asked.add_argument("--keys", type=int, default=1_000)
    given = asked.parse_args()
    print("\n".join(main(given.rows, given.keys)))
