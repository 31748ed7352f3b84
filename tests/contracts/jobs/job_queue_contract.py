"""What every queue must do, whatever lies beneath it.

Times are whole seconds and few, so that `wait` may really wait where an adapter has no clock of its
own. What takes minutes, or a clock that is wrong, is in `QueueClockContract`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from sleeper.errors import BadRequest
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.messages import NewMessage, QueueSettings

VISIBILITY_S = 20.0
SETTINGS = {
    QueueName.INGEST: QueueSettings(visibility_s=VISIBILITY_S, receives_max=3),
    QueueName.COMMIT: QueueSettings(fifo=True, visibility_s=VISIBILITY_S, receives_max=3),
    QueueName.EXPORT: QueueSettings(visibility_s=5),
}
LARGEST = "é" * 131_072
"""A body of 256 KiB in UTF-8."""


def send(queue, *bodies, **how):
    """Send a message for each body."""
    queue.send([NewMessage(body=body, **how) for body in bodies])


def receive_one(queue, **how):
    """Receive the one message that is ready."""
    [message] = queue.receive(10, **how)
    return message


def receive_all(queue):
    """Receive until nothing is ready."""
    received = []
    while messages := queue.receive(10):
        received += messages
    return received


def bodies_of(messages):
    return [message.body for message in messages]


class JobQueueContract:
    """Subclass it and supply `stores`, empty, with `SETTINGS`.

    Attributes:
        knows_ages: Whether the queue can tell how old its oldest message is.
        finds_dead_letters: Whether it can look for a dead letter by its id.
    """

    knows_ages = True
    finds_dead_letters = True

    @pytest.fixture
    def queue(self, stores):
        return stores.queue(QueueName.INGEST)

    @pytest.fixture
    def fifo(self, stores):
        return stores.queue(QueueName.COMMIT)

    @pytest.mark.parametrize("body", ["{}", 'a\n"b"\t\\ é ✓ 𝄞', LARGEST], ids=["{}", "é", "large"])
    def test_a_message_is_received_as_it_was_sent(self, queue, body):
        """Character for character, up to 256 KiB of UTF-8."""
        send(queue, body)

        message = receive_one(queue)

        assert message.body == body
        assert (message.receives, message.group) == (1, None)
        assert message.message_id
        assert message.sent.utcoffset() == timedelta(0)

    def test_an_empty_queue_has_no_messages(self, queue):
        """A queue needs no making; nothing is ready, hidden or dead."""
        assert queue.receive(10) == []
        assert queue.dead_letters() == []
        assert queue.depth().oldest_s is None
        queue.send([])
        assert queue.delete([]) == []
        assert (queue.depth().ready, queue.depth().hidden, queue.depth().dead) == (0, 0, 0)
        assert queue.ready() == 0

    def test_queues_are_strangers(self, stores, queue):
        """A message of one queue is in no other, and its receipt is good for no other."""
        send(queue, "a")
        other = stores.queue(QueueName.QUERY)

        message = receive_one(queue)

        assert other.receive() == []
        assert other.delete([message.receipt]) == [False]
        assert queue.delete([message.receipt]) == [True]

    @pytest.mark.parametrize("receipt", ["", "-", "7", "x-y", "1-", "9" * 40 + "-a", "\0", "é"])
    def test_a_receipt_that_nobody_gave_is_stale(self, queue, receipt):
        """It deletes, hides, shows and buries nothing."""
        send(queue, "a")

        answers = [queue.delete([receipt]), queue.extend(receipt, 9), queue.bury(receipt, "why")]

        assert answers == [[False], False, False]
        assert receive_one(queue).body == "a"

    def test_a_released_message_is_ready_at_once(self, queue):
        """Another receives it, and counts."""
        send(queue, "a")
        message = receive_one(queue)

        released = queue.release(message.receipt)

        assert released
        assert receive_one(queue).receives == 2

    def test_a_delivery_may_be_released_uncounted(self, queue):
        """Its receiver was asked to end: however often, the message is no dead letter."""
        send(queue, "a")

        for _ in range(10):
            message = receive_one(queue)
            assert message.receives == 1
            assert queue.release(message.receipt, counted=False)
            assert not queue.release("", counted=False)

        assert queue.dead_letters() == []
        assert queue.depth().ready == queue.ready() == 1

    def test_as_many_messages_are_received_as_are_asked_for(self, queue):
        """At most; all come, each once."""
        send(queue, *map(str, range(25)))

        counts = [len(queue.receive(count)) for count in (1, 4, 10, 10, 10)]

        assert counts == [1, 4, 10, 10, 0]
        assert queue.depth().hidden == 25

    def test_a_receive_waits_for_a_first_message(self, queue):
        """It returns when one is ready, long before its time is over."""
        send(queue, "a", delay_s=2)

        message = receive_one(queue, wait_s=20, visibility_s=1)

        assert message.body == "a"

    def test_a_receive_waits_no_longer_than_it_was_asked_to(self, queue):
        """It returns nothing when its time is over."""
        send(queue, "a", delay_s=5)

        assert queue.receive(wait_s=2) == []

    def test_of_many_receivers_one_gets_each_message(self, queue):
        """Eight threads send and receive at once: every message is delivered once."""

        def send_ten(sender):
            send(queue, *(f"{sender}:{n}" for n in range(10)))
            return bodies_of(receive_all(queue))

        with ThreadPoolExecutor(8) as threads:
            received = [body for bodies in threads.map(send_ten, range(8)) for body in bodies]
        received += bodies_of(receive_all(queue))

        assert sorted(received) == sorted(f"{sender}:{n}" for sender in range(8) for n in range(10))

    def test_dead_letters_come_oldest_first(self, queue):
        """As many as were asked for."""
        send(queue, *map(str, range(12)))
        for n, message in enumerate(receive_all(queue)):
            queue.bury(message.receipt, str(n))

        assert [letter.reason for letter in queue.dead_letters()] == [str(n) for n in range(12)]
        assert [letter.reason for letter in queue.dead_letters(2)] == ["0", "1"]

    def test_a_message_keeps_the_id_that_it_was_sent_with(self, queue):
        """In each delivery, as a dead letter, and when it is put back."""
        queue.send([NewMessage(body="a", message_id="chosen"), NewMessage(body="b")])
        first, second = sorted(receive_all(queue), key=lambda each: each.body)
        assert first.message_id == "chosen" != second.message_id
        queue.bury(first.receipt, "bad")
        assert [each.message_id for each in queue.dead_letters()] == ["chosen"]

        queue.redrive()

        assert receive_one(queue).message_id == "chosen"

    def test_a_dead_letter_is_found_by_its_id(self, queue):
        """Where the queue can look by id; one that is alive, or unknown, is none."""
        send(queue, "dead", "alive")
        received = {message.body: message for message in receive_all(queue)}
        queue.bury(received["dead"].receipt, "bad")

        found = queue.dead_letter(received["dead"].message_id)

        assert found == (queue.dead_letters()[0] if self.finds_dead_letters else None)
        assert queue.dead_letter(received["alive"].message_id) is None
        assert queue.dead_letter("unknown") is None

    def test_redriven_messages_are_as_new(self, queue):
        """Ready, never received, and dead no more; those that are not named stay dead."""
        send(queue, "a", "b", "c")
        for message in queue.receive(10):
            queue.bury(message.receipt, message.body)
        a, *_ = queue.dead_letters()

        named = queue.redrive([a.message_id, "unknown"])
        first = receive_one(queue)
        rest = queue.redrive()

        assert (named, rest, queue.redrive(), queue.redrive([])) == (1, 2, 0, 0)
        assert (first.body, first.receives) == (a.body, 1)
        assert {(each.body, each.receives) for each in queue.receive(10)} == {("b", 1), ("c", 1)}
        assert queue.dead_letters() == []

    def test_dead_letters_can_be_deleted(self, queue):
        """Those that are named, or all, for ever."""
        send(queue, "a", "b", "c", "alive")
        for message in queue.receive(10):
            if message.body != "alive":
                queue.bury(message.receipt, message.body)
        a, *_ = queue.dead_letters()

        named = queue.delete_dead_letters([a.message_id])
        left = [letter.reason for letter in queue.dead_letters()]
        every = queue.delete_dead_letters()

        assert (named, every, queue.redrive()) == (1, 2, 0)
        assert sorted(left) == sorted({"a", "b", "c"} - {a.reason})
        assert queue.depth().hidden == 1

    @pytest.mark.parametrize(
        ("what", "wrong"),
        [
            ("bytes", {"body": ""}),
            ("bytes", {"body": LARGEST + "x"}),
            ("surrogate", {"body": "\ud800"}),
            ("delay_s", {"delay_s": -1}),
            ("delay_s", {"delay_s": 901}),
            ("delay_s", {"delay_s": float("nan")}),
            ("group", {"group": "g"}),
            ("deduplication_id", {"deduplication_id": "d"}),
        ],
    )
    def test_messages_that_cannot_be_are_refused(self, queue, what, wrong):
        """With all that were sent along; the message says what is wrong."""
        with pytest.raises(BadRequest, match=what):
            queue.send([NewMessage(body="good"), NewMessage(**{"body": "bad", **wrong})])

        assert queue.receive() == []

    @pytest.mark.parametrize(
        ("what", "wrong"),
        [("group", {"group": None}), ("group", {"group": ""}), ("delay_s", {"delay_s": 1})],
    )
    def test_fifo_messages_that_cannot_be_are_refused(self, fifo, what, wrong):
        """Each has a group, and none a delay."""
        with pytest.raises(BadRequest, match=what):
            fifo.send([NewMessage(**{"body": "bad", "group": "g", **wrong})])

        assert fifo.receive() == []

    @pytest.mark.parametrize(
        ("what", "call"),
        [
            ("count_max", lambda queue: queue.receive(0)),
            ("count_max", lambda queue: queue.receive(101)),
            ("wait_s", lambda queue: queue.receive(wait_s=-1)),
            ("wait_s", lambda queue: queue.receive(wait_s=21)),
            ("visibility_s", lambda queue: queue.receive(visibility_s=-1)),
            ("visibility_s", lambda queue: queue.receive(visibility_s=43_201)),
            ("visibility_s", lambda queue: queue.extend("", 43_201)),
            ("delay_s", lambda queue: queue.release("", -1)),
        ],
    )
    def test_arguments_out_of_range_are_refused(self, queue, what, call):
        """The message names the argument."""
        with pytest.raises(BadRequest, match=what):
            call(queue)

    def test_a_group_is_delivered_in_order(self, fifo):
        """A receive may return several of a group; other groups are strangers."""
        for group, n in (("a", 1), ("b", 1), ("a", 2), ("a", 3), ("b", 2)):
            send(fifo, f"{group}{n}", group=group)

        received = fifo.receive(10)

        assert [each.body for each in received if each.group == "a"] == ["a1", "a2", "a3"]
        assert [each.body for each in received if each.group == "b"] == ["b1", "b2"]
        assert len(received) == 5

    def test_a_hidden_message_blocks_its_group(self, fifo):
        """Until it is deleted; other groups go on."""
        send(fifo, "a1", "a2", group="a")
        [first] = fifo.receive(1)
        send(fifo, "b1", group="b")

        blocked = bodies_of(fifo.receive(10))
        fifo.delete([first.receipt])

        assert first.body == "a1"
        assert blocked == ["b1"]
        assert bodies_of(fifo.receive(10)) == ["a2"]

    def test_a_dead_letter_does_not_block_its_group(self, fifo):
        """The rest of the group is delivered."""
        send(fifo, "a1", "a2", group="a")
        [first] = fifo.receive(1)

        fifo.bury(first.receipt, "bad")

        assert bodies_of(fifo.receive(10)) == ["a2"]
        assert [letter.group for letter in fifo.dead_letters()] == ["a"]

    def test_a_redriven_message_is_back_in_its_group(self, fifo):
        """Behind those that are there."""
        send(fifo, "a1", "a2", group="a")
        fifo.bury(fifo.receive(1)[0].receipt, "bad")

        fifo.redrive()

        received = fifo.receive(10)
        assert bodies_of(received) == ["a2", "a1"]
        assert {each.group for each in received} == {"a"}

    def test_a_deduplication_id_is_sent_once(self, fifo):
        """In one send or in several, even when the first was deleted meanwhile."""
        message = NewMessage(body="a", group="g", deduplication_id="1")
        fifo.send([message, message])
        [first] = fifo.receive(10)
        fifo.delete([first.receipt])

        fifo.send([message, NewMessage(body="b", group="g", deduplication_id="2")])

        assert bodies_of(fifo.receive(10)) == ["b"]

    def test_messages_without_a_deduplication_id_are_all_sent(self, fifo):
        """Equal bodies are different messages."""
        send(fifo, "same", "same", group="g")

        assert bodies_of(fifo.receive(10)) == ["same", "same"]


class JobQueueTimesContract(JobQueueContract):
    """A queue also keeps its times. Subclass it, and supply `wait` as well, which waits."""

    def test_a_received_message_is_hidden_until_its_visibility_ends(self, queue, wait):
        """Then it is delivered again: the same message, another receipt."""
        send(queue, "a")

        first = receive_one(queue, visibility_s=3)
        hidden = queue.receive(10)
        wait(4)
        second = receive_one(queue)

        assert hidden == []
        assert (second.message_id, second.body) == (first.message_id, "a")
        assert second.receipt != first.receipt
        assert (first.receives, second.receives) == (1, 2)
        assert first.sent == second.sent

    def test_a_message_is_hidden_for_the_queues_own_time(self, stores, wait):
        """Where a receive does not name another."""
        queue = stores.queue(QueueName.EXPORT)
        send(queue, "a")
        receive_one(queue)

        wait(3)
        hidden = queue.receive()
        wait(3)

        assert hidden == []
        assert receive_one(queue).receives == 2

    def test_a_deleted_message_is_never_delivered_again(self, queue, wait):
        """Its visibility does not matter any more."""
        send(queue, "a", "b")
        messages = queue.receive(10, visibility_s=1)

        deleted = queue.delete([message.receipt for message in messages])
        wait(2)

        assert deleted == [True, True]
        assert queue.receive(10) == []
        assert queue.depth().oldest_s is None

    def test_a_late_acknowledgement_deletes_what_nobody_received_since(self, queue, wait):
        """The end of its visibility alone makes no receipt stale."""
        send(queue, "a")
        message = receive_one(queue, visibility_s=1)

        wait(2)
        deleted = queue.delete([message.receipt])

        assert deleted == [True]
        assert queue.receive() == []

    def test_a_stale_receipt_changes_nothing(self, queue, wait):
        """Another has received the message since, and keeps it."""
        send(queue, "a")
        stale = receive_one(queue, visibility_s=1).receipt
        wait(2)
        newer = receive_one(queue, visibility_s=5).receipt

        answers = [
            queue.delete([stale]),
            queue.extend(stale, 10),
            queue.release(stale),
            queue.bury(stale, "why"),
        ]

        assert answers == [[False], False, False, False]
        assert queue.receive() == []
        assert queue.dead_letters() == []
        wait(6)
        assert receive_one(queue).receives == 3
        assert queue.delete([newer]) == [False]

    def test_of_many_receipts_each_has_its_answer(self, queue, wait):
        """In the order they were given; stale ones do not keep the others from being deleted."""
        send(queue, "a")
        stale = receive_one(queue, visibility_s=1).receipt
        wait(2)
        send(queue, *map(str, range(12)))
        receipts = [message.receipt for message in receive_all(queue)]

        deleted = queue.delete([receipts[0], stale, *receipts[1:]])

        assert deleted == [True, False, *[True] * 12]
        assert queue.depth().hidden == 0

    def test_an_extended_message_stays_hidden(self, queue, wait):
        """So many seconds from the extension on, and no longer."""
        send(queue, "a")
        message = receive_one(queue, visibility_s=3)

        wait(1)
        extended = queue.extend(message.receipt, 6)
        wait(4)
        hidden = queue.receive()
        wait(3)

        assert extended
        assert hidden == []
        assert receive_one(queue).receives == 2

    def test_a_message_can_be_released_with_a_delay(self, queue, wait):
        """It is ready when the delay is over, not before."""
        send(queue, "a")
        queue.release(receive_one(queue).receipt, delay_s=4)

        wait(2)
        before = queue.receive()
        wait(3)

        assert before == []
        assert receive_one(queue).receives == 2

    def test_a_delayed_message_is_ready_after_its_delay(self, queue, wait):
        """Others overtake it."""
        send(queue, "late", delay_s=4)
        send(queue, "early")

        wait(1)
        before = bodies_of(receive_all(queue))
        wait(4)

        assert before == ["early"]
        assert receive_one(queue).body == "late"

    def test_a_message_that_was_received_too_often_becomes_a_dead_letter(self, queue, wait):
        """At the receive after the last that it may have; the others go on."""
        send(queue, "poison")
        receives = []
        for _ in range(3):
            receives.append(receive_one(queue, visibility_s=1).receives)
            wait(2)
        send(queue, "good")

        received = bodies_of(receive_all(queue))

        [letter] = queue.dead_letters()
        assert receives == [1, 2, 3]
        assert received == ["good"]
        assert (letter.body, letter.receives) == ("poison", 3)
        assert "3" in letter.reason
        assert queue.depth().dead == 1

    def test_a_message_can_be_buried_with_a_reason(self, queue, wait):
        """It is delivered no more, and can be looked at as often as one likes."""
        send(queue, "bad")
        message = receive_one(queue, visibility_s=1)

        buried = queue.bury(message.receipt, "not JSON: line 1 ✗")
        wait(2)

        assert buried
        assert queue.receive() == []
        [letter] = queue.dead_letters()
        assert queue.dead_letters() == [letter]
        assert (letter.body, letter.reason) == ("bad", "not JSON: line 1 ✗")
        assert (letter.message_id, letter.sent) == (message.message_id, message.sent)
        assert (letter.receives, letter.group) == (1, None)
        assert letter.buried >= letter.sent

    def test_the_depth_counts_messages(self, queue, wait):
        """Ready, hidden, dead, and how old the oldest is that is not dead."""
        send(queue, "a", "b")
        wait(2)
        send(queue, "c", "d", "e")
        send(queue, "late", delay_s=900)
        received = queue.receive(2)
        queue.bury(received[0].receipt, "bad")

        depth = queue.depth()

        assert (depth.ready, depth.hidden, depth.dead) == (3, 2, 1)
        if self.knows_ages:
            assert 2 <= depth.oldest_s < 900
        else:
            assert depth.oldest_s is None

    def test_a_group_keeps_its_order_when_messages_come_back(self, fifo, wait):
        """Whether their visibility ended or they were released; nothing overtakes them."""
        send(fifo, "a1", "a2", "a3", group="a")

        [first] = fifo.receive(1, visibility_s=2)
        wait(3)
        both = fifo.receive(2)
        fifo.release(both[0].receipt)
        blocked = fifo.receive(10)
        fifo.release(both[1].receipt)

        assert (first.body, bodies_of(both), blocked) == ("a1", ["a1", "a2"], [])
        assert bodies_of(fifo.receive(10)) == ["a1", "a2", "a3"]


class QueueClockContract:
    """For adapters whose `clock` is the test's: supply it beside `stores`."""

    @pytest.fixture
    def queue(self, stores):
        return stores.queue(QueueName.INGEST)

    @pytest.fixture
    def fifo(self, stores):
        return stores.queue(QueueName.COMMIT)

    def test_a_deduplication_id_is_remembered_for_five_minutes(self, fifo, clock):
        """From the message that was sent on, not from those that were dropped."""
        message = NewMessage(body="a", group="g", deduplication_id="1")
        fifo.send([message])
        clock.sleep(299)
        fifo.send([message])
        before = fifo.depth().ready
        clock.sleep(2)

        fifo.send([message])

        assert before == 1
        assert bodies_of(fifo.receive(10)) == ["a", "a"]

    def test_messages_come_roughly_in_the_order_of_sending(self, queue, clock):
        """None waits for ever behind newer ones."""
        for n in range(30):
            send(queue, str(n))
            clock.sleep(1)

        assert bodies_of(receive_all(queue)) == [str(n) for n in range(30)]

    @pytest.mark.parametrize("back", [timedelta(hours=5), timedelta(days=20 * 365)])
    def test_a_clock_that_was_set_back_hides_no_message_for_ever(self, queue, fifo, clock, back):
        """What was received, delayed or sent before can be received soon, or once more."""
        send(queue, "received")
        receive_one(queue)
        send(queue, "ready")
        send(queue, "delayed", delay_s=900)
        message = NewMessage(body="a", group="g", deduplication_id="1")
        fifo.send([message])
        [first] = fifo.receive()

        clock.time -= back
        fifo.send([message])
        received = receive_all(queue)

        assert sorted(bodies_of(received)) == ["delayed", "ready", "received"]
        assert queue.receive() == []
        assert queue.depth().oldest_s == 0
        assert queue.delete([received[0].receipt]) == [True]
        assert fifo.delete([first.receipt]) == [True]
        assert bodies_of(fifo.receive(10)) == ["a"]
        clock.sleep(VISIBILITY_S + 1)
        assert len(receive_all(queue)) == 2

    def test_a_clock_that_was_set_back_a_little_delivers_nothing_early(self, queue, clock):
        """Up to a minute is what time servers correct."""
        send(queue, "a")
        receive_one(queue)
        clock.time -= timedelta(seconds=45)

        hidden = queue.receive()
        clock.sleep(45 + VISIBILITY_S)

        assert hidden == []
        assert receive_one(queue).receives == 2

    def test_a_clock_that_leaps_ahead_loses_nothing(self, queue, clock):
        """Messages come early, and once it is right again none is hidden for ever."""
        send(queue, "received")
        first = receive_one(queue)
        send(queue, "delayed", delay_s=900)

        clock.time += timedelta(days=3650)
        early = receive_all(queue)
        clock.time -= timedelta(days=3650)

        assert sorted(bodies_of(early)) == ["delayed", "received"]
        assert queue.delete([first.receipt]) == [False]
        assert sorted(bodies_of(receive_all(queue))) == ["delayed", "received"]
