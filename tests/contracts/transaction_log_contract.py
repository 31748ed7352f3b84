"""What every transaction log must do, whatever lies beneath it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sleeper.ports.transaction_log import TransactionLog


def append_next(log: TransactionLog, known: int, body: bytes) -> int:
    """Append `body` at the first free number past `known`, and return that number."""
    while True:
        known = max([known, *(number for number, _ in log.read_after(known))])
        if log.append(known + 1, body):
            return known + 1


class TransactionLogContract:
    """Subclass it and supply `log`, an empty one."""

    racing_writers = 16

    def test_an_entry_is_read_as_it_was_appended(self, log):
        """Byte for byte, by its number."""
        appended = log.append(1, b"\0\xff one")

        assert appended
        assert log.read(1) == b"\0\xff one"
        assert log.read(2) is None

    def test_a_number_is_given_once(self, log):
        """The second writer is told False, and the entry stays the first one's."""
        log.append(1, b"first")

        appended = log.append(1, b"second")

        assert not appended
        assert log.read(1) == b"first"

    def test_appending_the_same_again_has_already_succeeded(self, log):
        """A writer that lost the reply repeats itself and learns that it had won."""
        log.append(1, b"mine")

        assert log.append(1, b"mine")
        assert list(log.read_after(0)) == [(1, b"mine")]

    def test_a_reader_catches_up_from_where_it_is(self, log):
        """All that comes after a number, in order, without gaps."""
        for number in range(1, 13):
            log.append(number, f"entry {number}".encode())

        assert [number for number, _ in log.read_after(0)] == list(range(1, 13))
        assert list(log.read_after(10)) == [(11, b"entry 11"), (12, b"entry 12")]
        for last in (1, 2, 7, 12):
            assert [number for number, _ in log.read_after(0, up_to=last)] == [*range(1, last + 1)]
        assert list(log.read_after(9, up_to=11)) == [(10, b"entry 10"), (11, b"entry 11")]
        assert list(log.read_after(12)) == []

    def test_an_entry_is_replaced_where_it_is_the_one_that_was_read(self, log):
        """Given another entry than that, it stays; a reader finds what was put in its place."""
        log.append(1, b"first line\nkeys")
        log.append(2, b"second")

        refused = log.replace(1, b"something else", b"nothing")
        replaced = log.replace(1, b"first line\nkeys", b"first line")

        assert (refused, replaced) == (False, True)
        assert not log.replace(3, b"third", b"nothing")
        assert list(log.read_after(0)) == [(1, b"first line"), (2, b"second")]

    def test_an_empty_log_has_nothing_to_read(self, log):
        """A log needs no making: it begins with its first entry."""
        assert list(log.read_after(0)) == []
        assert log.read(1) is None

    def test_entries_have_the_times_at_which_they_were_stored(self, log):
        """They ascend; of an entry that is not there, nothing is known."""
        for number in (1, 2, 3):
            log.append(number, b"entry")

        times = [log.stored_at(number) for number in (1, 2, 3)]
        assert times == sorted(times)
        assert log.stored_at(4) is None

    def test_of_many_writers_one_gets_each_number(self, log):
        """Each thread appends ten entries: all are there once, in a row without gaps."""

        def append_ten(writer: int) -> list[tuple[int, bytes]]:
            acknowledged, known = [], 0
            for n in range(10):
                body = f"{writer}:{n}".encode()
                known = append_next(log, known, body)
                acknowledged.append((known, body))
            return acknowledged

        with ThreadPoolExecutor(self.racing_writers) as threads:
            acknowledged = [
                pair
                for pairs in threads.map(append_ten, range(self.racing_writers))
                for pair in pairs
            ]

        assert list(log.read_after(0)) == sorted(acknowledged)
        assert [number for number, _ in sorted(acknowledged)] == list(
            range(1, 10 * self.racing_writers + 1)
        )
