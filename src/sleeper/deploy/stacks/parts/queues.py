"""Queues of SQS, each with a queue for its dead letters."""

from __future__ import annotations

from typing import Final

from aws_cdk import Duration, Stack
from aws_cdk import aws_sqs as sqs

from sleeper.model.jobs.messages import QueueSettings
from sleeper.storage.aws.jobs.sqs_calls import RETENTION_S
from sleeper.storage.aws.jobs.sqs_messages import whole_seconds

_KEPT: Final = RETENTION_S


def add_queue(stack: Stack, queue: str, dead_letters: str, settings: QueueSettings) -> None:
    """Add a queue and that of its dead letters.

    Both are encrypted by SQS, and take requests over TLS only.

    Args:
        stack: Where.
        queue: Its name.
        dead_letters: The name of the other.
        settings: How it delivers.
    """
    dead = sqs.Queue(
        stack,
        dead_letters,
        queue_name=dead_letters,
        fifo=settings.fifo or None,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=Duration.seconds(_KEPT),
    )
    sqs.Queue(
        stack,
        queue,
        queue_name=queue,
        fifo=settings.fifo or None,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=Duration.seconds(_KEPT),
        visibility_timeout=Duration.seconds(whole_seconds(settings.visibility_s)),
        dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=settings.receives_max),
    )
