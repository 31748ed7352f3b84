"""`sleeper split`."""

from __future__ import annotations

from typing import Any

import click

from sleeper.interfaces.cli.options import on_table_with_spark
from sleeper.interfaces.cli.present import (
    print_grid,
    print_json,
    say,
)
from sleeper.tables.table import Table


@click.command()
@click.option("--explain", is_flag=True, help="Show which leaves would be split; do nothing.")
@on_table_with_spark
def split(opened: Table, *, explain: bool, spark: Any, as_json: bool) -> None:
    """Split large leaf partitions of TABLE.

    A leaf with at least sleeper.table.partition.splitting.threshold rows is split
    at the median of its keys. No file is moved.

    \b
    Example:
        sleeper split flights --explain
    """
    if explain:
        sizes = opened.leaf_sizes()
        if as_json:
            print_json(sizes)
            return
        print_grid(
            ["partition", "rows", "from", "will be split", "why not"],
            [
                [
                    size.partition.partition_id[:8],
                    f"{'~' if size.estimated else ''}{size.row_count:,}",
                    size.threshold,
                    size.will_be_split,
                    size.obstacle or "",
                ]
                for size in sizes
            ],
        )
        return
    results = opened.split_partitions(spark=spark)
    if as_json:
        print_json(results)
        return
    for result in results:
        name = result.partition_id[:8]
        if result.reason is None:
            lower, upper = (child[:8] for child in result.children)
            say(f"split {name} at {result.field} {result.point!r} into {lower} and {upper}")
        else:
            say(f"did not split {name}: {result.reason}")
    if not results:
        say(f"no leaf partition of {opened.name} is large enough to be split")
