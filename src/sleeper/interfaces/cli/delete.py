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
@click.option("--job-id", metavar="ID", help="Id of the job: a repeated job changes nothing.")
@click.option("--submit", is_flag=True, help="Have a worker do it: see sleeper jobs show.")
@force_option
@instance_option
@json_option
def delete(
    table: str,
    question: Question,
    if_unchanged_since: int | None,
    instance: str,
    *,
    job_id: str | None,
    submit: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Delete rows of TABLE by key, key range or prefix, or by a condition.

    The options are those of `sleeper query`. Rows that are added later stay, whatever
    their keys. Where rows are deleted by their keys, files keep their bytes until they
    are compacted and garbage is collected; a table that an earlier version made needs
    `sleeper table upgrade` first. --where stands alone, and may name keys; leaves that
    have such rows are written anew.

    Without --job-id, a command that is run again deletes rows that were added since,
    too. With --submit a worker of ingest jobs (sleeper worker ingest, sleeper serve)
    deletes the rows that there are when it runs.

    \b
    Examples:
        sleeper delete flights --key tailnum=N14228
        sleeper delete flights --range tailnum=N1,N2 --force
        sleeper delete flights --where "dep_delay IS NULL AND month = 2"
        sleeper delete flights --prefix tailnum=N1 --submit --job-id cleaning-17
        sleeper --reason "ticket 4711" delete people --keys-file erased.txt
    """
    connected = connect(instance)
    opened = connected.table(table)
    asked: dict[str, Any] = question.arguments(opened.schema)
    if not asked:
        raise click.UsageError(
            "say which rows: give --key, --range, --prefix, --keys-file or --where. To remove all "
            f"rows: sleeper table reinitialise {table}"
        )
    if not force:
        ask(f"Delete {counted(opened.count(**asked), 'row')} of table {table}?")
    if submit:
        given = connected.jobs.submit_delete(
            table, **asked, job_id=job_id, if_unchanged_since=if_unchanged_since
        )
        if as_json:
            print_json({"job_id": given})
        else:
            say(f"submitted job {given}; sleeper jobs show {given} tells what becomes of it")
        return
    done = opened.delete(**asked, job_id=job_id, if_unchanged_since=if_unchanged_since)
    if as_json:
        print_json(done)
        return
    if done.already_committed:
        say(f"job {job_id} was committed by transaction {done.transaction}: nothing to do")
        return
    if done.rows is not None:
        what = counted(done.rows, "row")
    else:
        several = f"{done.regions:,} keys and ranges"
        what = f"the rows of {'1 key or range' if done.regions == 1 else several}"
    say(f"deleted {what} of table {table} (transaction {done.transaction})")
