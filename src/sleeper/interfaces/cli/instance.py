"""`sleeper instance`: shows and changes the properties of an instance."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from sleeper.deploy.stack_properties import needs_deployment
from sleeper.instance.configuration import write_configuration
from sleeper.instance.instance import connect
from sleeper.interfaces.cli.completion import (
    complete_instance_properties,
    complete_instance_settings,
)
from sleeper.interfaces.cli.options import instance_option, json_option, split_pairs
from sleeper.interfaces.cli.present import print_facts, print_grid, print_json, say

_VERSION = "sleeper.version"
"""What a deployment sets."""

_IN_FORCE = (
    "in force for every command and process that starts from now on; a sleeper serve that runs "
    "uses it from its next round on"
)


@click.group()
def instance() -> None:
    """Show and change the properties of an instance.

    \b
    Example:
        sleeper instance set sleeper.default.table.gc.delay.minutes=60
    """


@instance.command()
@instance_option
@json_option
def show(instance: str, *, as_json: bool) -> None:
    """Show all properties in force, and which of them are set.

    Properties that are not set have their default. Those that nothing uses are
    shown where they are set.

    \b
    Example:
        sleeper instance show
    """
    with connect(instance) as opened:
        properties = opened.properties
        id_, url = opened.instance_id, opened.url
    version = properties.general.properties_version
    if as_json:
        print_json({"id": id_, "url": url, "version": version, "properties": properties.in_force()})
        return
    print_facts([("id", id_), ("url", url), ("version", version)])
    click.echo()
    print_grid(
        ["", "property", "value"],
        [
            ["fixed" if each.is_fixed else "set" if each.is_set else "", each.name, each.value]
            for each in properties.in_force()
        ],
        as_values=True,
    )


@instance.command("set")
@click.argument(
    "settings", nargs=-1, required=True, metavar="K=V...", shell_complete=complete_instance_settings
)
@instance_option
def set_properties(settings: tuple[str, ...], instance: str) -> None:
    """Set properties of the instance; an empty value resets to the default.

    All are set together, or none. A change that somebody else makes at the same
    time is kept.

    \b
    Example:
        sleeper instance set sleeper.gc.batch.size=5000
    """
    _change({key: value or None for key, value in split_pairs(settings, "K=V")}, instance)


@instance.command()
@click.argument(
    "names", nargs=-1, required=True, metavar="K...", shell_complete=complete_instance_properties
)
@instance_option
def unset(names: tuple[str, ...], instance: str) -> None:
    """Reset properties of the instance to their defaults.

    \b
    Example:
        sleeper instance unset sleeper.gc.batch.size
    """
    _change(dict.fromkeys(names), instance)


@instance.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@instance_option
def download(folder: Path, instance: str) -> None:
    """Write the configuration into FOLDER: properties, schemas, split points.

    FOLDER must be new or empty. The files have what was set; ids, and names of
    buckets and queues are left out. They make another instance like this one:

    \b
        sleeper init /data/other --properties FOLDER/instance.properties
        sleeper table add flights --instance /data/other \\
            --schema FOLDER/tables/flights/schema.json \\
            --properties FOLDER/tables/flights/table.properties \\
            --splits-file FOLDER/tables/flights/splits.txt

    \b
    Example:
        sleeper instance download configuration
    """
    with connect(instance) as opened:
        for path in write_configuration(opened, folder):
            say(f"wrote {path}")


def _change(changes: Mapping[str, str | None], url: str) -> None:
    with connect(url) as opened:
        opened.set_properties(changes)
        is_deployed = _VERSION in opened.properties.values
        name = opened.url.removeprefix("aws://")
    for key, value in changes.items():
        say(f"{key} = {value}" if value is not None else f"{key} is back to its default")
    waiting = needs_deployment(changes) if is_deployed else ()
    if waiting:
        settings = " ".join(f"--set {key}={changes[key] or ''}" for key in waiting)
        say(
            f"stored, but stacks in AWS are made from {', '.join(waiting)}, and they have not "
            f"changed: sleeper deploy aws {name} {settings}"
        )
    if len(waiting) < len(changes):
        say(_IN_FORCE)
