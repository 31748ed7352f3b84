"""Commands for those who operate an instance: copy it, pause it, resume it, remove it."""

from __future__ import annotations

import click

from sleeper.instance.instance import connect, removal_of
from sleeper.interfaces.cli.terminal.options import ask, instance_option, json_option
from sleeper.interfaces.cli.terminal.present import counted, print_grid, print_json, say


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


@click.command()
@instance_option
def pause(instance: str) -> None:
    """Stop all services and workers of the instance from beginning anything.

    No job is begun and no table is maintained, on any machine, until sleeper
    resume. Running jobs are finished. Queries go on, and so do commands
    such as sleeper ingest. sleeper report shows a pause.

    \b
    Example:
        sleeper pause
    """
    with connect(instance) as opened:
        opened.pause_switch.pause()
        say(f"paused since {opened.pause_switch.paused_since()}")


@click.command()
@instance_option
def resume(instance: str) -> None:
    """Let services and workers continue after sleeper pause.

    \b
    Example:
        sleeper resume
    """
    with connect(instance) as opened:
        opened.pause_switch.resume()
    say("services and workers continue")


@click.command()
@click.argument("url")
@click.option("--yes", is_flag=True, help="Do not ask.")
def destroy(url: str, *, yes: bool) -> None:
    """Remove the instance at URL with all its tables. This cannot be undone.

    What will be removed is listed first: tables, buckets, queues, and how much
    they hold. Only what belongs to the instance is removed: in a folder or a
    bucket the files that Sleeper made; of aws://ID its buckets with all objects,
    and queues and tables in DynamoDB that have its tag. After an interruption the
    same command goes on where it stopped. Stop sleeper serve before.

    \b
    Examples:
        sleeper destroy /data/demo
        sleeper destroy aws://demo --yes
    """
    removal = removal_of(url)
    print_grid(
        ["removed", "name", "holds"],
        [[each.kind, each.name, f"{each.count} {each.unit}"] for each in removal.belongings],
    )
    if removal.others:
        some = ", ".join(removal.other_keys)
        say(f"{counted(removal.others, 'other file')} in {removal.url} will stay: {some}")
    if not yes:
        ask(f"Remove {removal.url}? This cannot be undone.", "--yes")
    removal.carry_out(lambda each: say(f"removing {each.kind} {each.name}"))
    say(f"removed the instance at {removal.url}")
