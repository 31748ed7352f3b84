"""Makes leaves before rows arrive: for a bulk import (rule BLK-10), or a new table (TBL-10).

`extend_partitions` splits leaves of a table by a sample of the input, until there are enough;
`estimate_split_points` finds the split points of a table that is to be created.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.inputs.key_sample import KeySample, samples_by_leaf
from sleeper.engine.inputs.sources import first_key_columns, open_source
from sleeper.engine.sketches.sketch import estimate_split_points as from_columns
from sleeper.errors import CommitContended, PartitionSplitRefused, SplitAttemptsExceeded
from sleeper.html.values import NotebookHtml
from sleeper.model.schema import Schema
from sleeper.ports.ids import NewId
from sleeper.ports.objects import InputStore
from sleeper.state.plans.extend_tree import extend_tree
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState
from sleeper.state.transactions.partitions import ExtendPartitionTree


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendSettings:
    """Settings for extending a tree, from the table's properties.

    Attributes:
        min_leaves: The wanted number of leaves.
        required: True if fewer leaves are an error.
        attempts: Maximum number of commits to try while other writers change the tree.
        min_rows: A leaf with fewer rows of the input is not split.
        min_distribution_percent: A leaf with less than this percentage of the mean row count is
            not split.
    """

    min_leaves: int
    required: bool = True
    attempts: int
    min_rows: int
    min_distribution_percent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendResult(NotebookHtml):
    """The result of extending a tree.

    Attributes:
        leaves_before: Number of leaves before.
        leaves_after: Number of leaves after; other writers may have split some too.
        attempts: Number of commits that were tried; 0 if there were enough leaves.
        transaction: The table's transaction number after the extension.
    """

    leaves_before: int
    leaves_after: int
    attempts: int
    transaction: int


def extend_partitions(
    sample: Callable[[], KeySample],
    schema: Schema,
    settings: ExtendSettings,
    *,
    store: StateStore,
    new_id: NewId,
) -> ExtendResult:
    """Extend a table's partition tree to `min_leaves` leaves, in one commit; or do nothing.

    If another writer changes the tree at the same time, the tree is read again, and the
    remaining splits are planned again from the same sample.

    Args:
        sample: Takes a sample of the input's row keys. Called once, and only if there are too
            few leaves.
        schema: The table's schema.
        settings: The wanted number of leaves, and limits.
        store: The table's state.
        new_id: Makes ids of partitions.

    Raises:
        InsufficientData: the input has too few rows or keys for so many leaves. Nothing was
            changed.
        SplitAttemptsExceeded: other writers changed the tree in every attempt.
        InputRefused: the input cannot be sampled.
        CommitUnknown, StorageFailed: try again; a tree that was extended is recognised.
    """
    state = store.refresh()
    leaves_before = state.tree.leaf_count
    taken: KeySample | None = None
    refusal: Exception | None = None
    for attempt in range(settings.attempts + 1):
        leaves = state.tree.leaf_count
        if leaves >= settings.min_leaves:
            return ExtendResult(
                leaves_before=leaves_before,
                leaves_after=leaves,
                attempts=attempt,
                transaction=state.number,
            )
        if attempt == settings.attempts:
            break
        taken = sample() if taken is None else taken
        transaction = _plan(state, taken, schema, settings, new_id)
        if not transaction.new:  # only if fewer leaves are not an error
            return ExtendResult(
                leaves_before=leaves_before,
                leaves_after=leaves,
                attempts=attempt,
                transaction=state.number,
            )
        try:
            state = store.commit(transaction)
        except (PartitionSplitRefused, CommitContended) as error:
            refusal = error
            state = store.refresh()
    raise SplitAttemptsExceeded(settings.min_leaves, leaves, settings.attempts) from refusal


def estimate_split_points(
    data: object,
    schema: Schema,
    partitions: int,
    *,
    rows_per_file_max: int | None = None,
    remote: InputStore | None = None,
) -> list[Any]:
    """Return values of the first row key that divide the rows of `data` into equal parts.

    Args:
        data: As for `Table.ingest`. Only the first row key is read; nulls are skipped.
        schema: The schema of the future table.
        partitions: The wanted number of leaves, at least 2. Repeated values may give fewer.
        rows_per_file_max: Maximum number of rows to read from the start of each file.
        remote: Reads files by URL.

    Raises:
        SplitPointsInvalid: fewer than 2 partitions are requested.
        InputRefused: the input cannot be read.
    """
    arrow_schema = to_arrow(schema)
    source = open_source(data, arrow_schema, remote)
    columns = first_key_columns(source, arrow_schema, rows_per_file_max)
    return from_columns(columns, schema.row_keys[0], partitions)


def _plan(
    state: TableState,
    sample: KeySample,
    schema: Schema,
    settings: ExtendSettings,
    new_id: NewId,
) -> ExtendPartitionTree:
    extension = extend_tree(
        state.tree,
        samples_by_leaf(sample, state.tree, schema),
        min_leaves=settings.min_leaves,
        min_rows=settings.min_rows,
        min_percent=settings.min_distribution_percent,
        new_id=new_id,
        required=settings.required,
    )
    return ExtendPartitionTree(updated=extension.updated, new=extension.new)
