"""`sleeper init`."""

from __future__ import annotations

from pathlib import Path

import click

from sleeper.instance.instance import create_instance
from sleeper.interfaces.cli.completion import complete_instance_settings
from sleeper.interfaces.cli.options import given_properties, properties_file_option
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
@properties_file_option
def init(url: str, settings: tuple[str, ...], properties_file: Path | None) -> None:
    """Create an instance at URL: a folder, s3://bucket/folder, or aws://ID.

    For aws://ID its buckets, tables in DynamoDB and queues are made in the
    account and the region of the environment. If that was interrupted, the
    same command goes on where it stopped.

    \b
    Examples:
        sleeper init /data/demo
        sleeper init aws://demo
        sleeper init /data/demo --properties instance.properties
    """
    instance = create_instance(url, given_properties(properties_file, settings))
    say(f"made instance {instance.instance_id} at {instance.url}")
