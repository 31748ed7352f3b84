"""Opens the state store of a table, as its property `sleeper.table.statestore.classname` says.

Words: a place is where the state of a table is: the table's folder, or after a move a folder inside
it, and items of DynamoDB under an id of their own; a log is followed if the last entry that was
seen is compared before it goes on.

1. the table's properties say the class, and the last move of the state, if there was one
2. the place follows from both (`open_state_store`)
3. `_OPENERS` has a function for each class: a log in objects or in DynamoDB, with or without
   snapshots (`_store_on_log`), or revisions as items or as parts in S3 (`_of_revisions`)
4. a log is followed, with what to raise if the table was deleted, moved or replaced (`_lost`)

`last_numbers` asks for many tables at once; `delete_states` deletes what is outside of the folder.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from sleeper.errors import SleeperError, StateMoved, TableNotFound
from sleeper.model import paths
from sleeper.model.known_properties.typed import TableProperties
from sleeper.model.schema import Schema
from sleeper.model.tables import SCHEMA, STATE_MOVE, STATE_STORE, StateMove, TableRecord
from sleeper.ports.objects import Objects
from sleeper.ports.transaction_log import SnapshotStore, TransactionLog
from sleeper.state.log_entry import entry_time
from sleeper.state.log_store import ReadBeside, SnapshotRule, TransactionLogStateStore
from sleeper.state.moves import MoveNotes, StatePlace
from sleeper.state.state_store import StateStore
from sleeper.state.table_index import OwnChanges
from sleeper.storage.followed_log import FollowedLog, Following, open_log
from sleeper.storage.snapshots import NoSnapshots, ObjectSnapshotStore
from sleeper.tables.instance_context import InstanceContext

if TYPE_CHECKING:
    from sleeper.state.revision_store import StateRevisions
    from sleeper.storage.aws.state.aws_states import AwsStates

_log = logging.getLogger(__name__)
_SLOW_ATTEMPTS: Final = 5
"""A commit writes objects first and takes tens of milliseconds, so its pauses begin with 64."""
_ASKED_TOGETHER: Final = frozenset(
    {
        "DynamoDBTransactionLogStateStore",
        "DynamoDBTransactionLogStateStoreNoSnapshots",
        "DynamoDBStateStore",
        "S3StateStore",
    }
)
"""State stores whose last numbers are asked for many tables at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where the state of one table is kept.

    Attributes:
        table_id: The table.
        state_id: The id of the state, for items outside of the folder: the table's id, and that of
            the state's last move.
        changes: Counts the commits of this process to the table.
        files: The folder of the state: the table's, or one inside it after a move.
        here: The move to this place; None for the place where the table was made.
        schema: The table's schema.
        properties: The table's properties.
        context: The instance.
        is_new: Whether there may be no state yet.
        is_dated: As in `Place`, for the files.
    """

    table_id: str
    state_id: str
    changes: OwnChanges
    files: Objects
    here: StateMove | None
    schema: Schema
    properties: TableProperties
    context: InstanceContext
    is_new: bool
    is_dated: bool


def open_state_store(
    table_id: str,
    files: Objects,
    schema: Schema,
    properties: TableProperties,
    context: InstanceContext,
    *,
    is_new: bool = False,
    is_dated: bool | None = None,
) -> StateStore:
    """Open the state store of a table. Nothing is read yet.

    Args:
        table_id: The table.
        files: Its folder.
        schema: Its schema.
        properties: Its properties, which name the class, and the last move of the state.
        context: Its instance.
        is_new: Whether there may be no state yet, because the table is being created, or its state
            is being moved there.
        is_dated: As in `Place`, for a folder that is not at the place of the instance.

    Raises:
        PropertiesInvalid: there is no such state store.
    """
    here = properties.state_move
    place = _Place(
        table_id=table_id,
        state_id=_state_id(table_id, here),
        changes=OwnChanges(context.url, table_id),
        files=files if here is None else files.under(paths.moved_state(here.move_id)),
        here=here,
        schema=schema,
        properties=properties,
        context=context,
        is_new=is_new,
        is_dated=context.place.is_dated if is_dated is None else is_dated,
    )
    return _OPENERS[properties.state_store](place)


def store_of(record: TableRecord, context: InstanceContext, *, is_new: bool = False) -> StateStore:
    """Open the state store of the table with a record in the index, as `open_state_store` does."""
    return open_state_store(
        record.table_id,
        context.objects.under(record.table_id),
        Schema.from_json(record.properties[SCHEMA]),
        TableProperties(record.properties, context.properties),
        context,
        is_new=is_new,
    )


def store_at(
    record: TableRecord, context: InstanceContext, place: StatePlace, *, is_new: bool = False
) -> StateStore:
    """Open the state store in a place where the state of a table may be."""
    others = {name: text for name, text in record.properties.items() if name != STATE_MOVE}
    there = {STATE_STORE: place.class_name} if place.move is None else place.move.properties
    return store_of(replace(record, properties={**others, **there}), context, is_new=is_new)


def last_numbers(
    records: Sequence[TableRecord], known: Mapping[str, int], context: InstanceContext
) -> dict[str, int]:
    """Return the number of the last commit of each table, by the table's id.

    Where states are in DynamoDB, a hundred tables are one request. A commit of this very moment
    may be missing, and so may a table without a commit.

    Args:
        records: The tables.
        known: Numbers that were seen before.
        context: The instance.
    """
    by_class: dict[str, dict[str, tuple[TableRecord, int | None]]] = {}
    for record in records:
        properties = TableProperties(record.properties, context.properties)
        here, seen = properties.state_move, known.get(record.table_id)
        if here is not None and seen is not None and seen < here.number:
            seen = None  # it is a number of the store that the state was moved from
        states = by_class.setdefault(properties.state_store, {})
        states[_state_id(record.table_id, here)] = record, seen
    found: dict[str, int] = {}
    for class_name, states in by_class.items():
        if class_name not in _ASKED_TOGETHER:
            found |= {each.table_id: _last_number(each, n, context) for each, n in states.values()}
            continue
        seen_by_id = {name: seen for name, (_, seen) in states.items()}
        numbers = _aws_states(context).last_numbers(class_name, seen_by_id)
        found |= {states[state_id][0].table_id: number for state_id, number in numbers.items()}
    return found


def _last_number(record: TableRecord, known: int | None, context: InstanceContext) -> int:
    store = store_of(record, context)
    if known is not None and store.log is not None and store.log.read(known + 1) is None:
        return known
    return store.refresh().number


def _state_id(table_id: str, here: StateMove | None) -> str:
    return table_id if here is None else f"{table_id}-{here.move_id}"


def delete_states(record: TableRecord, context: InstanceContext) -> None:
    """Delete what a deleted table's state stores keep outside of its folder: all that it was in.

    Raises:
        PropertiesInvalid, DataDamaged: what it is in is unknown; something is left behind.
        StorageFailed: something is left behind.
    """
    for place in MoveNotes(context.objects.under(record.table_id)).places():
        try:
            store_at(record, context, place, is_new=True).delete()
        except SleeperError as failure:
            _log.warning("a state of deleted table %s is left behind: %s", record.name, failure)
    store_of(record, context, is_new=True).delete()


def _log_in_objects(place: _Place) -> StateStore:
    checks = place.context.commit_checks
    log = open_log(place.files, checks=checks)
    is_remote = place.files.is_remote
    snapshots = ObjectSnapshotStore(place.files, keeps_newest=is_remote)

    def time_for_writers() -> datetime:
        """Check the store where a writer begins: not after hours, when it commits its files."""
        checks.before_commit()
        return place.context.storage_time()

    return _store_on_log(
        place,
        log,
        snapshots,
        SnapshotRule(),
        storage_time=time_for_writers,
        is_remote=is_remote,
        is_log_in_objects=True,
        # A store that is not trusted might lose an entry to another one: its log alone decides.
        read_beside=place.files.beside if is_remote and checks.read_back else None,
    )


def _log_in_dynamo(place: _Place) -> StateStore:
    return _store_on_log(
        place, _dynamo_log(place), ObjectSnapshotStore(place.files), SnapshotRule()
    )


def _log_in_dynamo_alone(place: _Place) -> StateStore:
    never = SnapshotRule(entries_min=sys.maxsize, entries_max=sys.maxsize)
    # A state that was moved there begins with a snapshot.
    snapshots = NoSnapshots() if place.here is None else ObjectSnapshotStore(place.files)
    return _store_on_log(place, _dynamo_log(place), snapshots, never)


def _dynamo_log(place: _Place) -> TransactionLog:
    return _aws_states(place.context).log(
        place.state_id,
        place.files,
        now=place.context.storage_time,
        first=1 if place.here is None else place.here.number,
        is_new=place.is_new,
    )


def _store_on_log(
    place: _Place,
    log: TransactionLog,
    snapshots: SnapshotStore,
    rule: SnapshotRule,
    *,
    storage_time: Callable[[], datetime] | None = None,
    is_remote: bool = False,
    is_log_in_objects: bool = False,
    read_beside: ReadBeside | None = None,
) -> StateStore:
    context = place.context

    def is_last(number: int, body: bytes) -> bool:
        """Compare times: a state keeps that of its last entry, and not the entry's id."""
        state = store.compared()
        if state is None or state.number != number:
            return True
        return entry_time(body, f"entry {number} of the log") == state.at

    following = Following(
        objects=place.files,
        ticks_s=context.clock.ticks_s,
        lost=partial(_lost, place),
        is_last=is_last,
        covered=lambda: max(snapshots.numbers(), default=0),
        found_empty=partial(_check_no_table, place) if is_remote else lambda: None,
        first=1 if place.here is None else place.here.number,
        is_remote=is_remote or not is_log_in_objects,
        is_dated=is_log_in_objects and place.is_dated,
    )
    store = TransactionLogStateStore(
        FollowedLog(log, following),
        snapshots,
        place.schema,
        snapshot_rule=rule,
        now=context.clock.now,
        storage_time=storage_time or context.storage_time,
        ticks_s=context.clock.ticks_s,
        new_id=context.new_id,
        pause=context.clock.back_off,
        attempts=place.properties.statestore.commit_attempts,
        here=place.here,
        note_commit=place.changes.note,
        is_remote=is_remote,
        user=context.user,
        read_beside=read_beside,
    )
    return store


