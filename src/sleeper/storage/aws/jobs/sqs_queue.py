"""A queue in SQS."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any, Final

from sleeper.errors import StorageFailed
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.messages import (
    DELAY_MAX_S,
    DeadLetter,
    NewMessage,
    QueueDepth,
    QueueSettings,
    ReceivedMessage,
    check_hidden,
    check_new_messages,
    check_receive,
)
from sleeper.ports.ids import NewId
from sleeper.storage.aws.jobs.sqs_calls import Side, SqsCalls, sqs_names
from sleeper.storage.aws.jobs.sqs_messages import (
    ATTRIBUTES,
    BATCH_MAX,
    SYSTEM_ATTRIBUTES,
    Delivery,
    again_entry,
    buried_entry,
    check_characters,
    dead_letter_of,
    delivery_of,
    new_entry,
    redriven_entry,
    whole_seconds,
)

logger = logging.getLogger(__name__)

_UNDER_WAY_MAX: Final = 1_000
_UNDER_WAY_CHARACTERS_MAX: Final = 64 << 20
_LOOKED_AT_MAX: Final = 1_000
_RECEIVES_MAX: Final = 1_000  # of a redrive policy
_HELD_S: Final = 60
"""For how long a message is hidden while it is moved, and a dead letter while it is looked at."""


class SqsQueue:
    """One queue in SQS, with its dead letters in another. Both are made at first use.

    SQS cannot tell every stale receipt, and not how old the oldest message is. A message that is
    buried, or released uncounted, is sent once more and then deleted: a process that is killed in
    between leaves it twice. Both need the message, so they work for the last 1,000 messages that
    this process received. Of more than 1,000 dead letters, those that SQS returns first are
    looked at. Dead letters are hidden from others for a moment while they are looked at.

    Args:
        client: Returns boto3's client of SQS.
        prefix: What the queue's name begins with.
        name: Which queue.
        owner: The URL of the instance, which a queue that is made remembers as a tag.
        settings: How it delivers.
        sleep: Waits for so many seconds.
        new_id: Makes ids of requests.
        look_s: How long a look at dead letters waits for more; short ones may miss some.
        sent: Called after messages were sent; None for nothing.
    """

    def __init__(
        self,
        client: Callable[[], Any],
        prefix: str,
        name: QueueName,
        owner: str,
        settings: QueueSettings,
        *,
        sleep: Callable[[float], None],
        new_id: NewId,
        look_s: int = 1,
        sent: Callable[[], None] | None = None,
    ) -> None:
        names = sqs_names(prefix, name, fifo=settings.fifo)
        fits = replace(settings, receives_max=min(settings.receives_max, _RECEIVES_MAX))
        self._calls = SqsCalls(client, names, owner, fits, sleep=sleep)
        self._name, self._settings = name, fits
        self._new_id, self._look_s, self._sent = new_id, look_s, sent
        self._under_way = _UnderWay()

    def urls(self) -> tuple[str, str]:
        """Return the URLs of the queue and of its dead letters; both are made if missing."""
        return self._calls.urls()

    @property
    def is_fifo(self) -> bool:
        """Whether messages of a group stay in order."""
        return self._settings.fifo

    def adopt(self, deliveries: Sequence[Delivery]) -> None:
        """Take note of messages that another received for this process."""
        self._under_way.add(deliveries)

    def send(self, messages: Sequence[NewMessage]) -> None:
        """Send messages, ten at a time."""
        check_new_messages(messages, self._name, self._settings)
        check_characters(messages)
        self._calls.send([new_entry(message, self._new_id()) for message in messages])
        if self._sent is not None and messages:
            self._sent()

    def receive(
        self, count_max: int = 1, *, wait_s: float = 0.0, visibility_s: float | None = None
    ) -> list[ReceivedMessage]:
        """Receive messages, ten at a time. Times are rounded up to whole seconds."""
        found = self.deliveries(count_max, wait_s=wait_s, visibility_s=visibility_s)
        return [each.message for each in found]

    def deliveries(
        self, count_max: int = 1, *, wait_s: float = 0.0, visibility_s: float | None = None
    ) -> list[Delivery]:
        """Receive messages as `receive` does; return them with their ids in SQS."""
        hidden_s = self._settings.visibility_s if visibility_s is None else visibility_s
        check_receive(count_max, wait_s, hidden_s)
        received: list[Delivery] = []
        while len(received) < count_max:
            asked = min(BATCH_MAX, count_max - len(received))
            try:
                found = self._received(Side.QUEUE, asked, 0.0 if received else wait_s, hidden_s)
            except StorageFailed as error:
                if not received:
                    raise
                logger.warning("%s; %d messages were received before", error, len(received))
                break
            deliveries = [delivery_of(each) for each in found]
            self._under_way.add(deliveries)
            received += deliveries
            if len(found) < asked:
                break
        return received

    def extend(self, receipt: str, visibility_s: float) -> bool:
        """Hide a message from now on."""
        check_hidden(visibility_s, "visibility_s")
        return self._hide(receipt, visibility_s)

    def release(self, receipt: str, delay_s: float = 0.0, *, counted: bool = True) -> bool:
        """Let a message be received again; uncounted by another message in its place."""
        check_hidden(delay_s, "delay_s")
        if counted or self._settings.fifo or delay_s > DELAY_MAX_S:
            return self._hide(receipt, delay_s)
        delivery = self._held(receipt)
        if delivery is None:
            return False
        self._calls.send([again_entry(delivery.message, self._new_id(), delay_s)])
        self.delete([receipt])
        return True

    def delete(self, receipts: Sequence[str]) -> list[bool]:
        """Delete messages, ten at a time."""
        deleted = self._calls.delete(receipts)
        self._under_way.forget(receipts)
        return deleted

    def bury(self, receipt: str, reason: str) -> bool:
        """Send a message to the dead letters, with the reason, and delete it."""
        delivery = self._held(receipt)
        if delivery is None:
            return False
        self._calls.send([buried_entry(delivery, reason)], Side.DEAD)
        self.delete([receipt])
        return True

    def dead_letters(self, count_max: int = 100) -> list[DeadLetter]:
        """Receive dead letters, and make them visible again."""
        oldest: list[DeadLetter] = []
        receipts: list[str] = []
        try:
            for letters in self._dead():
                receipts += letters
                found = [*oldest, *letters.values()]
                oldest = sorted(found, key=lambda letter: letter.buried)[: max(0, count_max)]
                if len(receipts) >= _LOOKED_AT_MAX:
                    break
        finally:
            self._calls.show(receipts, Side.DEAD)
        return oldest

    def dead_letter(self, message_id: str) -> DeadLetter | None:
        """Return None: SQS finds no message by its id."""
        return None

    def redrive(self, message_ids: Sequence[str] | None = None) -> int:
        """Send dead letters to the queue, and delete them."""
        return self._take_dead(message_ids, self._send_again)

    def delete_dead_letters(self, message_ids: Sequence[str] | None = None) -> int:
        """Receive dead letters, and delete them."""
        return self._take_dead(message_ids, lambda letters: None)

    def ready(self) -> int:
        """Return the number of SQS, which is approximate."""
        ready, _ = self._counted(Side.QUEUE)
        return ready

    def depth(self) -> QueueDepth:
        """Return the numbers of SQS, which are approximate."""
        ready, hidden = self._counted(Side.QUEUE)
        return QueueDepth(
            ready=ready, hidden=hidden, dead=sum(self._counted(Side.DEAD)), oldest_s=None
        )

    def _received(
        self, side: Side, count: int, wait_s: float, hidden_s: float
    ) -> list[dict[str, Any]]:
        how: dict[str, Any] = {}
        if self._settings.fifo:  # a call that is repeated for a lost reply gets the same messages
            how["ReceiveRequestAttemptId"] = self._new_id()
        answer = self._calls.call(
            "receive_message",
            side,
            make=side is Side.QUEUE,
            MaxNumberOfMessages=count,
            WaitTimeSeconds=whole_seconds(wait_s),
            VisibilityTimeout=whole_seconds(hidden_s),
            MessageSystemAttributeNames=SYSTEM_ATTRIBUTES,
            MessageAttributeNames=ATTRIBUTES,
            **how,
        )
        return list(answer.get("Messages", ()))

    def _hide(self, receipt: str, seconds: float) -> bool:
        return bool(receipt) and self._calls.is_done(
            "change_message_visibility",
            ReceiptHandle=receipt,
            VisibilityTimeout=whole_seconds(seconds),
        )

    def _held(self, receipt: str) -> Delivery | None:
        """Return a message that is to be sent once more, hidden for a while; None if stale."""
        delivery = self._under_way.find(receipt)
        if delivery is None:
            logger.warning("queue %s: a receipt of none of the last messages", self._name)
            return None
        return delivery if self._hide(receipt, _HELD_S) else None

    def _dead(self) -> Iterator[dict[str, DeadLetter]]:
        """Yield batches of dead letters by receipt, each once, hidden for a while."""
        seen: set[str] = set()
        while found := self._received(Side.DEAD, BATCH_MAX, self._look_s, _HELD_S):
            letters = {
                each["ReceiptHandle"]: dead_letter_of(each, self._settings.receives_max)
                for each in found
                if each["MessageId"] not in seen
            }
            seen.update(each["MessageId"] for each in found)
            if not letters:
                return
            yield letters

    def _take_dead(
        self,
        message_ids: Sequence[str] | None,
        handle: Callable[[Sequence[DeadLetter]], None],
    ) -> int:
        """Delete dead letters after `handle` has seen them; return how many.

        A letter that dies again meanwhile is not taken twice.
        """
        wanted = None if message_ids is None else set(message_ids)
        taken: set[str] = set()
        left: list[str] = []
        if wanted is not None and not wanted:
            return 0
        try:
            for letters in self._dead():
                fitting = {
                    receipt: letter
                    for receipt, letter in letters.items()
                    if letter.message_id not in taken
                    and (wanted is None or letter.message_id in wanted)
                }
                left += [receipt for receipt in letters if receipt not in fitting]
                handle(list(fitting.values()))
                self._calls.delete(list(fitting), Side.DEAD)
                taken.update(letter.message_id for letter in fitting.values())
                if taken == wanted:
                    break
        finally:
            self._calls.show(left, Side.DEAD)
        return len(taken)

    def _send_again(self, letters: Sequence[DeadLetter]) -> None:
        self._calls.send([redriven_entry(letter, self._new_id()) for letter in letters])

    def _counted(self, side: Side) -> tuple[int, int]:
        numbers = "ApproximateNumberOfMessages"
        answer = self._calls.call(
            "get_queue_attributes",
            side,
            make=False,
            AttributeNames=[numbers, f"{numbers}NotVisible", f"{numbers}Delayed"],
        )
        found = {name: int(value) for name, value in answer.get("Attributes", {}).items()}
        hidden = found.get(f"{numbers}NotVisible", 0) + found.get(f"{numbers}Delayed", 0)
        return found.get(numbers, 0), hidden


class _UnderWay:
    """The last messages that were received, for those that are sent once more. Bounded."""

    def __init__(self) -> None:
        self._deliveries: OrderedDict[str, Delivery] = OrderedDict()
        self._receipts: dict[str, str] = {}
        self._characters = 0
        self._lock = Lock()

    def add(self, deliveries: Sequence[Delivery]) -> None:
        """Remember deliveries; the one before of the same message is forgotten."""
        with self._lock:
            for delivery in deliveries:
                self._drop(self._receipts.get(delivery.sqs_id, ""))
                self._deliveries[delivery.message.receipt] = delivery
                self._receipts[delivery.sqs_id] = delivery.message.receipt
                self._characters += len(delivery.message.body)
            while (
                len(self._deliveries) > _UNDER_WAY_MAX
                or self._characters > _UNDER_WAY_CHARACTERS_MAX
            ):
                self._drop(next(iter(self._deliveries)))

    def find(self, receipt: str) -> Delivery | None:
        """Return a delivery by its receipt."""
        with self._lock:
            return self._deliveries.get(receipt)

    def forget(self, receipts: Sequence[str]) -> None:
        """Forget deliveries."""
        with self._lock:
            for receipt in receipts:
                self._drop(receipt)

    def _drop(self, receipt: str) -> None:
        dropped = self._deliveries.pop(receipt, None)
        if dropped is not None:
            self._characters -= len(dropped.message.body)
            del self._receipts[dropped.sqs_id]
