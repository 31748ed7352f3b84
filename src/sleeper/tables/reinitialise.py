"""Removes all rows of a table; keeps its partitions or makes new ones (rule TBL-5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow.compute as pc

from sleeper.errors import PropertiesInvalid
from sleeper.model import paths
from sleeper.model.partitions import tree_from_split_points
from sleeper.model.tables import SCHEMA
from sleeper.state.transactions.files import ClearFiles
from sleeper.state.transactions.partitions import InitialisePartitions
from sleeper.tables.open_table import OpenTable


def reinitialise(table: OpenTable, split_points: Sequence[Any] | None) -> int:
    """Remove all rows in one commit, and make new partitions if split points are given.

    The ids of committed jobs are removed too, so a job may run again. The table's data files are
    deleted after the commit; files of an ingest that is still running are kept.

    Raises:
        PropertiesInvalid: somebody edited the schema in the table's file for other programs.
        SplitPointsInvalid: split points have the wrong type, or are not strictly ascending.
        CommitTooLarge: the table's state store cannot do it in one commit. Nothing was changed.
    """
    store, files = table.store, table.files
    _check_schema_unedited(table)
    transactions: list[Any] = [ClearFiles()]
    if split_points is not None:
        tree = tree_from_split_points(table.schema, split_points, new_id=table.context.new_id)
        transactions.append(InitialisePartitions(partitions=tuple(tree.partitions.values())))
    before = store.refresh()
    state = store.commit_group(transactions, together=True).of_all()
    names = pc.unique(before.files.to_arrow()["filename"]).to_pylist()
    tracked = [name for name in names if paths.is_data_file(name)]
    files.delete([*tracked, *map(paths.sketch_file, tracked)])
    table.undo_commit_if_deleted()
    return state.number


def _check_schema_unedited(table: OpenTable) -> None:
    """Check that nobody expects a new schema: upstream takes it from the file that was edited."""
    edited = table.context.index.edited_schema(table.record)
    if edited is not None:
        raise PropertiesInvalid(
            {
                SCHEMA: f"{edited} has another schema than table {table.name!r}, and nothing here "
                "reads that file: the schema of a table cannot change, and no row was removed. "
                "Make a new table with the other schema instead. To remove all rows and keep the "
                "schema, delete that file first; the next change of a property writes it again."
            }
        )
