"""Moves references of split partitions down to the leaves (rules CMP-2, STS-6).

Compactions, splits and merges begin with it, because they count the rows and files of leaves. It
is no work for Spark: what it reads is a sketch of each file, in a bucket several at a time, and
what it decides needs the state.
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from sleeper.engine.ahead import run_ahead
from sleeper.engine.sketches.leaf_keys import SKETCHES_AT_ONCE
from sleeper.engine.sketches.sketch import Sketches
from sleeper.engine.sketches.stored_sketch import read_stored_sketch
from sleeper.errors import DataDamaged
from sleeper.model.files import FileReference
from sleeper.state.plans.push_down import (
    PushDownPlan,
    plan_push_down,
    references_above_leaves,
)
from sleeper.state.state_store import commit_planned
from sleeper.state.table_state import TableState
from sleeper.state.transactions.files import SplitFileReferences
from sleeper.tables.open_table import OpenTable

_REFERENCES_MAX = 20_000
_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushDownResult:
    """The result of a push-down.

    Attributes:
        moved: Number of references that were replaced.
        made: Number of references on leaves that replaced them.
        transaction: The table's transaction number afterwards.
    """

    moved: int
    made: int
    transaction: int


def push_down_references(table: OpenTable) -> PushDownResult:
    """Move references down, in commits of about 20,000 new references each.

    A store that takes fewer changes at once gets more commits: a reference to very many leaves is
    then moved down in several steps.

    References that a compaction job has claimed are not moved. Row counts are estimated from the
    files' sketches, or by halving if a sketch is missing or damaged.

    Raises:
        CommitRefused, CommitContended: others changed the same references in every attempt; try
            again.
        CommitUnknown, StorageFailed: try again; no reference is moved twice.
    """
    store = table.store

    def plan(state: TableState) -> tuple[PushDownPlan, SplitFileReferences | None]:
        planned = _plan(table, state, store.changes_max)
        return planned, SplitFileReferences(pushes=planned.pushes) if planned.pushes else None

    moved = made = 0
    more = True
    while more:
        planned, after = commit_planned(store, plan)
        moved += len(planned.pushes)
        made += sum(len(push.into) for push in planned.pushes)
        more = planned.more
    return PushDownResult(moved=moved, made=made, transaction=after.number)


def pushed_down(table: OpenTable, state: TableState) -> TableState:
    """Return the state as `push_down_references` would leave it; nothing is committed."""
    more = True
    while more:
        planned = _plan(table, state, None)
        state = SplitFileReferences(pushes=planned.pushes).fold(state, state.at or _NO_TIME)
        more = planned.more
    return state


def _plan(table: OpenTable, state: TableState, changes_max: int | None) -> PushDownPlan:
    plan = partial(plan_push_down, state, references_max=_REFERENCES_MAX, changes_max=changes_max)
    read = partial(_sketches_of, table)
    if not table.files.is_remote:
        return plan(read)
    waiting = references_above_leaves(state)  # the plan asks for each of them, in this order
    with closing(run_ahead(read, waiting, SKETCHES_AT_ONCE, thread="sleeper-sketch")) as sketches:
        return plan(lambda _: next(sketches))


def _sketches_of(table: OpenTable, reference: FileReference) -> Sketches | None:
    try:
        return read_stored_sketch(table.files, reference, table.schema)
    except DataDamaged as damage:
        name = reference.filename
        _log.warning("the rows of %s on each leaf are estimated by halving: %s", name, damage)
        return None
