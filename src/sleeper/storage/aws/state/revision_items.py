"""Revisions of a table's state as items of DynamoDB, and back.

An item names the objects with the parts of the state. Table, keys, `CURRENT_REVISION` and
`CURRENT_UUID` are upstream's; the other attributes are ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sleeper.errors import DataDamaged
from sleeper.model.tables import StateMove
from sleeper.state.revision_store import Revision, RevisionHistory
from sleeper.state.snapshot import FILES, JOBS, PARTITIONS
from sleeper.state.value_json import (
    move_from_json,
    move_to_json,
    time_from_json,
    time_to_json,
)
from sleeper.storage.aws.dynamo_tables import DynamoTable, Item

REVISIONS: Final = DynamoTable("table-revisions", (("TABLE_ID", "S"), ("REVISION_ID_KEY", "S")))
"""The DynamoDB table with the revisions of all tables of an instance."""

CURRENT: Final = "CURRENT_REVISION_ID_KEY"
"""The range key of the newest revision."""

_KEPT = "REVISION_"
_DIGITS = 12
_ATTRIBUTES: Final = {FILES: "FILES", PARTITIONS: "PARTITIONS", JOBS: "JOBS"}
_PART = re.compile(r"statestore/(files|partitions|jobs)/(\d{12,18})-[^/\x00]+-\1\.parquet")

FOLDERS: Final = tuple(f"statestore/{part.removesuffix('.parquet')}/" for part in _ATTRIBUTES)
"""The folders of parts, in the table's folder."""


def part_key(part: str, number: int, commit_id: str) -> str:
    """Return the key, in the table's folder, of one part that a commit writes.

    >>> part_key("files.parquet", 7, "id")
    'statestore/files/000000000007-id-files.parquet'
    """
    folder = part.removesuffix(".parquet")
    return f"statestore/{folder}/{number:0{_DIGITS}d}-{commit_id}-{part}"


def number_in(key: str) -> int | None:
    """Return the number of the revision that wrote a part; None if it is no key of a part."""
    found = _PART.fullmatch(key)
    return int(found[2]) if found else None


def kept_key(number: int) -> str:
    """Return the range key of a revision by its number."""
    return f"{_KEPT}{number:0{_DIGITS}d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRevision:
    """A revision as an item has it.

    Attributes:
        number: Its number.
        commit_id: The id of its commit.
        parts: The keys of the objects with its parts, in the table's folder.
        at: The date of its commit.
        swept_before: As in the state.
        moved: As in the state.
        history: The commits before it; empty in items of kept revisions.
    """

    number: int
    commit_id: str
    parts: Mapping[str, str]
    at: datetime | None
    swept_before: datetime | None
    moved: StateMove | None
    history: RevisionHistory

    @classmethod
    def of(cls, revision: Revision, parts: Mapping[str, str]) -> StoredRevision:
        """Return what is stored of a revision whose parts have these keys."""
        return cls(
            number=revision.state.number,
            commit_id=revision.history.commit_ids[-1],
            parts=parts,
            at=revision.state.at,
            swept_before=revision.state.swept_before,
            moved=revision.state.moved,
            history=revision.history,
        )

    def current_item(self, table_id: str) -> Item:
        """Return the item of the newest revision."""
        return self._item(table_id, CURRENT) | {"HISTORY": {"S": self.history.to_json()}}

    def kept_item(self, table_id: str) -> Item:
        """Return the item by which it is read when it is no longer the newest."""
        return self._item(table_id, kept_key(self.number))

    def _item(self, table_id: str, key: str) -> Item:
        times = {"AT": self.at, "SWEPT_BEFORE": self.swept_before}
        moved = None if self.moved is None else json.dumps(move_to_json(self.moved))
        return {
            **revision_key(table_id, key),
            "CURRENT_REVISION": {"S": f"{self.number:0{_DIGITS}d}"},
            "CURRENT_UUID": {"S": self.commit_id},
            **{_ATTRIBUTES[name]: {"S": key} for name, key in self.parts.items()},
            **{name: {"S": time_to_json(time)} for name, time in times.items() if time is not None},
            **({} if moved is None else {"MOVED": {"S": moved}}),
        }


def revision_key(table_id: str, key: str) -> Item:
    """Return the key of an item."""
    return {"TABLE_ID": {"S": table_id}, "REVISION_ID_KEY": {"S": key}}


def is_kept(item: Item) -> bool:
    """Return whether an item is that of a kept revision."""
    return _text(item, "REVISION_ID_KEY").startswith(_KEPT)


def stored_revision(item: Item) -> StoredRevision:
    """Return what an item says.

    Raises:
        DataDamaged: it lacks something, or says something else.
    """
    try:
        parts = {part: _text(item, name) for part, name in _ATTRIBUTES.items()}
        for key in parts.values():
            if number_in(key) is None:
                raise ValueError(f"{key!r} is not the key of a part")
        history = _text(item, "HISTORY") if "HISTORY" in item else None
        moved = json.loads(_text(item, "MOVED")) if "MOVED" in item else None
        return StoredRevision(
            number=int(_text(item, "CURRENT_REVISION")),
            commit_id=_text(item, "CURRENT_UUID"),
            parts=parts,
            at=_time(item, "AT"),
            swept_before=_time(item, "SWEPT_BEFORE"),
            moved=None if moved is None else move_from_json(moved),
            history=RevisionHistory() if history is None else RevisionHistory.from_json(history),
        )
    except (LookupError, ValueError, TypeError) as error:
        description = {name: item.get(name) for name in ("TABLE_ID", "REVISION_ID_KEY")}
        raise DataDamaged(
            f"the item {description} of a table's revision is damaged: {error!r}. Restore it "
            "from a backup of the DynamoDB table."
        ) from error


def _text(item: Item, name: str) -> str:
    found: Any = item[name]["S"]
    return str(found)


def _time(item: Item, name: str) -> datetime | None:
    return time_from_json(_text(item, name)) if name in item else None
