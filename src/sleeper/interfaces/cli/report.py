"""`sleeper report`: shows tables, partitions, files and claims."""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from sleeper.errors import PropertiesInvalid
from sleeper.instance.instance import Instance
from sleeper.instance.instance import connect as open_instance
from sleeper.interfaces.cli.options import instance_option, json_option, on_table, one_of
from sleeper.interfaces.cli.present import claim_line, print_facts, print_grid, print_json, say
from sleeper.interfaces.cli.stderr import warn
from sleeper.interfaces.connection import connect
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.model.jobs.messages import DeadLetter
from sleeper.model.jobs.tasks import TaskStatus
from sleeper.tables.table import Table

# ---------------------------------------------------------------- job reports
#
# `sleeper report tasks`, `dead-letters` and `full`: workers, failed messages, everything.

_LIMIT = 100

limit_option = click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=_LIMIT,
    show_default=True,
    help="Maximum number shown.",
)


@click.command()
@click.option("--kind", type=one_of(*JobKind), help="Workers for this kind of job only.")
@click.option("--unfinished", is_flag=True, help="Workers that have not ended only.")
@limit_option
@instance_option
@json_option
def tasks(*, kind: str | None, unfinished: bool, limit: int, instance: str, as_json: bool) -> None:
    """Show worker processes, the newest first: when they ran, and what they did.

    A worker that was killed is shown without an end.

    \b
    Example:
        sleeper report tasks --unfinished
    """
    with connect(instance) as opened:
        shown = [*islice(opened.jobs.tasks(kind, unfinished=unfinished), limit)]
    if as_json:
        print_json(shown)
    else:
        _print_tasks(shown)


@click.command("dead-letters")
@limit_option
@instance_option
@json_option
def dead_letters(*, limit: int, instance: str, as_json: bool) -> None:
    """Show the messages of all queues that are delivered no more, and why.

    sleeper queue redrive puts them back.

    \b
    Example:
        sleeper report dead-letters
    """
    with connect(instance) as opened:
        letters = _dead_letters(opened, limit)
    if as_json:
        print_json(letters)
    else:
        _print_dead_letters(letters)


@click.command()
@instance_option
@json_option
def full(*, instance: str, as_json: bool) -> None:
    """Show everything: tables, files, partitions, claims, queues, workers, dead letters.

    \b
    Example:
        sleeper report full --json
    """
    with open_instance(instance) as opened:
        document: dict[str, Any] = {
            "instance": opened.instance_id,
            "url": opened.url,
            "paused_since": opened.pause_switch.paused_since(),
            "tables": {record.name: _table(opened, record.name) for record in opened.tables()},
            **_jobs(opened),
        }
    if as_json:
        print_json(document)
        return
    say(f"instance {document['instance']} at {document['url']}")
    say(f"paused since {document['paused_since'] or '-'}")
    for name, table in document["tables"].items():
        say("")
        say(f"table {name}")
        files, leaves = table["files"], [each for each in table["partitions"] if each.is_leaf]
        print_grid(
            ["rows", "files", "leaf partitions", "to split", "claims", "transaction"],
            [
                [
                    files.rows,
                    files.files,
                    files.leaf_partitions,
                    sum(each.will_be_split for each in leaves),
                    len(table["claims"]),
                    files.transaction,
                ]
            ],
        )
    say("")
    if "queues" not in document:
        say("there are no jobs: sleeper.jobs.url is not set")
        return
    print_grid(
        ["queue", "ready", "hidden", "dead letters"],
        [[name, each.ready, each.hidden, each.dead] for name, each in document["queues"].items()],
    )
    say("")
    _print_tasks(document["tasks"])
    say("")
    _print_dead_letters(document["dead_letters"])


def _table(opened: Instance, name: str) -> dict[str, Any]:
    table = opened.table(name)
    return {
        "files": table.report_files(),
        "partitions": table.report_partitions(),
        "claims": table.claims(),
    }


def _jobs(opened: Instance) -> dict[str, Any]:
    """Return what is known of jobs; nothing where the instance has no place for them."""
    try:
        depths = opened.jobs.queue_depths()
    except PropertiesInvalid:
        return {}
    return {
        "queues": {str(name): depth for name, depth in depths.items()},
        "tasks": [*islice(opened.jobs.tasks(), _LIMIT)],
        "dead_letters": _dead_letters(opened, _LIMIT),
    }


def _dead_letters(opened: Instance, limit: int) -> dict[str, list[DeadLetter]]:
    found = {str(name): [*opened.jobs.dead_letters(name, limit=limit)] for name in QueueName}
    return {name: letters for name, letters in found.items() if letters}


