"""Buckets in the form in which tasks get them: few large values that are quick to unpickle.

The buckets of a tree with 100,000 leaves are as many Python objects, and each task would make them
all. Here the bounds are one Arrow array, and a reduce task unpickles the leaves of its own bucket.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sleeper.model.partitions import Partition
from sleeper.state.plans.bulk_imports import Buckets

_SHARED = -1


@dataclass(frozen=True, slots=True)
class RangeBuckets:
    """Where rows go: the bucket of each range of the first row key. Picklable.

    Attributes:
        bounds: Bounds between ranges, ascending, of the type of the first row key.
        buckets: The bucket of each range; -1 where leaves of the range have different buckets.
        shared: The leaves of those ranges, each with its bucket, pickled, by the range's number.
    """

    bounds: pa.Array
    buckets: pa.Array
    shared: Mapping[int, bytes]

    def bucket(self, place: int) -> int | None:
        """Return the bucket of a range; None if it depends on the leaf."""
        bucket: int = self.buckets[place].as_py()
        return None if bucket == _SHARED else bucket

    def leaves(self, place: int, of_buckets: BucketLeaves) -> Sequence[Partition]:
        """Return leaves that have all rows of a range, in tree order."""
        bucket = self.bucket(place)
        if bucket is not None:
            return of_buckets.of_bucket(bucket)
        return [leaf for leaf, _ in self.leaf_buckets(place)]

    def leaf_buckets(self, place: int) -> Sequence[tuple[Partition, int]]:
        """Return the leaves of a range that they share, each with its bucket."""
        leaves: Sequence[tuple[Partition, int]] = pickle.loads(self.shared[place])  # noqa: S301 - our own
        return leaves


def pack_ranges(buckets: Buckets, first_key: pa.DataType) -> RangeBuckets:
    """Return what a map task needs of buckets.

    Args:
        buckets: The buckets.
        first_key: The Arrow type of the first row key.
    """
    numbers = [each if isinstance(each, int) else _SHARED for each in buckets.range_buckets]
    leaves = {leaf.partition_id: leaf for inside in buckets.leaves for leaf in inside}
    shared = {
        place: pickle.dumps([(leaves[leaf_id], bucket) for leaf_id, bucket in each.items()])
        for place, each in enumerate(buckets.range_buckets)
        if not isinstance(each, int)
    }
    return RangeBuckets(pa.array(buckets.bounds, first_key), pa.array(numbers, pa.int32()), shared)


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketParts:
    """How buckets with far more rows than others are sent, where keys were not sampled.

    A bucket has a number of parts, which are places of the shuffle one after the other. A map task
    that sees that a bucket has too much divides the sorted rows that it has of it, so that each
    part gets about a range of keys; other buckets it sends to one part. Spark joins small
    neighbours to tasks of equal size.

    Attributes:
        count: Parts of each bucket; 1 if none is divided.
        buckets: All buckets.
        tasks: Tasks that are to write, each an equal share of the rows.
        task_bytes: Bytes that the plan expects of a task.
    """

    count: int = 1
    buckets: int = 1
    tasks: int = 1
    task_bytes: int = 0


NOT_DIVIDED = BucketParts()


@dataclass(frozen=True, slots=True)
class BucketLeaves:
    """The leaves of each bucket, pickled bucket by bucket. Picklable."""

    pickled: pa.LargeBinaryArray

    @classmethod
    def of(cls, buckets: Buckets) -> BucketLeaves:
        """Pack the leaves of buckets."""
        return cls(pa.array([pickle.dumps(leaves) for leaves in buckets.leaves], pa.large_binary()))

    def of_bucket(self, bucket: int) -> Sequence[Partition]:
        """Return the leaves of one bucket, in tree order."""
        leaves: Sequence[Partition] = pickle.loads(self.pickled[bucket].as_buffer())  # noqa: S301 - our own
        return leaves
