"""Divides the rows of a bulk import into buckets, each written by one task.

A bucket is a group of neighbouring leaves, or a range of keys of a leaf that has far more rows
than others. Buckets have about equal numbers of rows, so no task takes much longer than the
others, and small leaves share a task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal, get_args

from sleeper.errors import BadRequest
from sleeper.model.partitions import LeafGroup, Partition, leaf_groups
from sleeper.state.plans.extend_tree import LeafSample

_FAR_MORE = 1.5  # times the wanted rows of a bucket: a larger leaf is cut
_LEAST_SHARE = 0.5  # of the wanted rows: from here on a group of leaves gets its own task


@dataclass(frozen=True, slots=True)
class Buckets:
    """The bucket of each row.

    A row's bucket follows from the range of the first row key that it is in, and if several
    leaves share that range, from its leaf.

    Attributes:
        leaves: The leaves of each bucket, in tree order. A leaf cut into ranges is in several.
        bounds: Bounds between ranges of the first row key, ascending; a bound belongs to the range
            above it.
        range_buckets: The bucket of each range, or the bucket of each leaf id in it.
    """

    leaves: tuple[tuple[Partition, ...], ...]
    bounds: tuple[Any, ...]
    range_buckets: tuple[int | Mapping[str, int], ...]

    def __len__(self) -> int:
        return len(self.leaves)


def plan_buckets(
    leaves: Iterable[Partition], samples: Mapping[str, LeafSample], rows_wanted: int
) -> Buckets:
    """Divide leaves into buckets of about `rows_wanted` rows.

    Args:
        leaves: All leaves of the tree.
        samples: Samples of their rows, by leaf id; a leaf without a sample is assumed to get none.
        rows_wanted: Rows that a bucket should have, at least 1.
    """
    planned = _Plan(samples, rows_wanted)
    for group in leaf_groups(leaves):
        planned.add(group)
    return planned.buckets()


def plan_even_buckets(leaves: Iterable[Partition], count: int) -> Buckets:
    """Divide leaves evenly into `count` buckets, if the number of rows is not known."""
    all_leaves = [*leaves]
    samples = {leaf.partition_id: _OneRow() for leaf in all_leaves}
    return plan_buckets(all_leaves, samples, max(1, ceil(len(all_leaves) / max(1, count))))


def joined_buckets(buckets: Buckets, count: int) -> Buckets:
    """Return larger buckets, each of `count` neighbours; the last one may have fewer."""
    outer = [
        tuple(
            {
                leaf.partition_id: leaf
                for bucket in buckets.leaves[start : start + count]
                for leaf in bucket
            }.values()
        )
        for start in range(0, len(buckets), count)
    ]
    bounds: list[Any] = []
    joined: list[int | Mapping[str, int]] = []
    for bound, bucket in zip((None, *buckets.bounds), buckets.range_buckets, strict=True):
        larger = _joined(bucket, count)
        if joined and joined[-1] == larger:
            continue
        if joined:
            bounds.append(bound)
        joined.append(larger)
    return Buckets(tuple(outer), tuple(bounds), tuple(joined))


def _joined(bucket: int | Mapping[str, int], count: int) -> int | Mapping[str, int]:
    if isinstance(bucket, int):
        return bucket // count
    larger = {leaf_id: each // count for leaf_id, each in bucket.items()}
    distinct = {*larger.values()}
    return distinct.pop() if len(distinct) == 1 else larger


class _OneRow:
    """The sample of a leaf whose number of rows is unknown."""

    row_count = 1

    def quantile(self, dimension: int, fraction: float) -> Any:
        raise AssertionError("a leaf of one row is not cut")


class _Plan:
    """Buckets and ranges planned so far; more leaves may be added to the last bucket."""

    def __init__(self, samples: Mapping[str, LeafSample], rows_wanted: int) -> None:
        self._samples = samples
        self._rows_wanted = max(1, rows_wanted)
        self._leaves: list[list[Partition]] = []
        self._bounds: list[Any] = []
        self._range_buckets: list[int | Mapping[str, int]] = []
        self._open_rows: int | None = None  # of the last bucket; None when it takes no more

    def buckets(self) -> Buckets:
        """Return what was planned."""
        # The first range begins at the least value and needs no bound.
        return Buckets(
            tuple(map(tuple, self._leaves)), tuple(self._bounds[1:]), tuple(self._range_buckets)
        )

    def add(self, group: LeafGroup) -> None:
        """Add one more group of leaves, whose keys are above those of the groups before."""
        row_count = sum(map(self._rows_of, group.leaves))
        if row_count <= _FAR_MORE * self._rows_wanted:
            self._put(group.values.min, self._bucket_for(group.leaves, row_count))
        elif len(group.leaves) == 1:
            self._cut(group.leaves[0], row_count)
        else:
            self._share(group)

    def _put(self, low: Any, bucket: int | Mapping[str, int]) -> None:
        """Store the bucket of the range from `low` on; merge it with an equal preceding range."""
        if self._range_buckets and self._range_buckets[-1] == bucket:
            return
        self._bounds.append(low)
        self._range_buckets.append(bucket)

    def _bucket_for(self, leaves: Sequence[Partition], row_count: int) -> int:
        """Return the bucket for these leaves: the last one if they fit, else a new one."""
        room = self._open_rows is not None and (
            self._open_rows + row_count <= self._rows_wanted
            or self._open_rows < _LEAST_SHARE * self._rows_wanted
        )
        if not room:
            self._leaves.append([])
            self._open_rows = 0
        assert self._open_rows is not None
        self._leaves[-1] += leaves
        self._open_rows += row_count
        return len(self._leaves) - 1

    def _cut(self, leaf: Partition, row_count: int) -> None:
        """Divide one leaf into several buckets, by ranges of the first row key."""
        parts = ceil(row_count / self._rows_wanted)
        keys = leaf.region.ranges[0]
        sample = self._samples[leaf.partition_id]
        least, *points = [sample.quantile(0, part / parts) for part in range(parts)]
        inside = [
            point
            for point in dict.fromkeys(points)
            if max(least, keys.min) < point and (keys.max is None or point < keys.max)
        ]
        for low in (keys.min, *inside):
            self._open_rows = None
            self._put(low, self._bucket_for([leaf], row_count // parts))
        self._open_rows = None

    def _share(self, group: LeafGroup) -> None:
        """Add leaves that share a range of the first row key."""
        self._open_rows = None
        places = {
            leaf.partition_id: self._bucket_for([leaf], self._rows_of(leaf))
            for leaf in group.leaves
        }
        self._open_rows = None
        distinct = {*places.values()}
        self._put(group.values.min, distinct.pop() if len(distinct) == 1 else places)

    def _rows_of(self, leaf: Partition) -> int:
        sample = self._samples.get(leaf.partition_id)
        return 0 if sample is None else sample.row_count


# ---------------------------------------------------------------- engine choice
#
# Chooses whether one machine or Spark does a bulk import.

Engine = Literal["local", "spark"]
EngineAsked = Literal["auto", "local", "spark"]
InputKind = Literal["files", "frame", "memory"]

LOCAL_BYTES_MAX = 64 << 30
"""Bytes of input, before compression, that one machine imports in about half an hour."""

_SPILLED = 1.2  # local disk that sorting needs, as a multiple of the input


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The chosen engine, and the reason as one line of output."""

    engine: Engine
    reason: str


