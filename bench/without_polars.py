"""What polars does here, beside pyarrow doing the same: whether it earns its 180 MB of an install.

CPU (user and system, all threads), medians of runs in turn:

- gather: rows in another order, as an ingest hands them on after its sort
- ties: the order of rows by a key of text, where their prefixes are equal
- JSON: rows as an object a line
- search: which of many texts are in many values, as a purge looks for copies of keys

    python -m bench.without_polars --rows 1000000
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from bench.random_rows import rows
from sleeper.engine.writing.user_file import json_lines

RUNS = 5
JSON_ROWS = 100_000
TEXTS = 1_000
SEARCHED_ROWS = 20_000


def main(row_count: int = 1_000_000) -> list[str]:
    """Measure, and return the lines of the report."""
    table = pa.Table.from_batches(rows(row_count, seed=1)).combine_chunks()
    order = np.argsort(np.random.default_rng(2).random(row_count)).astype(np.uint32)
    few = table.slice(0, JSON_ROWS).combine_chunks()
    searched = table["value"].combine_chunks().slice(0, SEARCHED_ROWS)
    texts = [text[:8] for text in table["value"].slice(row_count // 2, TEXTS).to_pylist()]
    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        f"gather, {row_count:,} rows": (
            lambda: _gathered_by_polars(table, order),
            lambda: table.take(pa.array(order)),
        ),
        f"ties, {row_count:,} keys": (
            lambda: pl.DataFrame({"key": pl.from_arrow(table["key"])}).select(
                pl.arg_sort_by("key", maintain_order=True)
            ),
            lambda: pc.sort_indices(table, [("key", "ascending")]),
        ),
        f"JSON, {JSON_ROWS:,} rows": (
            lambda: json_lines(few.to_batches()[0]),
            lambda: _json_by_arrow(few),
        ),
        f"search, {TEXTS:,} texts in {SEARCHED_ROWS:,}": (
            lambda: pl.Series(pl.from_arrow(searched)).str.contains_any(texts).sum(),
            lambda: _any_of(searched, texts),
        ),
    }
    lines = [f"{'CPU seconds':36} {'polars':>8} {'pyarrow':>8}  pyarrow / polars"]
    for name, (by_polars, by_arrow) in pairs.items():
        taken: tuple[list[float], list[float]] = ([], [])
        for number in range(RUNS + 1):
            for place, run in enumerate((by_polars, by_arrow)):
                start = process_time()
                run()
                if number:
                    taken[place].append(process_time() - start)
        first, second = map(median, taken)
        lines.append(f"{name:36} {first:8.3f} {second:8.3f}  {second / first:.2f}")
    return lines


def _gathered_by_polars(table: pa.Table, order: Any) -> pa.Table:
    taken = pl.DataFrame(pl.from_arrow(table))[pl.Series(order)]
    return taken.to_arrow(compat_level=pl.CompatLevel.oldest())


def _json_by_arrow(table: pa.Table) -> bytes:
    """Rows as JSON by joined texts: of texts without letters that need an escape alone."""
    parts = []
    for number, field in enumerate(table.schema):
        name = f'{"," if number else "{"}"{field.name}":'
        text = table[field.name].cast(pa.string())
        if pa.types.is_integer(field.type):
            parts.append(pc.binary_join_element_wise(name, text, ""))
        else:
            if pa.types.is_string(field.type) and pc.any(pc.match_substring_regex(text, _ESCAPED)):
                text = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), '"', '\\"')
            parts.append(pc.binary_join_element_wise(f'{name}"', text, '"', ""))
    lines = pc.binary_join_element_wise(*parts, "}\n", "").combine_chunks()
    joined: bytes = lines.buffers()[2].to_pybytes()
    return joined


_ESCAPED = r'["\\\x00-\x1f]'


def _any_of(values: pa.Array, texts: list[str]) -> int:
    found = None
    for text in texts:
        here = pc.match_substring(values, text)
        found = here if found is None else pc.or_(found, here)
    return int(pc.sum(found).as_py())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    print("\n".join(main(parser.parse_args().rows)))
