"""Opens the state store of a table, as its property `sleeper.table.statestore.classname` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sleeper.errors import PropertiesInvalid
from sleeper.model import paths
from sleeper.model.known_properties.given import BUILT_STATE_STORES
from sleeper.model.known_properties.typed import TableProperties
from sleeper.model.schema import Schema
from sleeper.model.tables import STATE_STORE, StateMove
from sleeper.ports.objects import Objects
from sleeper.state.state_store import StateStore
from sleeper.state.stores.log_store import TransactionLogStateStore
from sleeper.storage.checked_log import open_log
from sleeper.storage.object_log import ObjectSnapshotStore
from sleeper.table.instance_context import InstanceContext


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where the state of one table is kept.

    Attributes:
        state_id: The id of the state, for items outside of the folder: the table's id, and that of
            the state's last move.
        files: The folder of the state: the table's, or one inside it after a move.
        here: The move to this place; None for the place where the table was made.
        schema: The table's schema.
        properties: The table's properties.
        context: The instance.
    """

    state_id: str
    files: Objects
    here: StateMove | None
    schema: Schema
    properties: TableProperties
    context: InstanceContext


def open_state_store(
    table_id: str,
    files: Objects,
    schema: Schema,
    properties: TableProperties,
    context: InstanceContext,
) -> StateStore:
    """Open the state store of a table whose folder is `files`. Nothing is read yet.

    Raises:
        PropertiesInvalid: there is no such state store.
    """
    here = properties.state_move
    place = _Place(
        state_id=table_id if here is None else f"{table_id}-{here.move_id}",
        files=files if here is None else files.under(paths.moved_state(here.move_id)),
        here=here,
        schema=schema,
        properties=properties,
        context=context,
    )
    opener = _OPENERS.get(properties.state_store)
    if opener is None:
        raise PropertiesInvalid(
            {
                STATE_STORE: f"{STATE_STORE} is {properties.state_store!r}, which is not built "
                f"yet. Built: {', '.join(BUILT_STATE_STORES)}."
            }
        )
    return opener(place)


def _log_in_objects(place: _Place) -> StateStore:
    context = place.context
    return TransactionLogStateStore(
        open_log(place.files, checks=context.commit_checks),
        ObjectSnapshotStore(place.files),
        place.schema,
        now=context.now,
        storage_time=context.storage_time,
        ticks_s=context.ticks_s,
        new_id=context.new_id,
        pause=context.pause,
        attempts=place.properties.statestore.commit_attempts,
        here=place.here,
    )


_OPENERS: Final[Mapping[str, Callable[[_Place], StateStore]]] = {
    "TransactionLogStateStore": _log_in_objects,
}
"""By the simple name of the class; the names in `model.known_properties.given`."""
