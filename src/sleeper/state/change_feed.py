"""The change feed of a table: the files with new rows that each transaction added.

Compactions, splits and garbage collection add no file here: their rows were in the table before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sleeper.errors import VersionNotFound
from sleeper.model.schema import Schema
from sleeper.ports.transaction_log import TransactionLog
from sleeper.state.log_entry import decode_entry
from sleeper.state.transactions.files import AddFiles


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file that a transaction added with new rows.

    Attributes:
        number: The transaction that added it.
        filename: The file; all of its rows are new.
        row_count: Its number of rows.
    """

    number: int
    filename: str
    row_count: int


class ChangeFeed:
    """Lists the files that were added after a transaction, in the order of their transactions.

    Args:
        log: The table's log.
        schema: The table's schema.
        after: The first transaction of interest is the one after this.

    Attributes:
        number: The last transaction that was read.
    """

    def __init__(self, log: TransactionLog, schema: Schema, after: int) -> None:
        self._log = log
        self._schema = schema
        self._files: list[AddedFile] = []
        self.number = after

    def read_new_entries(self) -> None:
        """Read the entries that were appended to the log since the last call."""
        for number, body in self._log.read_after(self.number):
            self._files.extend(_added_by(number, body, self._schema))
            self.number = number

    def between(self, start: int, end: int | None = None) -> Iterator[AddedFile]:
        """Yield the files that were added after `start`, up to and including `end`."""
        for added in self._files:
            if start < added.number and (end is None or added.number <= end):
                yield added

    def forget(self, number: int) -> None:
        """Drop files that were added up to a transaction, which are not needed again."""
        self._files = [added for added in self._files if added.number > number]


def added_between(log: TransactionLog, schema: Schema, start: int, end: int) -> Iterator[AddedFile]:
    """Yield the files that the transactions after `start`, up to `end`, have added.

    Raises:
        VersionNotFound: the log does not have all of them, or no longer.
    """
    number = start
    for number, body in log.read_after(start):
        if number > end:
            return
        yield from _added_by(number, body, schema)
        if number == end:
            return
    if number < end:
        raise VersionNotFound(
            f"the transaction log has no transaction {number + 1} (or no longer), but the changes "
            f"after {start} up to {end} were requested. Start again from the newest version; "
            "a stream of Spark needs a new checkpoint and option 'from' = 'earliest' or 'latest'."
        )


def _added_by(number: int, body: bytes, schema: Schema) -> Iterator[AddedFile]:
    entry = decode_entry(body, schema, f"entry {number} of the transaction log")
    row_counts: dict[str, int] = {}
    for transaction in entry.transactions:
        if isinstance(transaction, AddFiles):
            for reference in transaction.references:
                before = row_counts.get(reference.filename, 0)
                row_counts[reference.filename] = before + reference.row_count
    for filename, row_count in row_counts.items():
        yield AddedFile(number, filename, row_count)