def choose_engine(
    asked: EngineAsked,
    kind: InputKind,
    *,
    input_bytes: int,
    free_bytes: int,
    spark_given: bool,
    spark_installed: bool,
) -> EngineChoice:
    """Choose the requested engine, or with `auto` the cheaper one that can do the import.

    Args:
        asked: The requested engine, or `auto`.
        kind: Parquet files; a Spark DataFrame; rows in this process, or a stream into it.
        input_bytes: Size of the input before compression, of files.
        free_bytes: Free space of the folder that sorting spills to.
        spark_given: Whether the caller named a session or a master.
        spark_installed: Whether Spark can be used at all.

    Raises:
        BadRequest: the requested engine is unknown, or cannot read this input.
    """
    _check_asked(asked)
    if kind == "frame":
        if asked == "local":
            raise BadRequest(
                "a Spark DataFrame is imported by Spark: leave engine='local' out, or write the "
                "rows to Parquet first"
            )
        return EngineChoice("spark", "the rows are a Spark DataFrame")
    if kind == "memory":
        if asked == "spark":
            raise BadRequest(
                "rows in this process are imported by the local engine: leave engine='spark' "
                "out, or give files or a Spark DataFrame"
            )
        return EngineChoice("local", "the rows are in this process")
    if asked != "auto":
        return EngineChoice(asked, "as asked")
    if spark_given:
        return EngineChoice("spark", "a Spark session was given")
    size = f"{input_bytes / 1e9:,.1f} GB of input"
    if input_bytes <= LOCAL_BYTES_MAX and input_bytes * _SPILLED <= free_bytes:
        return EngineChoice(
            "local", f"{size} fit this machine, which needs half as long without Spark"
        )
    if not spark_installed:
        return EngineChoice("local", f"{size} would need Spark, but it is not installed")
    if input_bytes <= LOCAL_BYTES_MAX:
        return EngineChoice("spark", f"{size} do not fit this machine's temporary folder")
    return EngineChoice("spark", f"{size} are more than one machine imports quickly")


def _check_asked(asked: object) -> None:
    known = get_args(EngineAsked)
    if asked not in known:
        raise BadRequest(f"engine must be {', '.join(known[:-1])} or {known[-1]}, not {asked!r}")
