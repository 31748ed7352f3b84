"""Checkpoints of the table index: they save reading, and never decide anything."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import count

import pytest

from sleeper.errors import DataDamaged, FormatTooNew, InstanceReplaced, StorageFailed
from sleeper.model.tables import TableRecord
from sleeper.state.table_index import ENTRIES_PER_CHECKPOINT
from sleeper.storage.followed_log import Following
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.table_index import object_table_index

ENTRY = "tables/index/{:020d}.json"
CHECKPOINT = "tables/checkpoints/{:020d}.json"


class ObservedObjects(MemoryObjects):
    """Objects that remember which keys were read, and refuse to write under some."""

    def __init__(self):
        super().__init__(lambda: datetime(2026, 5, 4, tzinfo=UTC))
        self.keys_read = []
        self.refused = "no such prefix"

    def read(self, key):
        self.keys_read.append(key)
        return super().read(key)

    def create(self, key, body):
        if key.startswith(self.refused):
            raise StorageFailed(f"will not write {key}")
        return super().create(key, body)


@pytest.fixture
def objects():
    return ObservedObjects()


NUMBERS = count()


def open_index(objects, following: Following | None = None):
    """Open the index anew, as another process does."""
    return object_table_index(
        objects, new_id=lambda: f"id-{next(NUMBERS)}", pause=lambda _: None, following=following
    )


def follow_index(objects):
    """Open the index as a handle does, which compares the last entry at each look."""
    following = Following(
        objects=objects, ticks_s=lambda: 0.0, lost=InstanceReplaced, is_remote=False
    )
    return open_index(objects, following)


def with_tables(objects, tables: int) -> tuple[TableRecord, ...]:
    """Add so many tables and return them."""
    index = open_index(objects)
    for n in range(tables):
        index.add(TableRecord(f"{n}", f"t{n:03d}", properties={"n": str(n)}))
    return index.all()


def checkpoints(objects) -> list[str]:
    """Return the keys of the checkpoints there are."""
    return [info.key for info in objects.listing("tables/checkpoints/")]


def test_opening_begins_at_the_newest_checkpoint(objects):
    """Only the entries after it are read, and one that is not there."""
    tables = with_tables(objects, 2 * ENTRIES_PER_CHECKPOINT + 3)
    objects.keys_read.clear()

    opened = open_index(objects).all()

    assert opened == tables
    assert objects.keys_read == [
        CHECKPOINT.format(128),
        ENTRY.format(129),
        ENTRY.format(130),
        ENTRY.format(131),
        ENTRY.format(132),
    ]


def test_a_look_with_nothing_new_is_one_read(objects):
    """The entry that would be next, and no listing."""
    with_tables(objects, 3)
    index = open_index(objects)
    index.all()
    objects.keys_read.clear()

    index.by_name("t001")

    assert objects.keys_read == [ENTRY.format(4)]


def test_two_checkpoints_are_kept(objects):
    """Each holds all tables, so older ones would only cost space."""
    with_tables(objects, 5 * ENTRIES_PER_CHECKPOINT)

    assert checkpoints(objects) == [CHECKPOINT.format(256), CHECKPOINT.format(320)]


def test_no_checkpoint_is_no_loss(objects):
    """A change succeeds though its checkpoint cannot be written, and the entries hold all."""
    objects.refused = "tables/checkpoints/"

    tables = with_tables(objects, ENTRIES_PER_CHECKPOINT + 1)

    assert checkpoints(objects) == []
    assert len(tables) == ENTRIES_PER_CHECKPOINT + 1
    assert open_index(objects).all() == tables


@pytest.mark.parametrize("key", [ENTRY.format(2), CHECKPOINT.format(64)])
@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b'{"format":1}', b'{"format":1,"change":{}}'),
        b'{"format":1,"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    ],
    ids=["empty", "cut off", "list", "bare", "no change", "nested"],
)
def test_damage_is_named(objects, key, body):
    """A body that is none is reported by its key, with what to do; nothing is guessed."""
    with_tables(objects, 1)
    objects.put(key, body)

    with pytest.raises(DataDamaged, match=key):
        open_index(objects).all()


@pytest.mark.parametrize("table_id", ["", ".", "..", "../other", "/etc", "a/b"])
def test_an_id_that_leads_away_is_damage(objects, table_id):
    """A table's data lie in a folder of that name, and are deleted with the table."""
    table = {"tableId": table_id, "name": "evil", "online": True, "properties": {}}
    change = {"type": "add", "tableId": table_id, "table": table}
    entry = {"entryId": "by hand", "format": 1, "change": change}
    objects.put(ENTRY.format(1), json.dumps(entry).encode())

    with pytest.raises(DataDamaged, match="cannot be the id of a table"):
        open_index(objects).all()


