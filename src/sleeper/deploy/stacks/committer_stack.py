"""The stack of the committer, which commits to tables what others ask it to."""

from __future__ import annotations

from aws_cdk import App, Stack

from sleeper.deploy import grants
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.functions import FunctionSpec, add_function, add_queue_source
from sleeper.deploy.stacks.new_stack import new_stack
from sleeper.model.jobs.events import JobKind
from sleeper.model.jobs.messages import QueueName


def add_committer_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add StateStoreCommitterStack. Requests of one table are committed in order."""
    stack = new_stack(app, settings, "StateStoreCommitterStack", "commits what workers ask it to")
    names, lambdas = settings.names, settings.properties.lambdas
    reserved, at_once = settings.at_once(lambdas.committer_reserved, lambdas.committer_max)
    committer = FunctionSpec(
        name="committer",
        handler="commit",
        description="Commits requests of the queue to tables",
        memory_mb=settings.memory_mb(lambdas.committer_memory_mb),
        timeout_s=settings.timeout_s(lambdas.committer_timeout_s, QueueName.COMMIT),
        grants=(
            *grants.write_tables(names),
            *grants.track(names, JobKind.INGEST, JobKind.COMPACTION),
            *grants.consume(names, QueueName.COMMIT),
        ),
        environment={},
        reserved=reserved,
    )
    function = add_function(stack, settings, committer)
    add_queue_source(
        stack,
        function,
        names.queue_arn(names.queue(QueueName.COMMIT)),
        batch=settings.properties.committer.batch_size,
        at_once=at_once,
    )
    return stack
