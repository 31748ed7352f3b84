"""`sleeper report tasks`, `dead-letters` and `full`: workers, failed messages, everything."""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from sleeper.errors import PropertiesInvalid
from sleeper.instance.instance import Instance, connect
from sleeper.interfaces.cli.options import instance_option, json_option, one_of
from sleeper.interfaces.cli.present import print_grid, print_json, say
from sleeper.model.jobs.events import JobKind
from sleeper.model.jobs.messages import DeadLetter, QueueName
from sleeper.model.jobs.tasks import TaskStatus

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
        shown = _tasks(opened, kind, limit, unfinished=unfinished)
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
    with connect(instance) as opened:
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
        "tasks": _tasks(opened, None, _LIMIT, unfinished=False),
        "dead_letters": _dead_letters(opened, _LIMIT),
    }


def _tasks(opened: Instance, kind: str | None, limit: int, *, unfinished: bool) -> list[TaskStatus]:
    found = (task for task in opened.jobs.tasks(kind) if not (unfinished and task.is_finished))
    return [*islice(found, limit)]


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
