"""`sleeper gc`."""

from __future__ import annotations

from typing import Any

import click

from sleeper.interfaces.cli.options import on_table_with_spark
from sleeper.interfaces.cli.present import (
    counted,
    print_json,
    progress_of,
    say,
)
from sleeper.interfaces.cli.stderr import EXIT_REFUSED, warn
from sleeper.tables.garbage import GcSummary
from sleeper.tables.table import Table


@click.command()
@click.option("--dry-run", is_flag=True, help="Show the files that would go; delete nothing.")
@click.option(
    "--force", is_flag=True, help="Delete without delay; use it only if nobody reads the table."
)
@on_table_with_spark
def gc(opened: Table, *, dry_run: bool, force: bool, spark: Any, as_json: bool) -> None:
    """Delete files that TABLE no longer references.

    They are kept for sleeper.table.gc.delay.minutes, which must be longer than any
    query takes.

    \b
    Example:
        sleeper gc flights --dry-run
    """
    if dry_run:
        names = opened.garbage(force=force)
        if as_json:
            print_json(names)
            return
        for name in names:
            say(name)
        say(f"{counted(len(names), 'file')} of {opened.name} would be deleted")
        return
    with progress_of(f"collecting garbage of {opened.name}", "files") as progress:
        run = opened.collect_garbage(
            force=force, spark=spark, progress=lambda deleted: progress(deleted, None)
        )
    if as_json:
        print_json(run)
    else:
        _say_collected(opened.name, run)
    if run.failures:
        raise click.exceptions.Exit(EXIT_REFUSED)


def _say_collected(table: str, run: GcSummary) -> None:
    say(f"deleted {counted(len(run.deleted), 'file')} of {table}, transaction {run.transaction}")
    for name, failure in run.failures.items():
        warn(f"{name} could not be deleted: {failure}")
