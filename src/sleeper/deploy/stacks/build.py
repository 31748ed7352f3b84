"""Builds the app of the CDK from all stacks, and writes its templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from aws_cdk import App, Stack

from sleeper.deploy.fargate_sizes import ON_FARGATE
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.alarms import add_alarms_stack
from sleeper.deploy.stacks.app import StackFile, Synthesised
from sleeper.deploy.stacks.committer_stack import add_committer_stack
from sleeper.deploy.stacks.compaction_stack import add_compaction_stack
from sleeper.deploy.stacks.dashboard import add_dashboard_stack
from sleeper.deploy.stacks.eks import add_eks_stack
from sleeper.deploy.stacks.emr import add_emr_stack, add_persistent_emr_stack
from sleeper.deploy.stacks.emr_serverless import add_serverless_stack
from sleeper.deploy.stacks.ingest_stacks import add_batcher_stack, add_ingest_stack
from sleeper.deploy.stacks.instance_stack import add_instance_stack, add_queues_stack
from sleeper.deploy.stacks.metrics import add_metrics_stack
from sleeper.deploy.stacks.policies import add_policies_stack
from sleeper.deploy.stacks.reading_stacks import add_export_stack, add_query_stack
from sleeper.deploy.stacks.table_operations import add_garbage_stack, add_splitting_stack
from sleeper.deploy.stacks.workers import add_workers_stack

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
