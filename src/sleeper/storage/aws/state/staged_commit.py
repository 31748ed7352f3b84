"""Commits of more items than one transaction of DynamoDB writes.

The changes are stored first, as items that nobody reads. The revision item then names the commit,
in one write: from there on it is committed. Whoever reads the table's items puts the stored changes
over them; the next writer, commonly the same, writes them into the items, in as many transactions
as that needs, and ends it. Each of these is conditional on the revision item, so a writer that was
slow changes nothing any more. To write them twice is no harm: a change is a whole item, or none.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sleeper.errors import DataDamaged
from sleeper.storage.aws.dynamo_tables import WRITES_MAX, DynamoTable, DynamoTables, Item
from sleeper.storage.aws.state.commit_parts import part_key, put_sizes, table_of
from sleeper.storage.aws.state.newest_item import ended, staged_in, still_staged
from sleeper.storage.aws.state.state_items import COMMITS, STAGED, own_key, text, text_of

logger = logging.getLogger(__name__)

BYTES_MAX: Final = 3_500_000
"""Of Amazon's 4 MB for a transaction; the rest is for the revision item and for what is deleted."""

_PIECE_BYTES = 350_000
"""Of Amazon's 400 KB for an item."""


@dataclass(frozen=True, slots=True)
class StagedChanges:
    """The changes of a commit that is not in the table's items yet, or not in all of them.

    Attributes:
        parts: The parts of its transactions, each a Put or a Delete without a condition.
    """

    parts: tuple[Item, ...] = ()
    _by_table: Mapping[str, dict[str, Item | None]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        found: dict[str, dict[str, Item | None]] = {}
        for part in self.parts:
            [(_, request)] = part.items()
            table = table_of(request["TableName"])
            changed = found.setdefault(table.name, {})
            changed[_range_key(table, part_key(part))] = request.get("Item")
        object.__setattr__(self, "_by_table", found)

    def over(self, table: DynamoTable, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items of a table as they are after the commit, in any order."""
        changed = self._by_table.get(table.name, {})
        yield from (item for item in items if _range_key(table, item) not in changed)
        yield from (item for item in changed.values() if item is not None)


NOTHING_STAGED: Final = StagedChanges()


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPiece:
    """One item with a piece of the changes of a commit.

    Attributes:
        key: Its key.
        before: The number of the commit that it follows.
        commit_id: The id of its commit.
    """

    key: Item
    before: int
    commit_id: str

    @classmethod
    def of(cls, item: Item) -> StagedPiece:
        """Return what an item says of itself."""
        before, commit_id, _ = json.loads(text_of(item["Body"]))
        key = {name: item[name] for name, _ in COMMITS.key}
        return cls(key=key, before=before, commit_id=commit_id)

    def is_left_over(self, revision: Item) -> bool:
        """Return whether no revision can need it any more, given the newest revision item."""
        if int(revision["RevisionNumber"]["N"]) <= self.before:
            return False  # its writer may be about to commit
        return not (staged_in(revision) and revision["CommitId"] == text(self.commit_id))


class StagedCommits:
    """Stores, reads and ends the large commits of one table.

    Args:
        tables: The instance's DynamoDB tables.
        table_id: The Sleeper table.
    """

    def __init__(self, tables: DynamoTables, table_id: str) -> None:
        self._tables, self._table_id = tables, table_id

    def pieces(self, before: int, commit_id: str, parts: Iterable[Item]) -> list[Item]:
        """Return the parts of transactions that store changes, to be written before the commit.

        Args:
            before: The number of the commit that this one follows.
            commit_id: The id of this one.
            parts: Its changes; their conditions are left out.
        """
        whole = zlib.compress(json.dumps([_unconditional(each) for each in parts]).encode())
        found = []
        for place, start in enumerate(range(0, len(whole), _PIECE_BYTES)):
            item = {
                **self._key(commit_id, place),
                "Body": text(json.dumps([before, commit_id, place])),
                "Changes": {"B": whole[start : start + _PIECE_BYTES]},
            }
            found.append({"Put": {"TableName": self._tables.name(COMMITS), "Item": item}})
        return found

    def read(self, revision: Item) -> StagedChanges | None:
        """Return the changes that a revision item names; None if the item is no longer so.

        Raises:
            DataDamaged: the item is so still, and they cannot be read.
        """
        count = staged_in(revision)
        if not count:
            return NOTHING_STAGED
        commit_id = text_of(revision["CommitId"])
        found = [self._tables.get(COMMITS, self._key(commit_id, n)) for n in range(count)]
        try:
            whole = b"".join(bytes(_there(item)["Changes"]["B"]) for item in found)
            return StagedChanges(tuple(json.loads(zlib.decompress(whole))))
        except (LookupError, ValueError, zlib.error) as error:
            again = self._tables.get(COMMITS, {name: revision[name] for name, _ in COMMITS.key})
            if again is None or not staged_in(again) or again["CommitId"] != revision["CommitId"]:
                return None
            raise DataDamaged(
                f"the changes of its last commit, {count} items whose Id begins with {STAGED!r}, "
                f"cannot be read: {type(error).__name__}: {error}"
            ) from error

    def finish(self, revision: Item) -> None:
        """Write the changes that a revision item names into the table's items, and end it.

        It may have been done in part, or be done by others meanwhile.
        """
        changes = self.read(revision)
        if changes is None or not changes.parts:
            return
        logger.info(
            "writing %d changes of a commit to table %s", len(changes.parts), self._table_id
        )
        table = self._tables.name(COMMITS)
        guard = still_staged(table, revision)
        for group in groups(changes.parts, WRITES_MAX - 1):
            if self._tables.write_together([group], guard) is None:
                return  # somebody else has ended it
        self._tables.write_together([[ended(table, revision)]])
        commit_id = text_of(revision["CommitId"])
        count = staged_in(revision)
        self._tables.delete(COMMITS, [self._key(commit_id, n) for n in range(count)])

    def _key(self, commit_id: str, place: int) -> Item:
        return own_key(self._table_id, STAGED, f"{commit_id}#{place}")


def groups(parts: Iterable[Item], parts_max: int) -> Iterator[list[Item]]:
    """Divide parts into groups that one transaction may hold."""
    group: list[Item] = []
    size_bytes = 0
    for part in parts:
        part_bytes = sum(put_sizes([part]))
        if group and (len(group) == parts_max or size_bytes + part_bytes > BYTES_MAX):
            yield group
            group, size_bytes = [], 0
        group.append(part)
        size_bytes += part_bytes
    if group:
        yield group


def _unconditional(part: Item) -> Item:
    [(verb, request)] = part.items()
    return {verb: {name: request[name] for name in ("TableName", "Key", "Item") if name in request}}


def _range_key(table: DynamoTable, item: Item) -> str:
    found: Any = item[table.key[1][0]]["S"]
    return str(found)


def _there(item: Item | None) -> Item:
    if item is None:
        raise LookupError("one of them is not there")
    return item
