"""The stack of compactions."""

from __future__ import annotations

from aws_cdk import App, Stack

from sleeper.deploy import grants
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.new_stack import new_stack
from sleeper.deploy.stacks.tasks import add_workers
from sleeper.model.jobs.events import JobKind
from sleeper.model.jobs.messages import QueueName


def add_compaction_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add CompactionStack: workers on Fargate plan, run and commit compactions."""
    stack = new_stack(app, settings, "CompactionStack", "compacts the files of tables")
    allowed = (
        *grants.write_tables(settings.names),
        *grants.track(settings.names, JobKind.COMPACTION),
        *grants.send(settings.names, QueueName.COMMIT),
    )
    minutes = settings.properties.tasks.compaction_period_minutes
    add_workers(stack, settings, "compaction", allowed, minutes=minutes)
    return stack
