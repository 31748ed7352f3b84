"""`sleeper history`."""

from __future__ import annotations

import click

from sleeper.interfaces.cli.options import on_table
from sleeper.interfaces.cli.present import print_grid, print_json
from sleeper.interfaces.cli.stderr import warn
from sleeper.state.kept_versions import time_text
from sleeper.tables.table import Table

_ENTRIES = 20


@click.command()
@click.option(
    "--limit", type=click.IntRange(0), metavar="N", help="The last N transactions.  [default: 20]"
)
@click.option("--all", "show_all", is_flag=True, help="All transactions.")
@on_table
def history(opened: Table, limit: int | None, show_all: bool, as_json: bool) -> None:
    """Show what the transactions of TABLE did, the newest first.

    A transaction number or time is what `sleeper query --as-of` takes. A
    compaction adds the rows that it wrote, and removes those that it read.

    \b
    Examples:
        sleeper history flights
        sleeper history flights --limit 100 --json
    """
    if show_all and limit is not None:
        raise click.UsageError("--all and --limit contradict each other: leave one of them out")
    if limit is None and not show_all:
        limit = _ENTRIES
    found = opened.history(limit)
    if as_json:
        print_json(found)
        return
    columns = ("rows added", "rows removed", "files added", "files removed")
    why = ["why"] if any(each.reasons for each in found) else []
    print_grid(
        ["transaction", "time", "what", *columns, "jobs", "by", *why],
        [
            [
                each.number,
                time_text(each.time),
                ", ".join(each.kinds),
                each.rows_added,
                each.rows_removed,
                each.files_added,
                each.files_removed,
                ", ".join(each.job_ids),
                ", ".join(each.by),
                *(["; ".join(each.reasons)] if why else []),
            ]
            for each in found
        ],
    )
    if found and len(found) == limit and found[-1].number > 1:
        warn("--limit N shows more transactions, --all shows all")
