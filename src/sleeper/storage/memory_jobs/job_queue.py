"""A queue in dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import count
from threading import RLock

from sleeper.language.value_classes import dataclass
from sleeper.model.jobs.message_rules import (
    CLOCK_STEP,
    DEDUPLICATION,
    check_hidden,
    check_new_messages,
    check_receive,
    received_too_often,
)
from sleeper.model.jobs.messages import (
    DeadLetter,
    NewMessage,
    QueueDepth,
    QueueName,
    QueueSettings,
    ReceivedMessage,
)
from sleeper.ports.ids import NewId

_PAUSE_S = 0.02


@dataclass(slots=True)
class _Held:
    """A message of the queue: not visible from `since` to `visible`."""

    number: int
    message_id: str
    body: str
    group: str | None
    sent: datetime
    since: datetime
    visible: datetime
    receives: int = 0
    receipt: str | None = None


class MemoryQueue:
    """One queue in the memory of this process, safe for threads.

    Args:
        name: The queue's name, for messages.
        settings: How it delivers.
        now: The clock (aware, UTC).
        sleep: Waits for so many seconds.
        new_id: Makes ids of messages and receipts.
    """

    def __init__(
        self,
        name: QueueName,
        settings: QueueSettings,
        *,
        now: Callable[[], datetime],
        sleep: Callable[[float], None],
        new_id: NewId,
    ) -> None:
        self._name, self._settings = name, settings
        self._now, self._sleep, self._new_id = now, sleep, new_id
        self._numbers = count()
        self._held: dict[int, _Held] = {}
        self._dead: dict[str, DeadLetter] = {}
        self._sent_ids: dict[str, datetime] = {}
        self._lock = RLock()

    def send(self, messages: Sequence[NewMessage]) -> None:
        """Keep messages, all or none."""
        check_new_messages(messages, self._name, self._settings)
        if not messages:
            return
        with self._lock:
            now = self._time()
            for message in messages:
                if self._is_new(message.deduplication_id, now):
                    visible = now + timedelta(seconds=message.delay_s)
                    self._keep(self._new_id(), message.body, message.group, now, now, visible)

    def receive(
        self, count_max: int = 1, *, wait_s: float = 0.0, visibility_s: float | None = None
    ) -> list[ReceivedMessage]:
        """Return messages that are ready, and hide them."""
        hidden_s = self._settings.visibility_s if visibility_s is None else visibility_s
        check_receive(count_max, wait_s, hidden_s)
        waited_s = 0.0
        while True:
            received = self._take(count_max, timedelta(seconds=hidden_s))
            if received or waited_s >= wait_s:
                return received
            pause_s = min(_PAUSE_S, wait_s - waited_s)
            self._sleep(pause_s)
            waited_s += pause_s

    def extend(self, receipt: str, visibility_s: float) -> bool:
        """Hide a message from now on."""
        check_hidden(visibility_s, "visibility_s")
        return self._hide(receipt, visibility_s)

    def release(self, receipt: str, delay_s: float = 0.0, *, counted: bool = True) -> bool:
        """Let a message be received again after a delay."""
        check_hidden(delay_s, "delay_s")
        return self._hide(receipt, delay_s, uncounted=0 if counted else 1)

    def delete(self, receipts: Sequence[str]) -> list[bool]:
        """Forget messages."""
        if not receipts:
            return []
        with self._lock:
            self._time()
            return [self._pop(receipt) is not None for receipt in receipts]

    def bury(self, receipt: str, reason: str) -> bool:
        """Make a message a dead letter."""
        with self._lock:
            now = self._time()
            message = self._pop(receipt)
            if message is not None:
                self._add_dead(message, reason, now)
            return message is not None

    def dead_letters(self, count_max: int = 100) -> list[DeadLetter]:
        """Return dead letters, oldest first."""
        with self._lock:
            return list(self._dead.values())[: max(0, count_max)]

    def redrive(self, message_ids: Sequence[str] | None = None) -> int:
        """Make dead letters messages again, behind all others."""
        with self._lock:
            now = self._time()
            letters = self._pop_dead(message_ids)
            for each in letters:
                self._keep(each.message_id, each.body, each.group, each.sent, now, now)
            return len(letters)

    def delete_dead_letters(self, message_ids: Sequence[str] | None = None) -> int:
        """Forget dead letters."""
        with self._lock:
            return len(self._pop_dead(message_ids))

    def ready(self) -> int:
        """Count the messages that wait."""
        return self.depth().ready

    def depth(self) -> QueueDepth:
        """Count messages."""
        with self._lock:
            now = self._now()
            hidden = sum(
                each.visible > now and each.since <= now + CLOCK_STEP
                for each in self._held.values()
            )
            sent = min((each.sent for each in self._held.values()), default=None)
            return QueueDepth(
                ready=len(self._held) - hidden,
                hidden=hidden,
                dead=len(self._dead),
                oldest_s=None if sent is None else max(0.0, (now - sent).total_seconds()),
            )

    def _time(self) -> datetime:
        """Return the time; what was hidden before the clock was set back is hidden no more."""
        now = self._now()
        for each in self._held.values():
            if each.since > now + CLOCK_STEP:
                each.since = each.visible = now
        return now

    def _is_new(self, deduplication_id: str | None, now: datetime) -> bool:
        if deduplication_id is None:
            return True
        sent = self._sent_ids.get(deduplication_id)
        if sent is not None and now - DEDUPLICATION < sent <= now + CLOCK_STEP:
            return False
        self._sent_ids[deduplication_id] = now
        return True

    def _keep(
        self,
        message_id: str,
        body: str,
        group: str | None,
        sent: datetime,
        since: datetime,
        visible: datetime,
    ) -> None:
        number = next(self._numbers)
        self._held[number] = _Held(number, message_id, body, group, sent, since, visible)

    def _take(self, count_max: int, hidden: timedelta) -> list[ReceivedMessage]:
        received: list[ReceivedMessage] = []
        with self._lock:
            now = self._time()
            for message in self._ready(now):
                if len(received) == count_max:
                    break
                if message.receives >= self._settings.receives_max:
                    del self._held[message.number]
                    self._add_dead(message, received_too_often(message.receives), now)
                else:
                    received.append(self._deliver(message, now, now + hidden))
        return received

    def _ready(self, now: datetime) -> list[_Held]:
        ready = [each for each in self._held.values() if each.visible <= now]
        if not self._settings.fifo:
            return sorted(ready, key=lambda each: (each.visible, each.sent, each.number))
        blocked = {each.group for each in self._held.values() if each.visible > now}
        return [each for each in ready if each.group not in blocked]

    def _deliver(self, message: _Held, now: datetime, visible: datetime) -> ReceivedMessage:
        message.receives += 1
        message.receipt = f"{message.number}-{self._new_id()}"
        message.since, message.visible = now, visible
        return ReceivedMessage(
            receipt=message.receipt,
            message_id=message.message_id,
            body=message.body,
            group=message.group,
            receives=message.receives,
            sent=message.sent,
        )

    def _hide(self, receipt: str, seconds: float, uncounted: int = 0) -> bool:
        with self._lock:
            now = self._time()
            message = self._find(receipt)
            if message is not None:
                message.since, message.visible = now, now + timedelta(seconds=seconds)
                message.receives = max(0, message.receives - uncounted)
            return message is not None

    def _find(self, receipt: str) -> _Held | None:
        number, _, _ = receipt.partition("-")
        message = self._held.get(int(number)) if number.isdecimal() else None
        return message if message is not None and message.receipt == receipt else None

    def _pop(self, receipt: str) -> _Held | None:
        message = self._find(receipt)
        return None if message is None else self._held.pop(message.number)

    def _add_dead(self, message: _Held, reason: str, now: datetime) -> None:
        self._dead[message.message_id] = DeadLetter(
            message_id=message.message_id,
            body=message.body,
            group=message.group,
            reason=reason,
            receives=message.receives,
            sent=message.sent,
            buried=now,
        )

    def _pop_dead(self, message_ids: Sequence[str] | None) -> list[DeadLetter]:
        wanted = self._dead.keys() if message_ids is None else set(message_ids)
        found = [each for each in self._dead.values() if each.message_id in wanted]
        for each in found:
            del self._dead[each.message_id]
        return found
