"""Checks the chain of a table's log: each entry of format 2 names the one before it by its digest.

An entry that was changed or replaced after it was written differs from what the next one names.
Entries of format 1 name nothing: the chain begins after them, and at a move of the state.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from sleeper.errors import DataDamaged, ObjectNotFound, VersionNotFound
from sleeper.model.tables import StateMove
from sleeper.ports.transaction_log import TransactionLog
from sleeper.state.findings import RESTORE_STATE, Finding, FindingKind
from sleeper.state.log_entry import changed_keys, entry_digest

_NO_ENTRY: Final = (ValueError, TypeError, LookupError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedChain:
    """The result of the check of a chain.

    Attributes:
        last: The number of the last entry; None if there is none.
        entries: How many entries were read.
        chained: How many of them are in the chain: those of format 2.
        digest: The digest of the last entry, which no entry names yet; None in format 1.
        findings: What is wrong, an entry each.
    """

    last: int | None
    entries: int
    chained: int
    digest: str | None
    findings: tuple[Finding, ...]


class ChainCheck:
    """Compares each entry with the digest that the next one names. No state is needed for that.

    It looks at the entries that somebody else reads, in their order, and reads what is left.

    Args:
        here: The move of the state to this log, with which it begins; None if it is the first.
    """

    def __init__(self, here: StateMove | None) -> None:
        self._last = 0 if here is None else here.number - 1
        self._begins_with_move = here is not None
        self._entries = self._chained = 0
        self._digest: str | None = None
        self._findings: list[Finding] = []

    def look_at(self, number: int, body: bytes) -> None:
        """Look at an entry; do nothing if it is not the one after the last that was looked at."""
        if number != self._last + 1:
            return
        before, self._last = self._digest, number
        self._entries += 1
        try:
            document = json.loads(body.partition(b"\n")[0])
            is_chained, prev = document["format"] > 1, document.get("prev")
            wrong_keys = changed_keys(body) if is_chained else 0
        except _NO_ENTRY as error:
            self._findings.append(_finding(number, f"cannot be read: {error}"))
            is_chained, prev, wrong_keys = True, before, 0
        if self._begins_with_move and self._entries == 1:
            before = prev  # an entry of the log that the state has left
        if is_chained and prev != before:
            self._findings.append(
                _finding(
                    number - 1,
                    f"is not the one after which entry {number} was written: one of the two "
                    "was changed or replaced",
                )
            )
        if wrong_keys:
            self._findings.append(_finding(number, f"has {wrong_keys} keys that were changed"))
        self._chained += is_chained
        self._digest = entry_digest(body) if is_chained else None

    def finish(self, log: TransactionLog) -> VerifiedChain:
        """Read the entries that nobody has read, and return what all of them say.

        Raises:
            StorageFailed: the storage did not answer.
        """
        try:
            for number, body in log.read_after(self._last):
                self.look_at(number, body)
        except (ObjectNotFound, VersionNotFound, DataDamaged) as error:
            self._findings.append(_finding(self._last + 1, f"cannot be read: {error}"))
        return VerifiedChain(
            last=self._last if self._entries else None,
            entries=self._entries,
            chained=self._chained,
            digest=self._digest,
            findings=tuple(self._findings),
        )


def _finding(number: int, what: str) -> Finding:
    return Finding(
        kind=FindingKind.CHAIN,
        what=f"entry {number} of the transaction log {what}",
        next_step=RESTORE_STATE,
        entry=number,
    )
