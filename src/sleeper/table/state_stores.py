"""Opens the state store of a table, as its property `sleeper.table.statestore.classname` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sleeper.model.known_properties.typed import TableProperties
from sleeper.model.schema import Schema
from sleeper.ports.objects import Objects
from sleeper.state.state_store import StateStore
from sleeper.state.stores.log_store import TransactionLogStateStore
from sleeper.storage.checked_log import open_log
from sleeper.storage.object_log import ObjectSnapshotStore
from sleeper.table.instance_context import InstanceContext


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where the state of one table is kept; the arguments of `open_state_store`."""

    table_id: str
    files: Objects
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
    """Open the state store of a table whose folder is `files`. Nothing is read yet."""
    place = _Place(
        table_id=table_id, files=files, schema=schema, properties=properties, context=context
    )
    return _OPENERS[properties.statestore.class_name](place)


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
    )


_OPENERS: Final[Mapping[str, Callable[[_Place], StateStore]]] = {
    "TransactionLogStateStore": _log_in_objects,
}
"""By the simple name of the class; the names in `model.known_properties.given`."""
