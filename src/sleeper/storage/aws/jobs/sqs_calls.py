"""Calls to a queue of SQS and to the queue of its dead letters, which are made at first use."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from threading import RLock
from typing import Any, Final

from sleeper.errors import PropertiesInvalid, StorageFailed
from sleeper.model.jobs.kinds import QUEUES, QueueName
from sleeper.model.jobs.messages import QueueSettings
from sleeper.storage.aws.clients import (
    OWNER_TAG,
    aws_failure,
    error_code,
    is_missing,
    owner_tag_value,
    vendor_errors,
)
from sleeper.storage.aws.jobs.sqs_messages import BATCH_MAX, Entry, batches, whole_seconds

# ---------------------------------------------------------------- sqs names
#
# Names of an instance's queues in SQS: those of upstream, where it has the queue.

_FIFO: Final = ".fifo"


@dataclass(frozen=True, slots=True)
class SqsNames:
    """The names of a queue in SQS and of the queue that has its dead letters."""

    queue: str
    dead: str


def sqs_names(prefix: str, name: QueueName, *, fifo: bool) -> SqsNames:
    """Return the names of a queue and its dead letters.

    >>> sqs_names("sleeper-demo-", QueueName.INGEST, fifo=False).queue
    'sleeper-demo-IngestJobQ'
    """
    queue, dead = QUEUES[name].in_sqs
    end = _FIFO if fifo else ""
    return SqsNames(prefix + queue + end, prefix + dead + end)


logger = logging.getLogger(__name__)

RETENTION_S: Final = 1_209_600  # 14 days: as long as SQS keeps a message
_EXISTS: Final = ("QueueAlreadyExists", "QueueNameExists")
_STALE: Final = (
    "InvalidParameterValue",
    "MessageNotInflight",
    "MissingParameter",
    "ReceiptHandleIsInvalid",
)
_TRIES: Final = 3
_PAUSE_S: Final = 0.5


class Side(Enum):
    """Which of the two queues."""

    QUEUE = "queue"
    DEAD = "dead letters"


class SqsCalls:
    """The calls to one queue and its dead letters. Safe for threads.

    Args:
        client: Returns boto3's client of SQS.
        names: The names of the two queues.
        owner: The URL of the instance.
        settings: How the queue delivers.
        sleep: Waits for so many seconds.
    """

    def __init__(
        self,
        client: Callable[[], Any],
        names: SqsNames,
        owner: str,
        settings: QueueSettings,
        *,
        sleep: Callable[[float], None],
    ) -> None:
        self._client, self._names, self._settings = client, names, settings
        self._owner = owner_tag_value(owner)
        self._sleep = sleep
        self._urls: dict[Side, str] = {}
        self._lock = RLock()

    def call(
        self, operation: str, side: Side = Side.QUEUE, *, make: bool = True, **parameters: Any
    ) -> dict[str, Any]:
        """Call an operation of SQS on one of the queues.

        Args:
            operation: The method of boto3's client.
            side: Which queue.
            make: Whether to make the queues if they are missing; if not, the answer is empty.
            parameters: What else the operation needs.

        Raises:
            PropertiesInvalid: the queue belongs to another instance.
            StorageFailed: it failed, after some tries.
        """
        try:
            return self._once(operation, side, make=make, **parameters)
        except vendor_errors() as error:
            if not is_missing(error):
                raise self.failed(error, operation, side) from error
            logger.warning("%s does not exist any more", self._named(side))
            self._urls.clear()
        try:
            return self._once(operation, side, make=make, **parameters)
        except vendor_errors() as error:
            raise self.failed(error, operation, side) from error

    def urls(self) -> tuple[str, str]:
        """Return the URLs of the queue and of its dead letters; make what is missing.

        Raises:
            PropertiesInvalid: the queue belongs to another instance.
            StorageFailed: they cannot be made.
        """
        queue, dead = self._url(Side.QUEUE, make=True), self._url(Side.DEAD, make=True)
        assert queue is not None
        assert dead is not None
        return queue, dead

    def is_done(self, operation: str, **parameters: Any) -> bool:
        """Call an operation on a delivery; return False if its receipt is stale."""
        if self._url(Side.QUEUE, make=False) is None:
            return False
        try:
            self._once(operation, Side.QUEUE, make=False, **parameters)
        except vendor_errors() as error:
            if error_code(error) in _STALE or is_missing(error):
                return False
            raise self.failed(error, operation, Side.QUEUE) from error
        return True

    def send(self, entries: Sequence[Entry], side: Side = Side.QUEUE) -> None:
        """Send messages, in order. What SQS refuses of a batch is sent again, a few times.

        Raises:
            StorageFailed: a message was not sent; those before it were, and some behind it may.
        """
        for batch in batches(entries):
            numbered = {str(number): entry for number, entry in enumerate(batch)}
            failed = self._batch("send_message_batch", side, numbered)
            if failed:
                raise self._refused("send_message_batch", side, failed, len(batch))

    def delete(self, receipts: Sequence[str], side: Side = Side.QUEUE) -> list[bool]:
        """Delete messages; return False for each whose receipt is stale.

        Raises:
            StorageFailed: SQS could not delete one of them.
        """
        return self._each("delete_message_batch", side, receipts, {})

    def show(self, receipts: Sequence[str], side: Side) -> None:
        """Make messages visible again."""
        self._each("change_message_visibility_batch", side, receipts, {"VisibilityTimeout": 0})

    def failed(self, error: Exception, operation: str, side: Side) -> StorageFailed:
        """Return our error for one of boto3."""
        looks = operation.startswith(("get_", "list_", "receive_"))
        permission = operation.removesuffix("_batch").title().replace("_", "")
        return aws_failure(
            error,
            operation.removesuffix("_batch").replace("_", " ") + " on",
            self._named(side),
            writes=not looks,
            permission=f"sqs:{permission}",
        )

    def _each(
        self, operation: str, side: Side, receipts: Sequence[str], how: dict[str, Any]
    ) -> list[bool]:
        done = []
        for start in range(0, len(receipts), BATCH_MAX):
            batch = receipts[start : start + BATCH_MAX]
            # An empty one makes SQS refuse the whole batch.
            entries = {
                str(number): {"ReceiptHandle": receipt, **how}
                for number, receipt in enumerate(batch)
                if receipt
            }
            failed = self._batch(operation, side, entries)
            lost = {key: code for key, code in failed.items() if code not in _STALE}
            if lost:
                raise self._refused(operation, side, lost, len(batch))
            done += [
                str(number) in entries and str(number) not in failed for number in range(len(batch))
            ]
        return done

    def _batch(self, operation: str, side: Side, entries: dict[str, Entry]) -> dict[str, str]:
        """Call a batch operation; return the codes of entries that failed, after some tries."""
        final: dict[str, str] = {}
        for attempt in range(_TRIES):
            if not entries:
                break
            if attempt:
                self._sleep(_PAUSE_S * 2**attempt)
            listed = [{"Id": key, **entry} for key, entry in entries.items()]
            failures = self.call(operation, side, Entries=listed).get("Failed", ())
            codes = {each["Id"]: _code(each) for each in failures}
            final |= {each["Id"]: codes[each["Id"]] for each in failures if each["SenderFault"]}
            entries = {key: entries[key] for key in codes if key not in final}
            if entries:
                logger.warning(
                    "%s: %d of %d entries of %s failed (%s)",
                    self._named(side),
                    len(entries),
                    len(listed),
                    operation,
                    ", ".join(sorted({codes[key] for key in entries})),
                )
        return final | {key: codes[key] for key in entries}

    def _refused(
        self, operation: str, side: Side, failed: dict[str, str], count: int
    ) -> StorageFailed:
        codes = ", ".join(sorted(set(failed.values())))
        return StorageFailed(
            f"cannot {operation.removesuffix('_batch').replace('_', ' ')} on {self._named(side)}: "
            f"SQS did not do it for {len(failed)} of {count} messages ({codes}), and did for the "
            "others. Try again later."
        )

    def _once(self, operation: str, side: Side, *, make: bool, **parameters: Any) -> dict[str, Any]:
        url = self._url(side, make=make)
        if url is None:
            return {}
        answer: dict[str, Any] = getattr(self._client(), operation)(QueueUrl=url, **parameters)
        return answer

    def _url(self, side: Side, *, make: bool) -> str | None:
        if side not in self._urls:
            with self._lock:
                found = self._found(side)
                if found is None and not make:
                    return None
                if found is not None:
                    self._check_owner(found, side)
                self._urls[side] = found or self._made(side)
        return self._urls.get(side)

    def _found(self, side: Side) -> str | None:
        try:
            return str(self._client().get_queue_url(QueueName=self._name(side))["QueueUrl"])
        except vendor_errors() as error:
            if is_missing(error):
                return None
            raise self.failed(error, "get_queue_url", side) from error

    def _made(self, side: Side) -> str:
        """Make a queue. Another process may make it too: one of them does."""
        attributes = {"MessageRetentionPeriod": str(RETENTION_S)}
        if self._settings.fifo:
            attributes["FifoQueue"] = "true"
        if side is Side.QUEUE:
            attributes["VisibilityTimeout"] = str(whole_seconds(self._settings.visibility_s))
            attributes["RedrivePolicy"] = self._redrive_policy()
        name = self._name(side)
        try:
            made = self._client().create_queue(
                QueueName=name, Attributes=attributes, tags={OWNER_TAG: self._owner}
            )
        except vendor_errors() as error:
            found = self._found(side) if error_code(error) in _EXISTS else None
            if found is None:
                raise self.failed(error, "create_queue", side) from error
            self._check_owner(found, side)
            return found
        logger.info("made %s in SQS", self._named(side))
        return str(made["QueueUrl"])

    def _check_owner(self, url: str, side: Side) -> None:
        """Refuse a queue that an instance with the same id made at another place.

        A queue without the tag was made by hand, or by upstream. Who only sends may not be allowed
        to look.
        """
        try:
            tags = self._client().list_queue_tags(QueueUrl=url).get("Tags", {})
        except vendor_errors() as error:
            failure = self.failed(error, "list_queue_tags", side)
            logger.debug("not checked which instance a queue belongs to: %s", failure)
            return
        owner = tags.get(OWNER_TAG, self._owner)
        if owner != self._owner:
            raise PropertiesInvalid(
                {
                    "sleeper.id": f"{self._named(side)} belongs to the instance at {owner}, which "
                    f"has the same sleeper.id as the one at {self._owner}: each would take the "
                    "other's jobs. Make one of them with another id. If the instance was moved, "
                    f"remove the tag {OWNER_TAG} from its queues."
                }
            )

    def _redrive_policy(self) -> str:
        answer = self.call("get_queue_attributes", Side.DEAD, AttributeNames=["QueueArn"])
        return json.dumps(
            {
                "deadLetterTargetArn": answer["Attributes"]["QueueArn"],
                "maxReceiveCount": str(self._settings.receives_max),
            }
        )

    def _name(self, side: Side) -> str:
        return self._names.queue if side is Side.QUEUE else self._names.dead

    def _named(self, side: Side) -> str:
        return f"queue {self._name(side)!r}"


def _code(failure: dict[str, Any]) -> str:
    return str(failure.get("Code") or "").rpartition(".")[2]
