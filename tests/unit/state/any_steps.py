"""Transactions that a state allows, chosen at random: for tests of whatever follows a state."""

from __future__ import annotations

from dataclasses import replace

from sleeper.errors import CommitRefused
from sleeper.model.files import ClaimOwner
from sleeper.state.table_state import CommittedJob
from sleeper.state.transactions.files import (
    AddFiles,
    Claim,
    ClaimFiles,
    ClearFiles,
    DeleteFiles,
    ReferencePush,
    ReleaseClaims,
    RenewClaims,
    ReplaceFiles,
    SplitFileReferences,
    SweepOrphans,
)
from sleeper.state.transactions.partitions import MergePartitions
from sleeper.state.transactions.schemas import SetSchema
from tests.unit.state.small_tables import MUCH_LATER, SCHEMA, part, ref, split

OWNER = ClaimOwner(host="there", pid=7, worker_id="worker")


class Steps:
    """Draws transactions; `choose` picks one of a list."""

    def __init__(self, choose):
        self.choose = choose
        self.made = 0

    def name(self, kind):
        self.made += 1
        return f"{kind}{self.made}"

    def step(self, state, at):
        """Return a transaction that the state mostly allows."""
        kind = self.choose([*STEPS, *(["add", "claim", "compact", "push"] * 2)])
        return getattr(self, kind)(state, at)

    def add(self, state, at):
        partitions = sorted(state.tree.partitions)
        names = [self.name("f") for _ in range(self.choose([1, 1, 3]))]
        keys = {"first_key": "[1]", "last_key": '["é\\n"]', "size_bytes": 5, "schema_id": 1}
        some = [ref(name, self.choose(partitions), self.choose([0, 9]), **keys) for name in names]
        job = CommittedJob(
            job_id=self.name("job"),
            keep_until=self.choose([at, MUCH_LATER]),
            rows_read=1,
            rows_written=2,
        )
        return AddFiles(
            references=tuple(some),
            unreferenced=self.choose([(), (self.name("f"),)]),
            job=self.choose([job, None]),
        )

    def claim(self, state, at):
        free = [each for each in state.references() if each.job_id is None]
        if not free:
            return self.add(state, at)
        one = self.choose(free)
        same = [each.filename for each in free if each.partition_id == one.partition_id]
        claim = Claim(
            job_id=self.name("c"), partition_id=one.partition_id, filenames=tuple(same[:3])
        )
        return ClaimFiles(assignments=(claim,), owner=self.choose([OWNER, None]))

    def claimed(self, state):
        taken = [each for each in state.references() if each.job_id is not None]
        one = self.choose(taken or [None])
        return one and [
            each
            for each in taken
            if (each.job_id, each.partition_id) == (one.job_id, one.partition_id)
        ]

    def compact(self, state, at):
        inputs = self.claimed(state)
        if not inputs:
            return self.claim(state, at)
        return ReplaceFiles(
            job_id=inputs[0].job_id,
            inputs=tuple(each.filename for each in inputs),
            output=ref(self.name("out"), inputs[0].partition_id),
        )

    def release(self, state, at):
        inputs = self.claimed(state)
        if not inputs:
            return self.claim(state, at)
        names = tuple(each.filename for each in inputs)
        claim = Claim(job_id=inputs[0].job_id, partition_id=inputs[0].partition_id, filenames=names)
        return ReleaseClaims(claims=(claim,))

    def renew(self, state, at):
        return RenewClaims(job_ids=tuple(state.claims))

    def push(self, state, at):
        tree = state.tree
        high = [ref for ref in state.references() if tree.partition(ref.partition_id).child_ids]
        if not high:
            return self.split(state, at)
        one = self.choose(high)
        children = state.tree.partition(one.partition_id).child_ids
        into = tuple(part(one.filename, child) for child in self.choose([children, children[:1]]))
        pushed = ReferencePush(filename=one.filename, partition_id=one.partition_id, into=into)
        return SplitFileReferences(pushes=(pushed,))

    def split(self, state, at):
        leaf = self.choose(list(state.leaf_partitions()))
        low, high = leaf.region.ranges[0].min, leaf.region.ranges[0].max
        ends = (max(low, 0), 1_000 if high is None else high)
        at_key, name = sum(ends) // 2, self.name("p")
        if at_key <= low:
            return self.sweep(state, at)
        return split(leaf, at_key, f"{name}-low", f"{name}-high")

    def merge(self, state, at):
        parents = [each for each in state.tree.partitions.values() if each.child_ids]
        if not parents:
            return self.split(state, at)
        parent = self.choose(parents)
        return MergePartitions(parent_id=parent.partition_id, child_ids=parent.child_ids)

    def collect(self, state, at):
        waiting = [name for name, _ in state.files.unreferenced()]
        return DeleteFiles(filenames=tuple(waiting[: self.choose([1, 3])]))

    def clear(self, state, at):
        return ClearFiles()

    def sweep(self, state, at):
        return SweepOrphans(before=at)

    def schema(self, state, at):
        return SetSchema(schema_id=max(state.schemas, default=0) + 1, schema=SCHEMA)


STEPS = (
    "add",
    "claim",
    "clear",
    "collect",
    "compact",
    "merge",
    "push",
    "release",
    "renew",
    "schema",
    "split",
    "sweep",
)


def entry(state, steps, at, size):
    """Return the state after one entry of so many transactions."""
    following = replace(state, number=state.number + 1, at=at)
    for _ in range(size):
        try:
            following = steps.step(following, at).apply(following, at)
        except CommitRefused:
            continue
    return following