@pytest.mark.parametrize("key", [ENTRY.format(2), CHECKPOINT.format(64)])
def test_a_newer_format_is_named(objects, key):
    """An older Sleeper stops instead of misreading it."""
    with_tables(objects, 1)
    objects.put(key, json.dumps({"format": 2}).encode())

    with pytest.raises(FormatTooNew, match="format 2"):
        open_index(objects).all()


def test_a_newer_type_of_change_is_named(objects):
    """It is no damage: somebody with a newer Sleeper changed the index."""
    change = {"type": "branch", "tableId": "t"}
    entry = {"entryId": "newer", "format": 1, "change": change}
    objects.put(ENTRY.format(1), json.dumps(entry).encode())

    with pytest.raises(FormatTooNew, match="'branch'"):
        open_index(objects).all()


def test_entries_can_be_read_by_people(objects):
    """Each is JSON that says what was changed."""
    index = open_index(objects)
    index.add(TableRecord("0a", "trades", properties={"p": "1"}))
    index.remove("0a")

    added, removed = (json.loads(objects.read(ENTRY.format(n))) for n in (1, 2))

    assert added["format"] == 1
    assert added["change"] == {
        "type": "add",
        "tableId": "0a",
        "table": {"tableId": "0a", "name": "trades", "online": True, "properties": {"p": "1"}},
    }
    assert removed["change"] == {"type": "remove", "tableId": "0a"}
    assert added["entryId"] != removed["entryId"]


LAST = ENTRY.format(ENTRIES_PER_CHECKPOINT)


@pytest.fixture
def tables(objects):
    """As many tables as a checkpoint has, so that nobody reads an entry to know them."""
    return with_tables(objects, ENTRIES_PER_CHECKPOINT)


def changed_json(objects, key: str, change) -> None:
    """Let `change` change the object at a key, as JSON."""
    value = json.loads(objects.read(key))
    change(value)
    objects.put(key, json.dumps(value).encode())


def with_another_id(entry) -> None:
    """Let an entry be another one that makes the same change."""
    entry["entryId"] = "of another instance"


def with_another_table(entry) -> None:
    """Let an entry be another one that adds another table."""
    with_another_id(entry)
    entry["change"]["table"]["name"] = "another"


@pytest.mark.parametrize(
    ("replaced", "is_of_earlier_version"),
    [(with_another_id, False), (with_another_table, False), (with_another_table, True)],
)
def test_an_entry_that_a_checkpoint_has_is_known_again(
    objects, tables, replaced, is_of_earlier_version
):
    """Given a log with another last entry, it is refused as long as it is there, and no longer.

    A checkpoint of an earlier version does not say which entry it ends with, but what tables were.
    """
    own = objects.read(LAST)
    if is_of_earlier_version:
        changed_json(
            objects, CHECKPOINT.format(ENTRIES_PER_CHECKPOINT), lambda each: each.pop("entryId")
        )
    index = follow_index(objects)
    assert index.known_by_name("t007") == tables[7]

    changed_json(objects, LAST, replaced)
    for _ in range(2):
        with pytest.raises(InstanceReplaced, match=f"entry {ENTRIES_PER_CHECKPOINT} of the log"):
            index.all()

    objects.put(LAST, own)
    assert index.all() == tables


def test_a_table_that_was_removed_last_is_known_again_too(objects, tables):
    """Given a checkpoint of an earlier version after a removal, an entry that adds is another."""
    index = open_index(objects)
    for number in range(ENTRIES_PER_CHECKPOINT):
        index.remove(f"{number}")
    key = CHECKPOINT.format(2 * ENTRIES_PER_CHECKPOINT)
    last = ENTRY.format(2 * ENTRIES_PER_CHECKPOINT)
    own = objects.read(last)
    changed_json(objects, key, lambda checkpoint: checkpoint.pop("entryId"))

    assert follow_index(objects).all() == ()

    objects.put(last, objects.read(ENTRY.format(3)))
    with pytest.raises(InstanceReplaced):
        follow_index(objects).all()

    objects.put(last, own)
    assert follow_index(objects).all() == ()
