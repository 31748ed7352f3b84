"""Make a table: check everything, prepare its partitions, then let it be seen (spec TBL-1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sleeper.errors import TableAlreadyExists
from sleeper.model.partitions import tree_from_split_points
from sleeper.model.schema import Schema
from sleeper.model.tables import TableRecord
from sleeper.ports.ids import NewId
from sleeper.ports.table_index import TableIndex
from sleeper.state.state_store import StateStore
from sleeper.state.transactions.partitions import InitialisePartitions


def create_table(
    record: TableRecord,
    schema: Schema,
    split_points: Sequence[Any],
    *,
    index: TableIndex,
    store: StateStore,
    new_id: NewId,
) -> None:
    """Initialise the table's partitions, then add it to the index.

    The index entry is what makes a table exist: killed before it, nothing is visible, and the
    folder under the table's unused id is an orphan.

    Raises:
        SplitPointsInvalid: split points of the wrong type, or not strictly ascending.
        TableAlreadyExists: the name is taken.
    """
    if index.by_name(record.name) is not None:
        raise TableAlreadyExists(f"table {record.name!r} exists already; choose another name")
    tree = tree_from_split_points(schema, split_points, new_id=new_id)
    store.commit(InitialisePartitions(partitions=tuple(tree.partitions.values())))
    index.add(record)
