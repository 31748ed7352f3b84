"""`sleeper verify`: checks everything that is stored of an instance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from sleeper.instance.instance import connect
from sleeper.instance.verify import InstanceVerifySummary
from sleeper.interfaces.cli.completion import complete_tables
from sleeper.interfaces.cli.options import json_option, spark_options
from sleeper.interfaces.cli.present import counted, print_grid, print_json, progress_of, say
from sleeper.interfaces.cli.stderr import EXIT_REFUSED, warn
from sleeper.tables.verify import VerifySummary


@click.command()
@click.argument("what", nargs=-1, metavar="[INSTANCE | TABLE...]", shell_complete=complete_tables)
@click.option(
    "--instance",
    envvar="SLEEPER_INSTANCE",
    metavar="URL",
    help="The instance: a folder or URL.  [env: SLEEPER_INSTANCE]",
)
@click.option(
    "--quick", is_flag=True, help="Read states and the ends of files only: no rows, no pages."
)
@click.option(
    "--chain",
    is_flag=True,
    help="Read logs only: name every entry that was changed after it was written.",
)
@spark_options
@json_option
def verify(
    what: tuple[str, ...],
    instance: str | None,
    *,
    quick: bool,
    chain: bool,
    session: Callable[[str], Any],
    as_json: bool,
) -> None:
    """Check everything that is stored of an instance, or of tables; change nothing.

    The log is replayed from its first entry and compared with its snapshots. Every
    page of every data file is compared with its checksum, and its rows with their
    order, their partition, their counts and their sketch. Others may write and
    compact meanwhile. Orphans and garbage are counted; they are no faults.

    With --chain, each entry of format 2 is compared with the digest of it that the
    next one has.

    Without --instance or SLEEPER_INSTANCE, and where it has a slash, the argument is an
    instance. The exit code is 1 if something is wrong.

    \b
    Examples:
        sleeper verify /data/demo
        sleeper verify flights --instance s3://bucket/demo --quick
        sleeper verify /data/demo --chain
    """
    url, tables = _chosen(what, instance)
    spark = session(url)
    with connect(url) as opened, progress_of("verifying", "files") as progress:
        found = opened.verify(
            tables or None,
            quick=quick,
            chain=chain,
            spark=spark,
            progress=lambda _, done, total: progress(done, total),
        )
    if as_json:
        print_json(found)
    elif chain:
        _say_chains(found)
    else:
        _say_verified(found)
    if not found.clean:
        raise click.exceptions.Exit(EXIT_REFUSED)


def _chosen(what: tuple[str, ...], instance: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the URL of the instance, and the names of tables."""
    if instance is not None and not any("/" in each for each in what):
        return instance, what
    if len(what) != 1:
        raise click.UsageError(
            "name one instance, or tables with --instance URL (or SLEEPER_INSTANCE)"
        )
    return what[0], ()


def _say_chains(found: InstanceVerifySummary) -> None:
    print_grid(
        ["table", "transaction", "entries", "in the chain", "findings", "digest of the last entry"],
        [
            [
                each.table,
                each.transaction,
                each.entries,
                each.chained,
                len(each.findings),
                each.digest or "",
            ]
            for each in found.tables
        ],
    )
    _say_findings(found)


def _say_verified(found: InstanceVerifySummary) -> None:
    print_grid(
        ["table", "transaction", "entries", "files", "rows", "findings", "orphans", "garbage"],
        [_row(table) for table in found.tables],
    )
    for table in found.tables:
        if table.rest.orphans_newer:
            say(
                f"{table.table}: {counted(table.rest.orphans_newer, 'orphan')} newer than "
                f"transaction {table.transaction}: of a job that runs or was killed, or of later "
                "transactions whose entries at the end of the log are gone"
            )
        if table.rest.orphans_due:
            say(
                f"{table.table}: `sleeper sweep {table.table}` would delete "
                f"{counted(table.rest.orphans_due, 'orphan')}"
            )
        if table.rest.garbage_due:
            say(
                f"{table.table}: `sleeper gc {table.table}` would delete "
                f"{counted(table.rest.garbage_due, 'file')}"
            )
    if found.unknown_folders:
        say(f"folders of no table: {', '.join(found.unknown_folders)}")
    _say_findings(found)


def _say_findings(found: InstanceVerifySummary) -> None:
    for fault in found.findings:
        warn(f"{fault.kind}: {fault.what}. {fault.next_step}")
    for table in found.tables:
        for fault in table.findings:
            warn(f"{table.table}: {fault.kind}: {fault.what}. {fault.next_step}")
    findings = len(found.findings) + sum(len(table.findings) for table in found.tables)
    say(f"{counted(findings, 'finding')} in {counted(len(found.tables), 'table')} of {found.url}")


def _row(table: VerifySummary) -> list[object]:
    number = "none" if table.transaction is None else table.transaction
    rest = table.rest
    return [
        table.table,
        number,
        table.entries,
        table.files,
        table.rows,
        len(table.findings),
        rest.orphans,
        rest.garbage,
    ]
