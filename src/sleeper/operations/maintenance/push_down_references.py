"""Moves references of partitions that were split down to the leaves (rules CMP-2, STS-6)."""

from __future__ import annotations

from dataclasses import dataclass

from sleeper.engine.writing.sketch import Sketches, read_sketches
from sleeper.errors import CommitRefused, DataDamaged
from sleeper.model import paths
from sleeper.model.schema import Schema
from sleeper.planning.push_down import plan_push_down
from sleeper.ports.objects import Objects
from sleeper.state.state_store import StateStore
from sleeper.state.transactions.files import SplitFileReferences

_REFERENCES_MAX = 20_000
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PushDownResult:
    """What one run moved.

    Attributes:
        moved: References that went down.
        made: References on leaves that took their place.
        transaction: The table's transaction number afterwards.
        more: True when others wait for another run.
    """

    moved: int
    made: int
    transaction: int
    more: bool = False


def push_down_references(*, store: StateStore, files: Objects, schema: Schema) -> PushDownResult:
    """Move references down, in one commit of about 20,000 new ones; or do nothing.

    References that a compaction job has claimed stay. Row counts come from the files' sketches;
    where one is missing or damaged, from halving.

    Raises:
        CommitRefused, CommitContended: others changed the same references each time; try again.
        CommitUnknown, StorageFailed: try again; what was moved is not moved twice.
    """

    def sketches_of(filename: str) -> Sketches | None:
        name = paths.sketch_file(filename)
        data = files.read(name)
        try:
            return None if data is None else read_sketches(data, schema, name)
        except DataDamaged:
            return None

    for attempt in range(1, _ATTEMPTS + 1):
        state = store.refresh()
        plan = plan_push_down(state, sketches_of, references_max=_REFERENCES_MAX)
        if not plan.pushes:
            return PushDownResult(moved=0, made=0, transaction=state.number)
        try:
            after = store.commit(SplitFileReferences(pushes=plan.pushes))
        except CommitRefused:  # a job claimed one of them meanwhile, or another run was faster
            if attempt == _ATTEMPTS:
                raise
            continue
        return PushDownResult(
            moved=len(plan.pushes),
            made=sum(len(push.into) for push in plan.pushes),
            transaction=after.number,
            more=plan.more,
        )
    raise AssertionError("the last attempt returns or raises")