def _check_no_table(place: _Place) -> None:
    """Check that an empty log is that of a table that is being made or moved.

    Raises:
        InstanceLost: the index has the table, so its log had entries.
    """
    record = place.context.index.by_id(place.table_id)
    if record is not None and TableProperties(record.properties).state_move == place.here:
        raise place.context.opened.lost(f"table {record.name!r}: its log has no entries")


def _lost(place: _Place, what: str) -> SleeperError:
    """Return why an entry of a table's log that was seen before is not there.

    Raises:
        InstanceLost: the table index is not what it was either.
    """
    record = place.context.index.by_id(place.table_id)
    if record is None:
        return TableNotFound(
            f"table {place.table_id} was deleted, with all its rows; open another table, or create "
            "it again"
        )
    if TableProperties(record.properties).state_move != place.here:
        return StateMoved(
            f"the state of table {record.name!r} was moved to another state store, so nothing was "
            "written. Try again: each call looks where the state is."
        )
    return place.context.opened.lost(f"table {record.name!r}: {what}")


def _items_in_dynamodb(place: _Place) -> StateStore:
    states = _aws_states(place.context)
    return _of_revisions(place, states.items(place.state_id, place.schema, is_new=place.is_new))


def _parts_in_s3(place: _Place) -> StateStore:
    kept = _aws_states(place.context).parts(
        place.state_id, place.files, place.schema, is_new=place.is_new
    )
    return _of_revisions(place, kept, slow_attempts=_SLOW_ATTEMPTS)


