"""Encodes references, partitions and times as JSON, for transactions and snapshots; decodes them.

Decoders are strict: they raise TypeError, ValueError or LookupError for invalid values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from sleeper.model.files import ClaimOwner, ClaimRecord, FileReference
from sleeper.model.keys import key_type, value_from_json, value_to_json
from sleeper.model.partitions import Partition
from sleeper.model.paths import may_be_data_file
from sleeper.model.ranges import Range, Region
from sleeper.model.row_deletes import KeyFile, RowDelete
from sleeper.model.schema import Schema
from sleeper.model.tables import StateMove

_YEAR_MAX = 9000  # a later time plus a delay may be out of Python's range

_KEY_TEXT = json.JSONEncoder(separators=(",", ":"))  # `dumps` would make one for each key

Document = Mapping[str, Any]
T = TypeVar("T")


def references_to_json(references: Iterable[FileReference]) -> list[dict[str, Any]]:
    """Encode references without the time of their last change, which the state sets."""
    return [reference_to_json(reference) for reference in references]


def _file_to_json(reference: FileReference) -> dict[str, Any]:
    """Encode the attributes of the file itself."""
    first, last = reference.first_key, reference.last_key
    document = {
        "sizeBytes": reference.size_bytes,
        "schemaId": reference.schema_id,
        "firstKey": first if first is None else json.loads(first),
        "lastKey": last if last is None else json.loads(last),
        "sequence": reference.sequence,
    }
    return {name: value for name, value in document.items() if value is not None}


def reference_to_json(reference: FileReference) -> dict[str, Any]:
    """Encode one reference; flags with their usual value are left out."""
    document: dict[str, Any] = {
        "filename": reference.filename,
        "partitionId": reference.partition_id,
        "numberOfRows": reference.row_count,
    }
    if reference.row_count_estimated:
        document["countApproximate"] = True
    if not reference.whole_file:
        document["onlyContainsDataForThisPartition"] = False
    if reference.job_id is not None:
        document["jobId"] = reference.job_id
    return document | _file_to_json(reference)


def references_from_json(document: Document, name: str) -> tuple[FileReference, ...]:
    """Decode the list of references called `name`."""
    return tuple(reference_from_json(entry) for entry in read_list(document, name, dict))


def reference_from_json(document: Document) -> FileReference:
    """Decode one reference."""
    return FileReference(
        filename=checked_data_file(read(document, "filename", str)),
        partition_id=read(document, "partitionId", str),
        row_count=read(document, "numberOfRows", int),
        row_count_estimated=read(document, "countApproximate", bool, False),
        whole_file=read(document, "onlyContainsDataForThisPartition", bool, True),
        job_id=read_optional_text(document, "jobId"),
        size_bytes=_optional_number(document, "sizeBytes"),
        schema_id=_optional_number(document, "schemaId"),
        first_key=_optional_key(document, "firstKey"),
        last_key=_optional_key(document, "lastKey"),
        sequence=_optional_number(document, "sequence"),
    )


def _optional_number(document: Document, name: str) -> int | None:
    return read(document, name, int) if name in document else None


def _optional_key(document: Document, name: str) -> str | None:
    if name not in document:
        return None
    return _KEY_TEXT.encode(read(document, name, list))


def data_files_from_json(
    document: Document, name: str, *, optional: bool = False
) -> tuple[str, ...]:
    """Decode the list of data files called `name`."""
    return tuple(map(checked_data_file, read_list(document, name, str, optional=optional)))


def checked_data_file(name: str) -> str:
    """Check that `name` may be a data file of the table, and return it.

    A name in the log must not refer to log entries, other tables, or paths outside the instance.
    """
    if not may_be_data_file(name):
        raise ValueError(
            f"a data file is named data/partition_<id>/<name>.parquet, never {name!r:.200}"
        )
    return name


class RegionJson:
    """Encodes and decodes the regions of one table: [min, max] for each row key field, in order.

    Neighbours share their bounds, so each bound is decoded once.
    """

    def __init__(self, schema: Schema) -> None:
        self._fields = [(field, key_type(field)) for field in schema.row_keys]
        self._bounds: list[dict[Any, Any]] = [{None: None} for _ in self._fields]

    def write(self, region: Region) -> list[list[Any]]:
        """Encode one region."""
        return [
            [value_to_json(kind, key_range.min), value_to_json(kind, key_range.max)]
            for (_, kind), key_range in zip(self._fields, region.ranges, strict=True)
        ]

    def read(self, limits: list[Any]) -> Region:
        """Decode one region."""
        ranges = []
        for (field, _), bounds, pair in zip(self._fields, self._bounds, limits, strict=True):
            for bound in pair:
                if bound not in bounds:
                    bounds[bound] = value_from_json(field, bound)
            low, high = pair
            if low is None:
                raise ValueError(f"the range of {field.name!r} has no minimum")
            ranges.append(Range(bounds[low], bounds[high]))
        return Region(tuple(ranges))


def regions_to_json(regions: Iterable[Region], schema: Schema) -> list[dict[str, Any]]:
    """Encode regions, each as the `region` of an object."""
    encode = RegionJson(schema).write
    return [{"region": encode(region)} for region in regions]


def regions_from_json(document: Document, name: str, schema: Schema) -> tuple[Region, ...]:
    """Decode the list of regions called `name`."""
    decode = RegionJson(schema).read
    return tuple(decode(read(each, "region", list)) for each in read_list(document, name, dict))


def schemas_to_json(schemas: Mapping[int, Schema]) -> str:
    """Write schemas by their numbers."""
    return json.dumps({number: json.loads(each.to_json()) for number, each in schemas.items()})


def schemas_from_json(text: str | bytes) -> dict[int, Schema]:
    """Read what `schemas_to_json` wrote.

    Raises:
        SchemaInvalid: a schema breaks a rule.
        ValueError: it is something else.
    """
    return {int(number): Schema.from_json(each) for number, each in json.loads(text).items()}


def deletes_to_json(deletes: Iterable[RowDelete], schema: Schema) -> list[dict[str, Any]]:
    """Encode deletions of rows.

    Those by the keys of files have no `regions`, so that versions that do not know them refuse
    them.
    """
    return [
        {"number": each.number}
        | (
            {"keyFiles": {name: _key_files_to_json(of) for name, of in each.key_files.items()}}
            if each.key_files
            else {"regions": regions_to_json(each.regions, schema)}
        )
        for each in deletes
    ]


def _key_files_to_json(files: Iterable[KeyFile]) -> list[dict[str, Any]]:
    return [{"filename": each.filename, "numberOfRows": each.row_count} for each in files]


def deletes_from_json(documents: Iterable[Document], schema: Schema) -> tuple[RowDelete, ...]:
    """Decode deletions of rows."""
    return tuple(
        RowDelete(read(each, "number", int), key_files=_key_files_from_json(each["keyFiles"]))
        if "keyFiles" in each
        else RowDelete(read(each, "number", int), regions_from_json(each, "regions", schema))
        for each in documents
    )


def _key_files_from_json(document: Document) -> dict[str, tuple[KeyFile, ...]]:
    return {
        partition_id: tuple(
            KeyFile(checked_data_file(read(each, "filename", str)), read(each, "numberOfRows", int))
            for each in read_list(document, partition_id, dict)
        )
        for partition_id in document
    }


def partitions_to_json(partitions: Iterable[Partition], schema: Schema) -> list[dict[str, Any]]:
    """Encode partitions; fields that a root or a leaf does not have are left out."""
    regions = RegionJson(schema)
    return [_partition_to_json(partition, regions) for partition in partitions]


def partitions_from_json(document: Document, name: str, schema: Schema) -> tuple[Partition, ...]:
    """Decode the list of partitions called `name`."""
    regions = RegionJson(schema)
    return tuple(_partition_from_json(each, regions) for each in read_list(document, name, dict))


def _partition_to_json(partition: Partition, regions: RegionJson) -> dict[str, Any]:
    document: dict[str, Any] = {
        "partitionId": partition.partition_id,
        "region": regions.write(partition.region),
    }
    if partition.parent_id is not None:
        document["parentPartitionId"] = partition.parent_id
    if partition.child_ids:
        document["childPartitionIds"] = list(partition.child_ids)
    if partition.dimension is not None:
        document["dimension"] = partition.dimension
    return document


def _partition_from_json(document: Document, regions: RegionJson) -> Partition:
    return Partition(
        partition_id=read(document, "partitionId", str),
        region=regions.read(read(document, "region", list)),
        parent_id=read_optional_text(document, "parentPartitionId"),
        child_ids=tuple(read_list(document, "childPartitionIds", str, optional=True)),
        dimension=read(document, "dimension", int) if "dimension" in document else None,
    )


def time_to_json(at: datetime) -> str:
    """Encode a time, which must be aware, as ISO 8601 in UTC to the microsecond."""
    if at.tzinfo is None:
        raise ValueError(f"the time {at} has no time zone")
    return at.astimezone(UTC).isoformat()


def time_from_json(text: str) -> datetime:
    """Decode a time."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"the time {text!r} has no time zone")
    if at.year > _YEAR_MAX:
        raise ValueError(f"the time {text!r} is out of range")
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{at} is outside the years 1 to 9999 in UTC") from None


