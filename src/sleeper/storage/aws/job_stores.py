"""Everything that jobs need, in SQS and DynamoDB."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial

from sleeper.model.jobs.messages import QueueName, QueueSettings
from sleeper.ports.ids import NewId
from sleeper.storage.aws.clients import aws_client
from sleeper.storage.aws.sqs_names import resource_prefix
from sleeper.storage.aws.sqs_queue import SqsQueue


class AwsJobStores:
    """Queues of one instance in SQS. Each is made at its first use.

    Args:
        instance_id: The instance's id, which their names have.
        settings: How queues deliver; one that is missing has the default settings.
        region: The region of AWS; None for the one that boto3 finds.
        now: The clock (aware, UTC).
        sleep: Waits for so many seconds.
        new_id: Makes an id that no other process uses.
        look_s: How long a look at dead letters waits for more.

    Raises:
        PropertiesInvalid: names in AWS cannot have the id.
    """

    def __init__(
        self,
        instance_id: str,
        settings: Mapping[QueueName, QueueSettings],
        *,
        region: str | None,
        now: Callable[[], datetime],
        sleep: Callable[[float], None],
        new_id: NewId,
        look_s: int = 1,
    ) -> None:
        prefix = resource_prefix(instance_id)
        self._queues = {
            name: SqsQueue(
                partial(aws_client, "sqs", region),
                prefix,
                name,
                settings.get(name, QueueSettings()),
                sleep=sleep,
                new_id=new_id,
                look_s=look_s,
            )
            for name in QueueName
        }

    def queue(self, name: QueueName) -> SqsQueue:
        """Return one of the queues, the same each time."""
        return self._queues[name]

    def close(self) -> None:
        """Do nothing: connections belong to the process."""
