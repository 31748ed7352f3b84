"""`sleeper init`."""

from __future__ import annotations

import click

from sleeper.instance.instance import create_instance
from sleeper.interfaces.cli.completion import complete_instance_settings
from sleeper.interfaces.cli.options import split_pairs
from sleeper.interfaces.cli.present import say


@click.command()
@click.argument("url")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="K=V",
    shell_complete=complete_instance_settings,
    help="An instance property.",
)
def init(url: str, settings: tuple[str, ...]) -> None:
    """Create an instance at URL: a folder, s3://bucket/folder, or aws://ID.

    For aws://ID its buckets, tables in DynamoDB and queues are made in the
    account and the region of the environment. If that was interrupted, the
    same command goes on where it stopped.

    \b
    Examples:
        sleeper init /data/demo
        sleeper init aws://demo
    """
    properties = dict(split_pairs(settings, "--set"))
    instance = create_instance(url, properties)
    say(f"made instance {instance.instance_id} at {instance.url}")