def _print_tasks(shown: list[TaskStatus]) -> None:
    print_grid(
        ["worker", "kind", "host", "started", "finished", "jobs", "rows written", "rows a second"],
        [
            [
                task.task_id[:8],
                str(task.kind),
                f"{task.host}:{task.pid}",
                task.started,
                task.finished,
                task.jobs,
                task.rows_written,
                None if task.rows_written_per_s is None else int(task.rows_written_per_s),
            ]
            for task in shown
        ],
    )


def _print_dead_letters(letters: dict[str, list[DeadLetter]]) -> None:
    for name, found in letters.items():
        for letter in found:
            say(f"{name}: {letter.message_id}, received {letter.receives} times: {letter.reason}")
            say(f"    {letter.body}")
    if not letters:
        say("there are no dead letters")


class _TablesFirst(click.Group):
    """A group that runs its command `tables` if none is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments, including those of `tables`."""
        named = args and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else ["tables", *args])


@click.group(cls=_TablesFirst)
def report() -> None:
    """Show tables, partitions, files, claims and workers; without a command, the tables.

    \b
    Examples:
        sleeper report
        sleeper report partitions flights
        sleeper report full
    """


for _command in (tasks, dead_letters, full):
    report.add_command(_command)


@report.command()
@instance_option
@json_option
def tables(instance: str, as_json: bool) -> None:
    """Show every table with its rows, files and partitions.

    \b
    Example:
        sleeper report tables
    """
    opened = connect(instance)
    shown = []
    for record in opened.tables():
        files = opened.table(record.name).report_files()
        shown.append(
            {
                "name": record.name,
                "id": record.table_id,
                "online": record.online,
                "rows": files.rows,
                "files": files.files,
                "leaf_partitions": files.leaf_partitions,
                "transaction": files.transaction,
            }
        )
    if as_json:
        print_json(shown)
        return
    if (since := opened.pause_switch.paused_since()) is not None:
        warn(f"services are paused since {since.isoformat(sep=' ', timespec='seconds')}")
    columns = ["name", "id", "online", "rows", "files", "leaf_partitions", "transaction"]
    print_grid(columns, [[table[column] for column in columns] for table in shown])


@report.command()
@on_table
def partitions(opened: Table, as_json: bool) -> None:
    """Show the partition tree of TABLE, leaves in key order first.

    \b
    Example:
        sleeper report partitions flights
    """
    found = opened.report_partitions()
    if as_json:
        print_json(found)
        return
    rows: list[list[Any]] = [
        [
            p.partition_id[:8],
            p.is_leaf,
            (p.parent_id or "")[:8],
            p.region,
            p.files,
            p.files_on_jobs,
            f"{'~' if p.rows_estimated else ''}{p.rows:,}",
            p.will_be_split,
        ]
        for p in found
    ]
    print_grid(
        ["partition", "leaf", "parent", "region", "files", "on jobs", "rows", "will be split"], rows
    )


@report.command()
@on_table
def claims(opened: Table, as_json: bool) -> None:
    """Show the claims of compaction jobs on files of TABLE: owner and age.

    \b
    Example:
        sleeper report claims flights
    """
    found = opened.claims()
    if as_json:
        print_json(found)
        return
    for claim in found:
        say(claim_line(claim))
    if not found:
        say(f"no compaction job has claimed files of {opened.name}")


@report.command()
@click.option("--verbose", is_flag=True, help="List every file reference.")
@on_table
def files(opened: Table, verbose: bool, as_json: bool) -> None:
    """Show counts of the files of TABLE.

    \b
    Example:
        sleeper report files flights --verbose
    """
    found = opened.report_files()
    references = opened.references() if verbose else []
    if as_json:
        print_json({"files": found, "references": references} if verbose else found)
        return
    spread = ", ".join(f"{name} {count}" for name, count in found.references_per_leaf.items())
    print_facts(
        [
            ("transaction", found.transaction),
            ("leaf partitions", found.leaf_partitions),
            ("other partitions", found.non_leaf_partitions),
            ("files", found.files),
            ("files without references", found.files_unreferenced),
            ("file references", found.references),
            ("references per leaf", spread),
            ("rows", f"{'~' if found.rows_estimated else ''}{found.rows:,}"),
            ("rows in leaf partitions", found.rows_in_leaves),
        ]
    )
    if verbose:
        print_grid(
            ["partition", "file", "rows", "whole file"],
            [[r.partition_id[:8], r.filename, r.row_count, r.whole_file] for r in references],
        )
