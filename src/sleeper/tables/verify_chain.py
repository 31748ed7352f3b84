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


def verify_chain(log: TransactionLog, here: StateMove | None) -> VerifiedChain:
    """Compare each entry with the digest that the next one names. No state is needed for that.

    Args:
        log: The log.
        here: The move of the state to this log, with which it begins; None if it is the first.

    Raises:
        StorageFailed: the storage did not answer.
    """
    number: int | None = None
    entries, chained, findings = 0, 0, list[Finding]()
    before: str | None = None
    try:
        for number, body in log.read_after(0 if here is None else here.number - 1):
            entries += 1
            try:
                document = json.loads(body.partition(b"\n")[0])
                is_chained, prev = document["format"] > 1, document.get("prev")
                wrong_keys = changed_keys(body) if is_chained else 0
            except _NO_ENTRY as error:
                findings.append(_finding(number, f"cannot be read: {error}"))
                is_chained, prev, wrong_keys = True, before, 0
            if is_chained and prev != before:
                findings.append(
                    _finding(
                        number - 1,
                        f"is not the one after which entry {number} was written: one of the two "
                        "was changed or replaced",
                    )
                )
            if wrong_keys:
                findings.append(_finding(number, f"has {wrong_keys} keys that were changed"))
            chained += is_chained
            before = entry_digest(body) if is_chained else None
    except (ObjectNotFound, VersionNotFound, DataDamaged) as error:
        findings.append(_finding((number or 0) + 1, f"cannot be read: {error}"))
    return VerifiedChain(
        last=number, entries=entries, chained=chained, digest=before, findings=tuple(findings)
    )


def _finding(number: int, what: str) -> Finding:
    return Finding(
        kind=FindingKind.CHAIN,
        what=f"entry {number} of the transaction log {what}",
        next_step=RESTORE_STATE,
        entry=number,
    )
