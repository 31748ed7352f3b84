"""Builds the app of the CDK from all stacks, and writes its templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from aws_cdk import App, Stack

from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.app import StackFile, Synthesised
from sleeper.deploy.stacks.instance.instance_stack import (
    add_instance_stack,
    add_queues_stack,
)
from sleeper.deploy.stacks.tables.table_operations import (
    add_garbage_stack,
)

AddStack = Callable[[App, DeploymentSettings], Stack]

_OPTIONAL: Final[Mapping[str, AddStack]] = {
    "GarbageCollectorStack": add_garbage_stack,
}
"""The optional stacks."""

_CONTEXT: Final = {"aws:cdk:enable-path-metadata": False, "aws:cdk:version-reporting": False}


def build(settings: DeploymentSettings, app: App) -> tuple[Stack, ...]:
    """Add all stacks of a deployment to an app; return them, each after those that it needs."""
    core = (add_instance_stack(app, settings), add_queues_stack(app, settings))
    optional = [_OPTIONAL[each](app, settings) for each in settings.stacks if each in _OPTIONAL]
    for stack in optional:
        for needed in core:
            stack.add_stack_dependency(needed)
    return (*core, *optional)


def synthesise_stacks(settings: DeploymentSettings, folder: Path) -> Synthesised:
    """Write the templates of all stacks of a deployment to a folder."""
    app = App(outdir=str(folder), analytics_reporting=False, context=_CONTEXT)
    stacks = build(settings, app)
    app.synth()
    return Synthesised(
        folder,
        tuple(
            StackFile(
                kind=stack.node.id,
                name=stack.stack_name,
                template=folder / stack.template_file,
                needs=tuple(each.node.id for each in stack.dependencies),
            )
            for stack in stacks
        ),
    )
