"""Everything that jobs need, in SQS and DynamoDB."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial

from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.messages import QueueSettings
from sleeper.ports.ids import NewId
from sleeper.storage.aws.clients import aws_client, resource_prefix
from sleeper.storage.aws.dynamo_tables import DynamoTables
from sleeper.storage.aws.jobs.dynamo_batcher_store import DynamoBatcherStore
from sleeper.storage.aws.jobs.dynamo_tracker import DynamoTracker
from sleeper.storage.aws.jobs.queue_functions import SendersCall
from sleeper.storage.aws.jobs.sqs_queue import SqsQueue


class AwsJobStores:
    """Queues of one instance in SQS, tracker and batcher store in DynamoDB.

    Each queue and table is made at its first use.

    Args:
        instance_id: The instance's id, which their names have.
        instance_url: Where the instance is; queues of an instance elsewhere are refused.
        settings: How queues deliver; one that is missing has the default settings.
        region: The region of AWS; None for the one that boto3 finds.
        now: The clock (aware, UTC).
        sleep: Waits for so many seconds.
        pause: Waits before another attempt, with jitter, given how many there were.
        new_id: Makes an id that no other process uses.
        look_s: How long a look at dead letters waits for more.

    Raises:
        PropertiesInvalid: names in AWS cannot have the id.
    """

    def __init__(
        self,
        instance_id: str,
        instance_url: str,
        settings: Mapping[QueueName, QueueSettings],
        *,
        region: str | None,
        now: Callable[[], datetime],
        sleep: Callable[[float], None],
        pause: Callable[[int], None],
        new_id: NewId,
        look_s: int = 1,
    ) -> None:
        prefix = resource_prefix(instance_id)
        client = partial(aws_client, "dynamodb", region)
        tables = DynamoTables(client, prefix, pause=pause, new_id=new_id, owner=instance_url)
        self._tracker = DynamoTracker(tables, now=now, pause=pause)
        self._batcher = DynamoBatcherStore(tables, now=now)
        quick = partial(aws_client, "lambda", region, is_quick=True)
        calls = {
            name: SendersCall(quick, prefix + given.function, name, now=now)
            for name, given in settings.items()
            if given.function is not None
        }
        self._queues = {
            name: SqsQueue(
                partial(aws_client, "sqs", region),
                prefix,
                name,
                instance_url,
                settings.get(name, QueueSettings()),
                sleep=sleep,
                new_id=new_id,
                look_s=look_s,
                sent=calls.get(name),
            )
            for name in QueueName
        }

    are_charged = True
    """Amazon charges for each request."""

    @property
    def tracker(self) -> DynamoTracker:
        """The events of jobs and tasks."""
        return self._tracker

    @property
    def batcher(self) -> DynamoBatcherStore:
        """The files that were submitted to the ingest batcher."""
        return self._batcher

    def queue(self, name: QueueName) -> SqsQueue:
        """Return one of the queues, the same each time."""
        return self._queues[name]

    def erase_deleted(self) -> None:
        """Do nothing: nobody reads what was deleted."""

    def close(self) -> None:
        """Do nothing: connections belong to the process."""