def owner_to_json(owner: ClaimOwner) -> dict[str, Any]:
    """Encode the owner of a compaction job."""
    return {"host": owner.host, "pid": owner.pid, "workerId": owner.worker_id}


def owner_from_json(document: Document) -> ClaimOwner:
    """Decode the owner of a compaction job."""
    return ClaimOwner(
        host=read(document, "host", str),
        pid=read(document, "pid", int),
        worker_id=read(document, "workerId", str),
    )


def move_to_json(move: StateMove) -> dict[str, Any]:
    """Encode a move of the state to another state store."""
    return {"className": move.class_name, "moveId": move.move_id}


def move_from_json(document: Document) -> StateMove:
    """Decode a move of the state to another state store."""
    return StateMove.of(read(document, "className", str), read(document, "moveId", str))


def claims_to_json(claims: Mapping[str, ClaimRecord]) -> dict[str, Any]:
    """Encode the records of jobs that have claimed files, by job id."""
    return {
        job_id: {
            "owner": owner_to_json(record.owner),
            "since": time_to_json(record.since),
            "renewed": time_to_json(record.renewed),
        }
        for job_id, record in sorted(claims.items())
    }


def claims_from_json(document: Document) -> dict[str, ClaimRecord]:
    """Decode the records of jobs that have claimed files."""
    return {
        job_id: ClaimRecord(
            owner=owner_from_json(read(each, "owner", dict)),
            since=time_from_json(read(each, "since", str)),
            renewed=time_from_json(read(each, "renewed", str)),
        )
        for job_id, each in document.items()
    }


def read(document: Document, name: str, kind: type[T], default: T | None = None) -> T:
    """Return an entry of exactly this JSON type; a missing one is an error without a default."""
    value = document[name] if default is None else document.get(name, default)
    if type(value) is not kind:
        raise ValueError(f"{name} must be of type {kind.__name__}, not {value!r:.100}")
    return value


def read_optional_text(document: Document, name: str) -> str | None:
    """Return an entry that is text, or missing."""
    return read(document, name, str) if name in document else None


def read_list(document: Document, name: str, kind: type[T], *, optional: bool = False) -> list[T]:
    """Return an entry that is a list of exactly this JSON type."""
    values = read(document, name, list, [] if optional else None)
    for value in values:
        if type(value) is not kind:
            raise ValueError(f"{name} must list {kind.__name__}, not {value!r:.100}")
    return values
