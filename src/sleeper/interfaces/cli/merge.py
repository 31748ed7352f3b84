"""`sleeper merge`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from sleeper.interfaces.cli.options import on_table
from sleeper.interfaces.cli.present import (
    print_grid,
    print_json,
    say,
)
from sleeper.state.plans.splits_and_merges import SiblingLeaves
from sleeper.tables.table import Table


@click.command()
@click.option(
    "--below",
    "rows_below",
    type=click.IntRange(min=1),
    metavar="ROWS",
    help="Merge two leaves with fewer rows together.  [default: the table's property]",
)
@click.option("--explain", is_flag=True, help="Show which leaves would be merged; do nothing.")
@on_table
def merge(opened: Table, *, rows_below: int | None, explain: bool, as_json: bool) -> None:
    """Merge small leaf partitions of TABLE, in pairs.

    Two leaves of one parent are merged if they have fewer rows together than
    sleeper.table.partition.merging.threshold, or --below. No file is moved.

    \b
    Example:
        sleeper merge flights --below 1000000 --explain
    """
    if explain:
        _explain_merges(opened.small_siblings(rows_below=rows_below), as_json=as_json)
        return
    results = opened.merge_partitions(rows_below=rows_below)
    if as_json:
        print_json(results)
        return
    for result in results:
        lower, upper = (child[:8] for child in result.children)
        if result.reason is None:
            say(f"merged {lower} and {upper} into {result.partition_id[:8]}")
        else:
            say(f"did not merge {lower} and {upper}: {result.reason}")
    if not results:
        say(f"no leaf partitions of {opened.name} are small enough to be merged")


def _explain_merges(pairs: Sequence[SiblingLeaves], *, as_json: bool) -> None:
    if as_json:
        print_json(pairs)
        return
    rows = [
        [
            " and ".join(child[:8] for child in pair.parent.child_ids),
            pair.parent.partition_id[:8],
            f"{'~' if pair.estimated else ''}{pair.row_count:,}",
            pair.obstacle or "nothing",
        ]
        for pair in pairs
    ]
    print_grid(["leaves", "into", "rows", "in the way"], rows)
