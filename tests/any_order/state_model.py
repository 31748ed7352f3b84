"""A table's state as plain dictionaries: what every transaction must come to, said once more.

Slow, small and obvious, so that the real state can be held against it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sleeper.model.files import FileReference
from sleeper.model.partitions import Partition
from sleeper.model.ranges import Range, whole_region
from sleeper.state.table_state import CommittedJob
from sleeper.state.transactions.files import (
    AddFiles,
    Claim,
    ClaimFiles,
    ClearFiles,
    DeleteFiles,
    ReferencePush,
    ReplaceFiles,
    SplitFileReferences,
)
from sleeper.state.transactions.partitions import (
    InitialisePartitions,
    MergePartitions,
    SplitPartition,
)
from tests.unit.state.small_tables import MUCH_LATER, SCHEMA


@dataclass(frozen=True)
class Share:
    rows: int
    whole: bool = True
    claim: str | None = None


@dataclass(frozen=True)
class Model:
    """One version. Partitions are named by their way from the root: `r`, `r0`, `r1`, `r01`, ..."""

    number: int = 0
    leaves: frozenset[str] = frozenset()
    shares: dict[tuple[str, str], Share] = field(default_factory=dict)
    waiting: frozenset[str] = frozenset()
    jobs: dict[str, int] = field(default_factory=dict)
    merged: dict[str, str] = field(default_factory=dict)

    def place_of(self, name):
        """Who has the rows of a partition, if it was merged away."""
        while name not in self.partitions and name in self.merged:
            name = self.merged[name]
        return name

    @property
    def partitions(self) -> set[str]:
        return {leaf[:end] for leaf in self.leaves for end in range(1, len(leaf) + 1)}

    @property
    def files(self) -> set[str]:
        return {name for name, _ in self.shares} | self.waiting

    def after(self, step) -> Model | None:
        """The next version, with the number of this one; None when the step is refused."""
        return step.on(self)

    def with_shares(self, gone, come) -> Model:
        kept = {place: share for place, share in self.shares.items() if place not in set(gone)}
        shares = {**kept, **come}
        still = {name for name, _ in shares}
        freed = {name for name, _ in gone if name not in still}
        return replace(self, shares=shares, waiting=self.waiting | freed)

    def contents(self):
        """The same as `contents_of` tells of a real state."""
        waiting = set(self.waiting)
        return (self.number, self.partitions, self.shares, waiting, self.jobs, self.merged)


def contents_of(state):
    """What the model knows, of a real state."""
    shares = {
        (ref.filename, ref.partition_id): Share(ref.row_count, ref.whole_file, ref.job_id)
        for ref in state.references()
    }
    return (
        state.number,
        set(state.partitions.partitions) if state.partitions else set(),
        shares,
        {name for name, _ in state.files.unreferenced()},
        {job_id: record.number for job_id, record in state.jobs.records()},
        dict(state.partitions.merged) if state.partitions else {},
    )


def region_of(name):
    """The keys of a partition: each letter of its name halves 0 to 1024."""
    low, high = 0, 1024
    for letter in name[1:]:
        middle = (low + high) // 2
        low, high = (low, middle) if letter == "0" else (middle, high)
    whole = whole_region(SCHEMA)
    ends = (low or whole.ranges[0].min, high if high < 1024 else None)
    return whole.with_range(0, Range(*ends))


def partition(name, *, leaf):
    return Partition(
        partition_id=name,
        region=region_of(name),
        parent_id=name[:-1] or None,
        child_ids=() if leaf else (f"{name}0", f"{name}1"),
        dimension=None if leaf else 0,
    )


@dataclass(frozen=True)
class Begin:
    transaction = InitialisePartitions(partitions=(partition("r", leaf=True),))

    def on(self, model):
        return None if model.files else replace(model, leaves=frozenset("r"), merged={})


@dataclass(frozen=True)
class Add:
    files: tuple[tuple[str, str, int], ...]
    job: str | None = None

    @property
    def transaction(self):
        job = self.job and CommittedJob(
            job_id=self.job, keep_until=MUCH_LATER, rows_read=0, rows_written=0
        )
        refs = (FileReference(filename=f, partition_id=p, row_count=n) for f, p, n in self.files)
        return AddFiles(references=tuple(refs), job=job or None)

    def on(self, model):
        names = {name for name, _, _ in self.files}
        come = {(name, model.place_of(place)): Share(rows) for name, place, rows in self.files}
        places = {place for _, place in come}
        if self.job in model.jobs or names & model.files or places - model.partitions:
            return None
        jobs = {**model.jobs, **({self.job: model.number} if self.job else {})}
        return replace(model.with_shares([], come), jobs=jobs)


@dataclass(frozen=True)
class ClaimOne:
    job: str
    place: str
    names: tuple[str, ...]

    @property
    def transaction(self):
        claim = Claim(job_id=self.job, partition_id=self.place, filenames=self.names)
        return ClaimFiles(assignments=(claim,))

    def on(self, model):
        places = {(name, self.place) for name in self.names}
        if any(place not in model.shares or model.shares[place].claim for place in places):
            return None
        claimed = {place: replace(model.shares[place], claim=self.job) for place in places}
        return model.with_shares([], claimed)


@dataclass(frozen=True)
class Compact:
    job: str
    place: str
    names: tuple[str, ...]
    output: str

    @property
    def transaction(self):
        output = FileReference(filename=self.output, partition_id=self.place, row_count=7)
        return ReplaceFiles(job_id=self.job, inputs=self.names, output=output)

    def on(self, model):
        places = {(name, self.place) for name in self.names}
        mine = all(p in model.shares and model.shares[p].claim == self.job for p in places)
        if not mine or self.output in model.files:
            return None
        return model.with_shares(places, {(self.output, self.place): Share(7)})


@dataclass(frozen=True)
class Split:
    name: str

    @property
    def transaction(self):
        lower, upper = (partition(self.name + letter, leaf=True) for letter in "01")
        return SplitPartition(parent=partition(self.name, leaf=False), children=(lower, upper))

    def on(self, model):
        if self.name not in model.leaves:
            return None
        children = {f"{self.name}0", f"{self.name}1"}
        if children & model.merged.keys():
            return None
        return replace(model, leaves=model.leaves - {self.name} | children)


@dataclass(frozen=True)
class Merge:
    name: str

    @property
    def children(self):
        return (f"{self.name}0", f"{self.name}1")

    @property
    def transaction(self):
        return MergePartitions(parent_id=self.name, child_ids=self.children)

    def on(self, model):
        if not {*self.children} <= model.leaves:
            return None
        gone = {here: share for here, share in model.shares.items() if here[1] in self.children}
        parts = [{n for (n, p), s in gone.items() if p == c and not s.whole} for c in self.children]
        if parts[0] != parts[1] or any(share.claim for share in gone.values()):
            return None
        come = {}
        for (name, _), share in sorted(gone.items()):
            before = come.get((name, self.name))
            rows = share.rows + (before.rows if before else 0)
            come[name, self.name] = replace(share, rows=rows)
        following = model.with_shares(gone, come)
        return replace(
            following,
            leaves=model.leaves - {*self.children} | {self.name},
            merged={**model.merged, **dict.fromkeys(self.children, self.name)},
        )


@dataclass(frozen=True)
class Push:
    name: str
    place: str

    @property
    def transaction(self):
        into = tuple(
            FileReference(
                filename=self.name, partition_id=self.place + letter, row_count=5, whole_file=False
            )
            for letter in "01"
        )
        return SplitFileReferences(
            pushes=(ReferencePush(filename=self.name, partition_id=self.place, into=into),)
        )

    def on(self, model):
        here = (self.name, self.place)
        if here not in model.shares or model.shares[here].claim:
            return None
        if f"{self.place}0" not in model.partitions:
            return None
        come = {(self.name, self.place + letter): Share(5, whole=False) for letter in "01"}
        return model.with_shares([here], come)


@dataclass(frozen=True)
class Collect:
    names: tuple[str, ...]

    @property
    def transaction(self):
        return DeleteFiles(filenames=self.names)

    def on(self, model):
        if set(self.names) - model.waiting:
            return None
        return replace(model, waiting=model.waiting - set(self.names))


@dataclass(frozen=True)
class Clear:
    transaction = ClearFiles()

    def on(self, model):
        return replace(model, shares={}, waiting=frozenset(), jobs={})
