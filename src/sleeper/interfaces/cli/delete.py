"""`sleeper delete`."""

from __future__ import annotations

from typing import Any

import click

from sleeper.interfaces.cli.completion import complete_tables
from sleeper.interfaces.cli.options import (
    ask,
    force_option,
    instance_option,
    json_option,
    unchanged_since_option,
)
from sleeper.interfaces.cli.present import counted, print_json, say
from sleeper.interfaces.cli.query import Question, question_options
from sleeper.interfaces.connection import connect


@click.command()
@click.argument("table", shell_complete=complete_tables)
@question_options
@unchanged_since_option
@force_option
@instance_option
@json_option
def delete(
    table: str,
    question: Question,
    if_unchanged_since: int | None,
    instance: str,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Delete rows of TABLE by key, key range or prefix, or by a condition.

    The options are those of `sleeper query`. Rows that are added later stay, whatever
    their keys. Where rows are deleted by their keys, files keep their bytes until they
    are compacted and garbage is collected, and the table needs format 2: see `sleeper
    table upgrade`. --where stands alone, and may name keys; leaves that have such rows
    are written anew.

    \b
    Examples:
        sleeper delete flights --key tailnum=N14228
        sleeper delete flights --range tailnum=N1,N2 --force
        sleeper delete flights --where "dep_delay IS NULL AND month = 2"
        sleeper --reason "ticket 4711" delete people --keys-file erased.txt
    """
    opened = connect(instance).table(table)
    asked: dict[str, Any] = question.arguments(opened.schema)
    if not asked:
        raise click.UsageError(
            "say which rows: give --key, --range, --prefix, --keys-file or --where. To remove all "
            f"rows: sleeper table reinitialise {table}"
        )
    if not force:
        ask(f"Delete {counted(opened.count(**asked), 'row')} of table {table}?")
    done = opened.delete(**asked, if_unchanged_since=if_unchanged_since)
    if as_json:
        print_json(done)
        return
    if done.rows is not None:
        what = counted(done.rows, "row")
    else:
        several = f"{done.regions:,} keys and ranges"
        what = f"the rows of {'1 key or range' if done.regions == 1 else several}"
    say(f"deleted {what} of table {table} (transaction {done.transaction})")
