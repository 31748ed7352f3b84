"""Builds all stacks of a deployment, in any app of the CDK, and writes templates of our own app."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aws_cdk import App, LegacyStackSynthesizer, Stack
from constructs import Construct

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
from sleeper.deploy.stacks.properties import add_properties_stack
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


def build(settings: DeploymentSettings, scope: Construct) -> tuple[Stack, ...]:
    """Add all stacks of a deployment; return them, each after those that it needs.

    Args:
        settings: The settings of the deployment.
        scope: Where: an app or a stage gets stacks of their own, in a stack they are nested.
    """
    made = [add(scope, settings) for add in (add_instance_stack, add_queues_stack)]
    properties = add_properties_stack(scope, settings)
    added = (add_policies_stack, add_committer_stack, add_workers_stack)
    others = [add(scope, settings) for add in added]
    others += [OPTIONAL[each](scope, settings) for each in settings.stacks]
    others.append(add_alarms_stack(scope, settings))
    by_kind = {each.node.id: each for each in others}
    on_fargate = [each.stack for each in TASK_KINDS]
    for each in made:
        properties.add_stack_dependency(each)
    for kind, stack in by_kind.items():
        # What begins to run finds an instance.
        needed = [*made, properties, *([by_kind[StackName.WORKERS]] if kind in on_fargate else [])]
        for each in needed:
            stack.add_stack_dependency(each)
    return (*made, properties, *others)


def synthesise_stacks(settings: DeploymentSettings, folder: Path) -> Assembly:
    """Write the templates of all stacks of a deployment to a folder."""
    app = App(
        outdir=str(folder),
        analytics_reporting=False,
        context=_CONTEXT,
        default_stack_synthesizer=LegacyStackSynthesizer(),  # needs no bootstrap of the account
    )
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
