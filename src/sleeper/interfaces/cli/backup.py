"""`sleeper backup`."""

from __future__ import annotations

import click

from sleeper.instance.instance import connect
from sleeper.interfaces.cli.options import json_option
from sleeper.interfaces.cli.present import counted, print_grid, print_json, say


@click.command()
@click.argument("url")
@click.argument("target")
@json_option
def backup(url: str, target: str, *, as_json: bool) -> None:
    """Copy the instance at URL to TARGET while it is written to.

    Each table is copied with the rows of one transaction, which is printed. The
    copy opens like any instance; to restore is to copy it back, or to go on with
    it. TARGET is no instance before all of it is there. After an interruption the
    same command goes on where it stopped. Queues, what became of jobs, and results
    of queries are not copied.

    \b
    Examples:
        sleeper backup /data/demo /backup/demo-2026-11-22
        sleeper backup s3://bucket/demo /backup/demo-2026-11-22
    """
    with connect(url) as opened:
        copied = opened.backup(target)
    if as_json:
        print_json(copied)
        return
    print_grid(
        ["table", "transaction", "files", "bytes"],
        [[each.name, each.transaction, each.files, each.bytes] for each in copied.tables],
    )
    say(f"copied {counted(len(copied.tables), 'table')} to {copied.url}")
