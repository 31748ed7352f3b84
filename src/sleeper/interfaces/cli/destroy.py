"""`sleeper destroy`: removes an instance with all its data."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING

import click

from sleeper.errors import InstanceNotFound
from sleeper.instance.destroy import Removal
from sleeper.instance.instance import connect, process_environment, removal_of
from sleeper.interfaces.cli.options import ask, ask_for_name
from sleeper.interfaces.cli.present import counted, print_grid, say
from sleeper.model.object_stores import ObjectStoreSettings
from sleeper.ports.objects import Belonging

if TYPE_CHECKING:  # which need an extra
    from sleeper.deploy.flow.deployed_stacks import DeployedStacks
    from sleeper.deploy.flow.removal import DeployedRemoval


@click.command()
@click.argument("url")
@click.option("--yes", is_flag=True, help="Do not ask.")
def destroy(url: str, *, yes: bool) -> None:
    """Remove the instance at URL with all its tables. This cannot be undone.

    What will be removed is listed first: tables, buckets, queues, and how much
    they hold. Only what belongs to the instance is removed: in a folder or a
    bucket the files that Sleeper made; of aws://ID its buckets with all objects,
    and queues and tables in DynamoDB that have its tag. One that sleeper deploy made
    loses its stacks too, and keeps its buckets and tables while
    sleeper.retain.infra.after.destroy is true. The id must be typed where tables are
    lost; --yes stands for that. After an interruption the same command goes on where
    it stopped. Stop sleeper serve before.

    \b
    Examples:
        sleeper destroy /data/demo
        sleeper destroy aws://demo --yes
    """
    listed = _listed(url)
    deployed = _deployed(url, listed)
    if deployed is not None:
        _destroy_deployed(*deployed, yes=yes)
        return
    if listed is None:
        listed = removal_of(url)  # which says what is missing
    _show(listed.belongings)
    if listed.others:
        some = ", ".join(listed.other_keys)
        say(f"{counted(listed.others, 'other file')} in {listed.url} will stay: {some}")
    if not yes:
        _confirm(listed.url, listed.table_names, (listed.values or {}).get("sleeper.id"))
    listed.carry_out(lambda each: say(f"removing {each.kind} {each.name}"))
    say(f"removed the instance at {listed.url}")


def _listed(url: str) -> Removal | None:
    """List what belongs to an instance; None without any, of which stacks may be left."""
    with suppress(InstanceNotFound):
        return removal_of(url)
    return None


def _deployed(url: str, data: Removal | None) -> tuple[DeployedRemoval, DeployedStacks] | None:
    """Return the stacks of an instance, and how they are removed; None for one without stacks."""
    if not url.startswith("aws://"):
        return None
    # Only an instance in AWS has stacks to be removed: others need no client of CloudFormation.
    from sleeper.deploy.flow.deployed_stacks import DeployedStacks
    from sleeper.deploy.flow.removal import plan_deployed_removal
    from sleeper.storage.aws.deployment.identity import aws_identity
    from sleeper.storage.aws.deployment.names import instance_id_of

    stores = ObjectStoreSettings.of(process_environment())
    region = aws_identity(stores.region).region
    name = instance_id_of(url)
    stacks = DeployedStacks(name, region, rest=Event().wait)
    found = plan_deployed_removal(url, stacks, None if data is None else data.values, data)
    return None if found is None else (found, stacks)


def _destroy_deployed(found: DeployedRemoval, stacks: DeployedStacks, *, yes: bool) -> None:
    from sleeper.deploy.names import RETAIN
    from sleeper.storage.aws.deployment.names import instance_id_of

    for name in found.stacks:
        say(f"stack {name}")
    _show(() if found.keeps_data else found.belongings)
    if found.keeps_data:
        say(f"buckets and tables stay with all they hold: {RETAIN} is true")
    if not yes:
        tables = () if found.keeps_data else found.table_names
        _confirm(found.url, tables, instance_id_of(found.url))
    pause = None
    if found.data is not None and found.data.values is not None:
        pause = connect(found.url).pause_switch
    found.carry_out(stacks, pause, say)
    kept = ", but for its buckets and tables" if found.keeps_data else ""
    say(f"removed the instance at {found.url}{kept}")


def _show(belongings: Sequence[Belonging]) -> None:
    print_grid(
        ["removed", "name", "holds"],
        [[each.kind, each.name, f"{each.count} {each.unit}"] for each in belongings],
    )


def _confirm(url: str, tables: Sequence[str], instance_id: str | None) -> None:
    """Ask whether an instance is to be removed; its id must be typed while it has tables."""
    if tables and instance_id:
        say(f"{url} has {counted(len(tables), 'table')}, whose rows will be lost")
        ask_for_name(instance_id, f"remove {url}. This cannot be undone", "--yes")
        return
    ask(f"Remove {url}? This cannot be undone.", "--yes")
