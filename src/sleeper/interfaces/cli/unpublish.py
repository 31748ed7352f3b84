"""`sleeper unpublish`."""

from __future__ import annotations

import click

from sleeper.interfaces.cli.options import on_table
from sleeper.interfaces.cli.present import counted, print_json, say
from sleeper.tables.table import Table


@click.command()
@click.option("--as", "as_", metavar="FORMAT", required=True, help="delta or iceberg.")
@on_table
def unpublish(opened: Table, *, as_: str, as_json: bool) -> None:
    """Remove what other engines read TABLE by. Rows and data files stay.

    Set sleeper.table.publish.formats to nothing first, if it is set, or the next
    round of `sleeper serve` publishes the table again.

    \b
    Example:
        sleeper unpublish flights --as delta
    """
    deleted = opened.unpublish(as_)
    if as_json:
        print_json({"format": as_, "deleted": deleted})
        return
    say(f"{opened.name} is no longer published as {as_}: {counted(deleted, 'object')} deleted")
