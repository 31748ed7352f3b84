"""`sleeper queue`: what waits in queues, and what is delivered no more."""

from __future__ import annotations

import click

from sleeper.instance.instance import connect as open_instance
from sleeper.interfaces.cli.options import force_option, instance_option, json_option, one_of
from sleeper.interfaces.cli.present import counted, print_grid, print_json, say
from sleeper.interfaces.connection import connect
from sleeper.model.jobs.kinds import QueueName

queue_argument = click.argument("name", type=one_of(*QueueName), metavar="QUEUE")


@click.group()
def queue() -> None:
    """See queues, and dead letters: messages that are delivered no more.

    \b
    Examples:
        sleeper queue list
        sleeper queue dead-letters ingest
        sleeper queue redrive ingest
    """


@queue.command("list")
@instance_option
@json_option
def list_queues(*, instance: str, as_json: bool) -> None:
    """Show how many messages each queue has.

    \b
    Example:
        sleeper queue list
    """
    with connect(instance) as opened:
        depths = opened.jobs.queue_depths()
    if as_json:
        print_json(depths)
        return
    print_grid(
        ["queue", "ready", "hidden", "dead letters", "oldest, seconds"],
        [
            [
                str(name),
                depth.ready,
                depth.hidden,
                depth.dead,
                None if depth.oldest_s is None else int(depth.oldest_s),
            ]
            for name, depth in depths.items()
        ],
    )


@queue.command("dead-letters")
@queue_argument
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="So many at most."
)
@instance_option
@json_option
def dead_letters(name: str, *, limit: int, instance: str, as_json: bool) -> None:
    """Show messages of a QUEUE that are delivered no more, and why.

    \b
    Example:
        sleeper queue dead-letters ingest
    """
    with connect(instance) as opened:
        letters = opened.jobs.dead_letters(name, limit=limit)
    if as_json:
        print_json(letters)
        return
    for letter in letters:
        buried = letter.buried.isoformat(sep=" ", timespec="seconds")
        say(f"{letter.message_id}  {buried}  received {letter.receives} times")
        say(f"    {letter.body}")
        say(f"    {letter.reason}")
    if not letters:
        say(f"the {name} queue has no dead letters")


@queue.command()
@queue_argument
@click.argument("message_ids", nargs=-1, metavar="[MESSAGE]...")
@instance_option
def redrive(name: str, message_ids: tuple[str, ...], *, instance: str) -> None:
    """Put dead letters back into their QUEUE: those named, or all.

    \b
    Example:
        sleeper queue redrive ingest
    """
    with connect(instance) as opened:
        count = opened.jobs.redrive(name, message_ids or None)
    say(f"put {counted(count, 'message')} back into the {name} queue")


@queue.command()
@queue_argument
@click.argument("message_ids", nargs=-1, metavar="[MESSAGE]...")
@force_option
@instance_option
def purge(name: str, message_ids: tuple[str, ...], *, force: bool, instance: str) -> None:
    """Delete dead letters of a QUEUE permanently: those named, or all.

    \b
    Example:
        sleeper queue purge ingest --force
    """
    with open_instance(instance) as opened:
        if not force:
            which = "the dead letters named" if message_ids else "ALL dead letters"
            click.confirm(f"delete {which} of the {name} queue permanently?", abort=True, err=True)
        count = opened.jobs.delete_dead_letters(name, message_ids or None)
    say(f"deleted {counted(count, 'dead letter')} of the {name} queue")
