"""The partitions of a state as rows of Arrow, each decoded when it is asked for.

To decode 100,000 leaves takes a second, and a look-up of a key asks for a few partitions on its way
from the root.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa

from sleeper.errors import DataDamaged, QueryInvalid
from sleeper.model.collector_pause import making_many_objects
from sleeper.model.partitions import Partition
from sleeper.model.schema import Schema
from sleeper.state.value_json import RegionJson

PARTITIONS_SCHEMA = pa.schema(
    [
        ("partition_id", pa.string()),
        ("parent_id", pa.string()),
        ("lower_child_id", pa.string()),
        ("upper_child_id", pa.string()),
        ("dimension", pa.int32()),
        ("region", pa.string()),  # JSON: [min, max] for each row key field
    ]
)


_ONE_BY_ONE_MAX = 1_000
"""Who has asked for so many, one by one, will ask for all: they are decoded together."""


class StoredPartitions(Mapping[str, Partition]):
    """Partitions by id, in the order of their rows.

    A row that is no partition raises DataDamaged when it is asked for.

    Attributes:
        root_id: The id of the one without a parent; empty where there is none.

    Args:
        column: Returns a column of `PARTITIONS_SCHEMA`.
        schema: The table's.
        where: What has the rows, for errors.
        advice: What to do if it is damaged.

    Raises:
        ValueError: two rows have one id, or not exactly one has no parent.
    """

    def __init__(
        self, column: Callable[[str], pa.ChunkedArray], schema: Schema, where: str, advice: str
    ) -> None:
        self._columns = [column(name).to_pylist() for name in PARTITIONS_SCHEMA.names]
        ids, parents = self._columns[:2]
        self._places = {partition_id: place for place, partition_id in enumerate(ids)}
        if len(self._places) != len(ids):
            raise ValueError("two partitions have the same id")
        if parents.count(None) != bool(ids):
            raise ValueError(f"it has {parents.count(None)} partitions without a parent")
        self.root_id: str = ids[parents.index(None)] if ids else ""
        self._regions = RegionJson(schema)
        self._where, self._advice = where, advice
        self._decoded: dict[str, Partition] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __contains__(self, partition_id: object) -> bool:
        return partition_id in self._places

    def __getitem__(self, partition_id: str) -> Partition:
        found = self._decoded.get(partition_id)
        if found is not None:
            return found
        place = self._places[partition_id]
        if len(self._decoded) < _ONE_BY_ONE_MAX:
            self._decode(slice(place, place + 1))
        else:
            self._decode(slice(None))
            self._columns = []
        return self._decoded[partition_id]

    @making_many_objects()
    def _decode(self, rows: slice) -> None:
        if not (found := self._columns):  # another thread has decoded all
            return
        *columns, regions = (column[rows] for column in found)
        try:
            limits = json.loads(f"[{','.join(regions)}]")  # one call takes half the time of many
            read = self._regions.read
            self._decoded |= {
                partition_id: Partition(
                    partition_id=partition_id,
                    region=read(region),
                    parent_id=parent_id,
                    child_ids=() if lower is None else (lower, upper),
                    dimension=dimension,
                )
                for partition_id, parent_id, lower, upper, dimension, region in zip(
                    *columns, limits, strict=True
                )
            }
        except (QueryInvalid, ArithmeticError, ValueError, TypeError, LookupError) as error:
            raise DataDamaged(f"{self._where} is damaged: {error}. {self._advice}") from error


def partitions_to_arrow(partitions: Iterable[Partition], schema: Schema) -> pa.Table:
    """Return partitions as rows of `PARTITIONS_SCHEMA`."""
    regions, found = RegionJson(schema), list(partitions)
    columns = [
        [each.partition_id for each in found],
        [each.parent_id for each in found],
        [each.child_ids[0] if each.child_ids else None for each in found],
        [each.child_ids[1] if each.child_ids else None for each in found],
        [each.dimension for each in found],
        [json.dumps(regions.write(each.region)) for each in found],
    ]
    return pa.Table.from_arrays(
        [pa.array(v, kind) for v, kind in zip(columns, PARTITIONS_SCHEMA.types, strict=True)],
        schema=PARTITIONS_SCHEMA,
    )
