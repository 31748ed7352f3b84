"""Builds the app of the CDK from all stacks, and writes its templates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aws_cdk import App, Stack

from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks import jobs, tables
from sleeper.deploy.stacks.app import Assembly, StackFile
from sleeper.deploy.stacks.eks import add_eks_stack
from sleeper.deploy.stacks.emr import add_emr_stack, add_persistent_emr_stack, add_serverless_stack
from sleeper.deploy.stacks.instance import (
    add_instance_stack,
    add_policies_stack,
    add_queues_stack,
)
from sleeper.deploy.stacks.jobs import add_committer_stack
from sleeper.deploy.stacks.parts import AddStack
from sleeper.deploy.stacks.watching import add_alarms_stack, add_dashboard_stack
from sleeper.deploy.stacks.workers import add_workers_stack
from sleeper.model.jobs.kinds import TASK_KINDS
from sleeper.model.stacks import StackName

OPTIONAL: Final[Mapping[StackName, AddStack]] = {
    **jobs.STACKS,
    **tables.STACKS,
    StackName.EMR_SERVERLESS: add_serverless_stack,
    StackName.EMR: add_emr_stack,
    StackName.PERSISTENT_EMR: add_persistent_emr_stack,
    StackName.EKS: add_eks_stack,
    StackName.DASHBOARD: add_dashboard_stack,
}
"""What adds each of the optional stacks."""

_CONTEXT: Final = {"aws:cdk:enable-path-metadata": False, "aws:cdk:version-reporting": False}


def build(settings: DeploymentSettings, app: App) -> tuple[Stack, ...]:
    """Add all stacks of a deployment to an app; return them, each after those that it needs."""
    made = [add(app, settings) for add in (add_instance_stack, add_queues_stack)]
    others = [add(app, settings) for add in (add_policies_stack, add_committer_stack)]
    if settings.has_tasks:
        others.append(add_workers_stack(app, settings))
    others += [OPTIONAL[each](app, settings) for each in settings.stacks]
    others.append(add_alarms_stack(app, settings))
    by_kind = {each.node.id: each for each in others}
    on_fargate = [each.stack for each in TASK_KINDS]
    for kind, stack in by_kind.items():
        needed = [*made, *([by_kind[StackName.WORKERS]] if kind in on_fargate else [])]
        for each in needed:
            stack.add_stack_dependency(each)
    return (*made, *others)


def synthesise_stacks(settings: DeploymentSettings, folder: Path) -> Assembly:
    """Write the templates of all stacks of a deployment to a folder."""
    app = App(outdir=str(folder), analytics_reporting=False, context=_CONTEXT)
    stacks = build(settings, app)
    app.synth()
    return Assembly(
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
