"""Queues of SQS, each with a queue for its dead letters."""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_sqs as sqs

from sleeper.model.jobs.messages import QueueSettings
from sleeper.storage.aws.jobs.sqs_calls import RETENTION_S
from sleeper.storage.aws.jobs.sqs_messages import whole_seconds
from sleeper.storage.aws.jobs.sqs_names import SqsNames


def add_queue(stack: Stack, names: SqsNames, settings: QueueSettings) -> None:
    """Add a queue and that of its dead letters.

    Both are encrypted by SQS, and take requests over TLS only.

    Args:
        stack: Where.
        names: Its name and that of the other.
        settings: How it delivers.
    """
    dead = sqs.Queue(
        stack,
        names.dead,
        queue_name=names.dead,
        fifo=settings.fifo or None,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=Duration.seconds(RETENTION_S),
    )
    sqs.Queue(
        stack,
        names.queue,
        queue_name=names.queue,
        fifo=settings.fifo or None,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=Duration.seconds(RETENTION_S),
        visibility_timeout=Duration.seconds(whole_seconds(settings.visibility_s)),
        dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=settings.receives_max),
    )