def _of_revisions(place: _Place, kept: StateRevisions, *, slow_attempts: int = 0) -> StateStore:
    """Open a store on revisions.

    Args:
        place: Where it is.
        kept: The revisions.
        slow_attempts: A writer that lost a race waits as if it had lost so many more.
    """
    from sleeper.state.revision_store import RevisionStateStore

    context = place.context
    return RevisionStateStore(
        kept,
        place.schema,
        storage_time=context.storage_time,
        ticks_s=context.clock.ticks_s,
        new_id=context.new_id,
        pause=lambda attempt: context.clock.back_off(attempt + slow_attempts),
        attempts=place.properties.statestore.commit_attempts,
        here=place.here,
        note_commit=place.changes.note,
    )


def _aws_states(context: InstanceContext) -> AwsStates:
    return context.place.aws_states(
        context.properties.id, pause=context.clock.back_off, new_id=context.new_id
    )


_OPENERS: Final[Mapping[str, Callable[[_Place], StateStore]]] = {
    "TransactionLogStateStore": _log_in_objects,
    "DynamoDBTransactionLogStateStore": _log_in_dynamo,
    "DynamoDBTransactionLogStateStoreNoSnapshots": _log_in_dynamo_alone,
    "DynamoDBStateStore": _items_in_dynamodb,
    "S3StateStore": _parts_in_s3,
}
"""By the simple name of the class; the names in `model.known_properties.state_store`."""
