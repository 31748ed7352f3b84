"""`sleeper delete`."""

from __future__ import annotations

from typing import Any

import click

from sleeper.interfaces.cli.completion import complete_tables
from sleeper.interfaces.cli.options import ask, force_option, instance_option, json_option
from sleeper.interfaces.cli.present import counted, print_json, say
from sleeper.interfaces.cli.query import Question, question_options
from sleeper.interfaces.connection import connect


@click.command()
@click.argument("table", shell_complete=complete_tables)
@question_options
@force_option
@instance_option
@json_option
def delete(table: str, question: Question, instance: str, *, force: bool, as_json: bool) -> None:
    """Delete rows of TABLE by key, key range or prefix.

    The options are those of `sleeper query`, but for --where. Rows that are added
    later stay, whatever their keys. Files keep the bytes of deleted rows until they
    are compacted and garbage is collected. The table needs format 2: see
    `sleeper table upgrade`.

    \b
    Examples:
        sleeper delete flights --key tailnum=N14228
        sleeper delete flights --range tailnum=N1,N2 --force
        sleeper --reason "ticket 4711" delete people --keys-file erased.txt
    """
    opened = connect(instance).table(table)
    if question.where is not None:
        raise click.UsageError(
            "rows are deleted by their keys: give --key, --range, --prefix or --keys-file, and not "
            "--where"
        )
    asked: dict[str, Any] = question.arguments(opened.schema)
    if not asked:
        raise click.UsageError(
            "say which rows: give --key, --range, --prefix or --keys-file. To remove all rows: "
            f"sleeper table reinitialise {table}"
        )
    if not force:
        ask(f"Delete {counted(opened.count(**asked), 'row')} of table {table}?")
    done = opened.delete(**asked)
    if as_json:
        print_json(done)
        return
    what = "1 key or range" if done.regions == 1 else f"{done.regions:,} keys and ranges"
    say(f"deleted the rows of {what} of table {table} (transaction {done.transaction})")
