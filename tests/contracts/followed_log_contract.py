"""What every followed log must do: go on only from an entry that is there (rule STS-27)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sleeper.errors import DataDamaged, InstanceReplaced
from sleeper.storage.followed_log import TRUSTED_S, FollowedLog, Following
from sleeper.storage.transaction_log import ObjectTransactionLog
from tests.contracts.transaction_log_contract import TransactionLogContract

if TYPE_CHECKING:
    from sleeper.ports.objects import Objects


class Follower:
    """A log as one process follows it; `wait` lets so much time pass that an entry is compared."""

    def __init__(self, objects: Objects, *, is_dated: bool = False, covered: int = 0) -> None:
        self.plain = ObjectTransactionLog(objects)
        self.now_s = 1000.0
        self.log = FollowedLog(
            self.plain,
            Following(
                objects=objects,
                ticks_s=lambda: self.now_s,
                lost=InstanceReplaced,
                covered=lambda: covered,
                is_last=lambda number, body: body == b"entry %d" % number,
                is_remote=objects.is_remote,
                is_dated=is_dated,
            ),
        )

    def wait(self) -> None:
        """Let more than a minute pass."""
        self.now_s += TRUSTED_S + 1

    def remove(self, number: int) -> None:
        """Remove an entry, as somebody does who restores an older copy."""
        self.plain.objects.delete([self.plain.key(number)])

    def replace(self, number: int, body: bytes) -> None:
        """Put another entry in the place of one."""
        self.plain.objects.put(self.plain.key(number), body)


def look(follower: Follower, number: int) -> None:
    """Look for entries after one."""
    assert list(follower.log.read_after(number)) == []


def append(follower: Follower, number: int) -> None:
    """Append an entry after one."""
    follower.log.append(number + 1, b"ours")


class FollowedLogContract(TransactionLogContract):
    """Subclass it and supply `objects`, an empty store, and whether its entries are dated."""

    is_dated = False

    @pytest.fixture
    def log(self, objects):
        return Follower(objects, is_dated=self.is_dated).log

    @pytest.fixture
    def follow(self, objects):
        """Open the log of an instance with three entries; covered by a snapshot, if one is told."""
        for number in (1, 2, 3):
            ObjectTransactionLog(objects).append(number, b"entry %d" % number)
        return lambda covered=0: Follower(objects, is_dated=self.is_dated, covered=covered)

    @pytest.fixture
    def follower(self, follow):
        """A process that has read three entries."""
        follower = follow()
        assert len(list(follower.log.read_after(0))) == 3
        return follower

    @pytest.mark.parametrize("operation", [look, append])
    @pytest.mark.parametrize("removed", [[3], [2, 3], [1, 2, 3]])
    def test_an_entry_that_was_read_and_is_gone_is_noticed(self, follower, operation, removed):
        """Given an older copy in the place, then nothing goes on from it, and nothing is written."""
        for number in removed:
            follower.remove(number)
        follower.wait()

        for _ in range(2):
            with pytest.raises(InstanceReplaced, match=r"entry 3 of the log, .* is not there"):
                operation(follower, 3)

        assert follower.plain.read(4) is None

    @pytest.mark.parametrize("operation", [look, append])
    @pytest.mark.parametrize("body", [b"ENTRY 3", b"another entry", b""])
    def test_an_entry_that_was_read_and_is_another_is_noticed(self, follower, operation, body):
        """Given an older copy to which others have committed, then nothing goes on from it."""
        follower.replace(3, body)
        follower.wait()

        with pytest.raises(InstanceReplaced, match=r"entry 3 of the log, .* is another one now"):
            operation(follower, 3)

        assert follower.plain.read(4) is None

    def test_an_entry_that_was_appended_is_followed_too(self, follower):
        """Not only what was read counts, but what was committed."""
        follower.log.append(4, b"ours")
        follower.replace(4, b"theirs")
        follower.wait()

        with pytest.raises(InstanceReplaced, match="entry 4"):
            look(follower, 4)

    def test_a_reader_of_earlier_entries_notices_it_too(self, follower):
        """Given a thread that goes on from entry 1, then entry 3 is compared, which another read."""
        follower.remove(3)
        follower.wait()

        with pytest.raises(InstanceReplaced, match=r"entry 3"):
            list(follower.log.read_after(1))

    def test_an_entry_of_the_same_content_is_the_same(self, follower):
        """Given a copy of the instance in its place, then the process goes on."""
        body = follower.plain.read(3)
        follower.remove(3)
        follower.replace(3, body)
        follower.wait()

        look(follower, 3)
        assert follower.log.append(4, b"ours")

    def test_an_entry_that_is_put_back_ends_the_refusal(self, follower):
        """Nothing remembers that it was gone."""
        body = follower.plain.read(3)
        follower.remove(3)
        follower.wait()
        with pytest.raises(InstanceReplaced):
            look(follower, 3)

        follower.replace(3, body)

        look(follower, 3)

    def test_an_entry_that_a_snapshot_covers_need_not_be_there(self, follow):
        """Given a state that was loaded from a snapshot, then its entry may have been deleted."""
        follower = follow(covered=3)
        follower.remove(3)
        follower.wait()

        look(follower, 3)
        assert follower.log.append(4, b"ours")

    def test_an_entry_that_a_later_snapshot_covers_is_not_gone_on_from(self, follow):
        """A reader must load that snapshot: the entries up to it may have been deleted."""
        follower = follow(covered=9)
        list(follower.log.read_after(0))
        follower.remove(3)
        follower.wait()

        with pytest.raises(DataDamaged, match="there is a snapshot of 9"):
            look(follower, 3)

    def test_a_state_beyond_the_end_of_the_log_is_noticed(self, follow):
        """Given a state of transaction 7 that was never read from this log, then it is refused."""
        follower = follow()
        follower.log.append(4, b"ours")
        if follower.plain.objects.is_remote:
            list(follower.log.read_after(7))
            follower.wait()

        with pytest.raises(InstanceReplaced, match="entry 7"):
            append(follower, 7)

        assert follower.plain.read(8) is None

    def test_an_entry_that_was_never_read_is_compared_with_the_state(self, follow):
        """Given a state that was loaded from a snapshot, then its entry must be the one before."""
        follower = follow()
        if follower.plain.objects.is_remote:
            look(follower, 3)
        follower.replace(3, b"another entry")
        follower.wait()

        with pytest.raises(InstanceReplaced, match="entry 3"):
            look(follower, 3)

    @pytest.mark.parametrize("operation", [look, append])
    def test_an_entry_that_was_never_read_is_compared_at_a_late_first_look(self, follow, operation):
        """Given a handle that was opened more than a minute ago, then its first look compares."""
        follower = follow()
        follower.replace(3, b"another entry")
        follower.wait()

        for _ in range(2):
            with pytest.raises(InstanceReplaced, match="entry 3"):
                operation(follower, 3)

        follower.replace(3, b"entry 3")
        operation(follower, 3)
