"""An operation on every online table: at most one of a table at once."""

from __future__ import annotations

from aws_cdk import Stack

from sleeper.deploy.grants import Grant, consume_from, look_for_work, send_to
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.functions import FunctionSpec, add_function, add_queue_source
from sleeper.deploy.stacks.queues import add_queue
from sleeper.deploy.stacks.schedules import add_schedule
from sleeper.language.value_classes import dataclass
from sleeper.model.jobs.messages import QueueSettings
from sleeper.storage.aws.jobs.sqs_names import SqsNames


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOperation:
    """An operation to add.

    Attributes:
        operation: What handlers call it, such as `split`.
        name: The name of its function, after the instance's prefix.
        queues: The names of its queue and of that of its dead letters.
        minutes: How often every table gets a message.
        memory_mb: Memory of the function.
        timeout_s: How long the function may take.
        batch: Tables in one call, at most.
        reserved: Concurrency of the account that it has for itself; None for none.
        at_once: Tables at once, at most.
        grants: What the function may do, but for opening the instance and taking messages.
    """

    operation: str
    name: str
    queues: SqsNames
    minutes: int
    memory_mb: int
    timeout_s: int
    batch: int
    reserved: int | None
    at_once: int
    grants: tuple[Grant, ...]


def add_table_operation(
    stack: Stack, settings: DeploymentSettings, operation: TableOperation
) -> None:
    """Add what an operation needs.

    A schedule calls the trigger, which sends one message for each online table to a FIFO queue; the
    table's id is its group, so the function is not called twice at once for a table.
    """
    names, lambdas = settings.names, settings.properties.lambdas
    queue = operation.queues.queue
    visibility_s = float(operation.timeout_s)
    add_queue(stack, operation.queues, QueueSettings(fifo=True, visibility_s=visibility_s))
    trigger = FunctionSpec(
        name=f"{operation.name}-trigger",
        handler="trigger_tables",
        description=f"Sends a message for each online table, to {operation.operation} it",
        memory_mb=lambdas.trigger_memory_mb,
        timeout_s=lambdas.trigger_timeout_s,
        grants=(*look_for_work(names), *send_to(names, queue)),
        environment={"SLEEPER_TABLES_QUEUE_URL": names.queue_url(queue)},
    )
    add_function(stack, settings, trigger)
    add_schedule(
        stack,
        settings,
        f"{operation.name}-rule",
        function=trigger.name,
        minutes=operation.minutes,
        event={"operation": operation.operation},
    )
    run = FunctionSpec(
        name=operation.name,
        handler="run_tables",
        description=f"Does {operation.operation} of one table after the other",
        memory_mb=operation.memory_mb,
        timeout_s=operation.timeout_s,
        grants=(*operation.grants, *consume_from(names, queue)),
        environment={},
        reserved=operation.reserved,
    )
    made = add_function(stack, settings, run)
    made.node.add_dependency(stack.node.find_child(queue))
    add_queue_source(
        stack, made, names.queue_arn(queue), batch=operation.batch, at_once=operation.at_once
    )
