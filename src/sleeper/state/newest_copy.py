"""A copy of a new state under one key, so that a table in a bucket opens in one request.

It is no authority: a reader goes on from its transaction with the log, as from a snapshot.
Whoever commits writes it after the entry, and of two writers the slower one may leave an older
state.

Where a store is not trusted to create an entry only if it is absent, the entry of a copy may have
been replaced after the copy was written. So there a reader reads that entry too, beside its look,
and compares it with the digest that the state keeps of it (`is_state_after`). A state without a
digest, after an entry of format 1, has no copy there.

    {"format": 1, "number": 41, "snapshot": 0, "changed": 40, "parts": {"jobs.parquet": 2943, ...}}
    the parts, one after the other, as in a snapshot
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from sleeper.errors import DataDamaged, FormatTooNew, ObjectNotFound
from sleeper.model.schema import Schema
from sleeper.ports.transaction_log import SnapshotStore
from sleeper.state.log_entry import entry_digest
from sleeper.state.snapshot import snapshot_parts, state_from_parts
from sleeper.state.table_state import TableState

FORMAT: Final = 1
_SIZE_PER_ENTRY: Final = 500
"""A state of more references and partitions is copied after every second entry, and so on."""

_SIZE_MAX: Final = 50_000
"""Of a larger state the copy only tells the number of the last snapshot."""


@dataclass(frozen=True, slots=True)
class NewestCopy:
    """A state with what its writer knew of snapshots.

    Attributes:
        state: The state.
        snapshot: The number of the last snapshot; 0 if there is none.
        changed: How many references had changed since that.
    """

    state: TableState
    snapshot: int
    changed: int


class NewestCopies:
    """Reads and writes the copy of one table's state.

    Args:
        snapshots: Where it is kept, if it is.
        schema: The table's schema.
        are_compared: Whether copies are compared with the log, for which they need a digest.
    """

    def __init__(
        self, snapshots: SnapshotStore, schema: Schema, *, are_compared: bool = False
    ) -> None:
        self._snapshots = snapshots
        self._are_compared = are_compared
        self._schema = schema
        self._copied = 0

    def load(self) -> NewestCopy | None:
        """Return the copy; None if there is none, or it cannot be used.

        Raises:
            StorageFailed: the storage cannot be read.
        """
        try:
            return self.read()
        except (DataDamaged, FormatTooNew, ObjectNotFound) as error:
            self._snapshots.note_failure("the copy of the newest state is not used", error)
            return None

    def read(self) -> NewestCopy | None:
        """Return the copy; None if there is none.

        Raises:
            DataDamaged, FormatTooNew, ObjectNotFound: it cannot be used.
            StorageFailed: the storage cannot be read.
        """
        body = self._snapshots.newest() if self._snapshots.keeps_newest else None
        copy = None if body is None else self._decoded(body)
        if copy is not None and self._are_compared and copy.state.digest is None:
            return None
        return copy

    def save_if_due(self, state: TableState, *, snapshot: int, changed: int) -> None:
        """Save a state that was committed, if enough entries came since the last copy.

        A failure is logged: the commit has succeeded.
        """
        if not self._snapshots.keeps_newest or (self._are_compared and state.digest is None):
            return
        size = _size(state)
        if size > _SIZE_MAX:
            if snapshot <= self._copied:
                return
            parts, number = {}, snapshot
        else:
            if state.number - self._copied <= size // _SIZE_PER_ENTRY:
                return
            folded = replace(state, files=state.files.folded())
            parts, number = snapshot_parts(folded, self._schema), state.number
        try:
            self._snapshots.save_newest(_encoded(number, parts, snapshot, changed))
        except Exception as error:  # noqa: BLE001 - the commit has succeeded
            what = f"the copy of transaction {number} was not saved"
            self._snapshots.note_failure(what, error)
        self._copied = number

    def _decoded(self, body: bytes) -> NewestCopy:
        try:
            head, _, bodies = body.partition(b"\n")
            told = json.loads(head)
            if int(told["format"]) > FORMAT:
                raise FormatTooNew(f"it has format {told['format']}. Upgrade Sleeper.")
            number, snapshot, changed = (int(told[n]) for n in ("number", "snapshot", "changed"))
            parts, begin = {}, 0
            for name, length in told["parts"].items():
                parts[name] = bodies[begin : begin + length]
                begin += length
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise DataDamaged(f"it cannot be read ({type(error).__name__}: {error})") from error
        load = parts.__getitem__ if parts else partial(self._snapshots.load, number)
        state = state_from_parts(number, load, self._schema)
        self._copied = max(self._copied, number)
        return NewestCopy(state, snapshot, changed)


def is_state_after(state: TableState, body: bytes | None) -> bool:
    """Return whether a state with a digest is the one after an entry; None is no entry."""
    return body is not None and entry_digest(body) == state.digest


def _encoded(number: int, parts: dict[str, bytes], snapshot: int, changed: int) -> bytes:
    lengths = {name: len(body) for name, body in parts.items()}
    head = {
        "format": FORMAT,
        "number": number,
        "snapshot": snapshot,
        "changed": changed,
        "parts": lengths,
    }
    return b"\n".join((json.dumps(head).encode(), b"".join(parts.values())))


def _size(state: TableState) -> int:
    """Return how large a copy is, in references and partitions; four jobs count as one."""
    partitions = len(state.partitions.partitions) if state.partitions else 0
    return state.files.reference_count + partitions + len(state.jobs) // 4
