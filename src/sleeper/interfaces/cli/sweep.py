"""`sleeper sweep`."""

from __future__ import annotations

import click

from sleeper.interfaces.cli.options import on_table
from sleeper.interfaces.cli.present import (
    counted,
    print_json,
    say,
)
from sleeper.interfaces.cli.stderr import EXIT_REFUSED, warn
from sleeper.tables.garbage import SweepResult
from sleeper.tables.table import Table


@click.command()
@click.option("--dry-run", is_flag=True, help="Show the files that would go; delete nothing.")
@click.option("--force", is_flag=True, help="Files of any age; jobs under way are refused.")
@on_table
def sweep(opened: Table, *, dry_run: bool, force: bool, as_json: bool) -> None:
    """Delete files in the folder of TABLE that no commit names.

    They are files of killed jobs. Only files older than
    sleeper.table.gc.orphan.age.minutes are deleted, which must be longer than any
    ingest, import or compaction takes. Where the table's state is in S3StateStore,
    states that need not be kept are deleted too.

    \b
    Example:
        sleeper sweep flights --dry-run
    """
    swept = opened.orphans(force=force) if dry_run else opened.sweep_orphans(force=force)
    if as_json:
        print_json(swept)
    else:
        _say_swept(opened.name, swept)
    if swept.failures:
        raise click.exceptions.Exit(EXIT_REFUSED)


def _say_swept(table: str, swept: SweepResult) -> None:
    for orphan in swept.orphans if not swept.deleted else ():
        say(orphan.key)
    done = "deleted" if swept.deleted else "would delete"
    say(f"{done} {counted(swept.gone, 'file')} of {table} that no commit names")
    if swept.gone_states:
        say(f"{done} {counted(swept.gone_states, 'part')} of old states of {table}")
    for name, failure in swept.failures.items():
        warn(f"{name} could not be deleted: {failure}")
