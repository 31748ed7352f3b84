"""The state of a Sleeper table as items of four DynamoDB tables, and back.

References, files and partitions have the tables, keys and attributes of upstream's
DynamoDBStateStore, and attributes of ours beside them, which its readers pass over. `FileDetails`
of a reference has all of it as JSON, which alone is read, as boto3 takes as long for one attribute
of an item as for any other. What upstream has not is in a table of its own: the revision item,
committed jobs, claims, merged leaves, and the changes of a commit that no single transaction holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from sleeper.model.files import ClaimRecord, FileReference
from sleeper.model.formats.query_json import region_from_document, region_to_document
from sleeper.model.partitions import Partition
from sleeper.model.ranges import Region
from sleeper.model.schema import Schema
from sleeper.state.state_difference import TrackedFile
from sleeper.state.table_state import JobRecord
from sleeper.state.value_json import claims_from_json, claims_to_json
from sleeper.storage.aws.dynamo_tables import (
    EPOCH,
    DynamoTable,
    Item,
    as_microseconds,
    as_time,
    number,
)

REFERENCES: Final = DynamoTable("active-files", (("TableId", "S"), ("PartitionIdAndFileName", "S")))
FILES: Final = DynamoTable("file-ref-count", (("TableId", "S"), ("FileName", "S")))
PARTITIONS: Final = DynamoTable("partitions", (("TableId", "S"), ("PartitionId", "S")))
COMMITS: Final = DynamoTable("state-commits", (("TableId", "S"), ("Id", "S")))
"""The newest commit of each table, and what it left that upstream's tables have no place for."""

ITEM_TABLES: Final = (PARTITIONS, COMMITS, REFERENCES, FILES)
"""All tables that have items of a state."""

JOB: Final = "job#"
CLAIM: Final = "claim#"
MERGED: Final = "merged#"
STAGED: Final = "staged#"

_BETWEEN_CHILDREN = "___"
_KEY_BYTES_MAX = 1_024
"""Amazon's limit."""


def text(value: str) -> Item:
    """Return text as an attribute; what DynamoDB does not take is escaped, as JSON."""
    return {"S": value if _is_plain(value) else "\\" + json.dumps(value)}


def text_of(value: Item) -> str:
    """Return the text that `text` was given."""
    stored: str = value["S"]
    return str(json.loads(stored[1:])) if stored.startswith("\\") else stored


def reference_key(table_id: str, filename: str, partition_id: str) -> Item:
    """Return the key of a reference."""
    return {"TableId": text(table_id), "PartitionIdAndFileName": _pair(filename, partition_id)}


def reference_item(table_id: str, reference: FileReference) -> Item:
    """Return a reference as an item."""
    filename, partition_id = reference.filename, reference.partition_id
    updated = as_microseconds(reference.updated or EPOCH)
    key = reference_key(table_id, filename, partition_id)
    details: list[Any] = [
        updated,
        reference.row_count,
        reference.row_count_estimated,
        reference.whole_file,
        reference.job_id,
        reference.size_bytes,
        reference.schema_id,
        reference.sequence,
        _keys_text(reference),
    ]
    if is_hashed(key["PartitionIdAndFileName"]["S"]):
        details += [partition_id, filename]
    item = {
        **key,
        "NumRecords": number(reference.row_count),
        "IsCountApproximate": {"BOOL": reference.row_count_estimated},
        "OnlyContainsDataForThisPartition": {"BOOL": reference.whole_file},
        "LastUpdateTime": number(updated // 1_000),
        "FileDetails": {"S": json.dumps(details, separators=(",", ":"))},
    }
    if reference.job_id is not None:
        item["Job_name"] = text(reference.job_id)
    return item


def is_hashed(key: str) -> bool:
    """Return whether a key is not the name itself, which is then in an attribute."""
    return key.startswith("\\")


def file_key(table_id: str, filename: str) -> Item:
    """Return the key of a tracked file."""
    return {"TableId": text(table_id), "FileName": _range_key("", filename)}


def file_item(table_id: str, filename: str, tracked: TrackedFile, at: datetime) -> Item:
    """Return a tracked file as an item.

    Args:
        table_id: The Sleeper table.
        filename: The file.
        tracked: How many partitions reference it.
        at: When that changed.
    """
    since = tracked.since or at
    item = {
        **file_key(table_id, filename),
        "References": number(tracked.references),
        "LastUpdateTime": number(as_microseconds(since) // 1_000),
        "UpdatedMicros": number(as_microseconds(since)),
    }
    if item["FileName"]["S"] != filename:
        item["Name"] = {"S": json.dumps(filename)}
    return item


def waiting_file_of(item: Item) -> tuple[str, datetime]:
    """Return the name of an unreferenced file, and since when it is."""
    name = json.loads(item["Name"]["S"]) if "Name" in item else item["FileName"]["S"]
    return name, as_time(int(item["UpdatedMicros"]["N"]))


def partition_key(table_id: str, partition_id: str) -> Item:
    """Return the key of a partition."""
    return {"TableId": text(table_id), "PartitionId": _range_key("", partition_id)}


def partition_item(table_id: str, partition: Partition, schema: Schema) -> Item:
    """Return a partition of a table with a schema as an item."""
    item = {
        **partition_key(table_id, partition.partition_id),
        "PartitionIsLeaf": {"S": "true" if partition.is_leaf else "false"},
        "PartitionSplitDimension": number(
            -1 if partition.dimension is None else partition.dimension
        ),
        "Region": _json(region_to_document(schema, partition.region)),
    }
    if partition.parent_id is not None:
        item["PartitionParentId"] = text(partition.parent_id)
    if partition.child_ids:
        joined = _BETWEEN_CHILDREN.join(partition.child_ids)
        item["PartitionChildIds"] = text(joined)
        if joined.split(_BETWEEN_CHILDREN) != list(partition.child_ids):
            item["ChildNames"] = _json(partition.child_ids)
    if item["PartitionId"]["S"] != partition.partition_id:
        item["Name"] = _json(partition.partition_id)
    return item


def partition_of(item: Item, schema: Schema) -> Partition:
    """Return the partition of an item, of a table with a schema."""
    dimension = int(item["PartitionSplitDimension"]["N"])
    return Partition(
        partition_id=json.loads(item["Name"]["S"]) if "Name" in item else item["PartitionId"]["S"],
        region=_region_of(json.loads(item["Region"]["S"]), schema),
        parent_id=text_of(item["PartitionParentId"]) if "PartitionParentId" in item else None,
        child_ids=_child_ids_of(item),
        dimension=None if dimension < 0 else dimension,
    )


def _region_of(document: Any, schema: Schema) -> Region:
    for name in schema.row_key_names:
        if document[name]["min"] is None:
            raise ValueError(f"the range of {name!r} has no minimum")
    return region_from_document(schema, document, base64_strings=True)


def _child_ids_of(item: Item) -> tuple[str, ...]:
    if "ChildNames" in item:
        return tuple(map(str, json.loads(item["ChildNames"]["S"])))
    if "PartitionChildIds" not in item:
        return ()
    return tuple(text_of(item["PartitionChildIds"]).split(_BETWEEN_CHILDREN))


def own_key(table_id: str, prefix: str, name: str) -> Item:
    """Return the key of a committed job, a claim or a merged leaf."""
    return {"TableId": text(table_id), "Id": _range_key(prefix, name)}


def job_item(table_id: str, job_id: str, record: JobRecord) -> Item:
    """Return the record of a committed job as an item."""
    fields = [
        record.number,
        as_microseconds(record.at),
        as_microseconds(record.keep_until),
        record.rows_read,
        record.rows_written,
        record.files,
    ]
    return {**own_key(table_id, JOB, job_id), "Body": _json([job_id, *fields])}


def job_of(item: Item) -> tuple[str, JobRecord]:
    """Return the id and the record of a committed job."""
    job_id, commit, at, keep_until, rows_read, rows_written, files = json.loads(item["Body"]["S"])
    return job_id, JobRecord(
        number=commit,
        at=as_time(at),
        keep_until=as_time(keep_until),
        rows_read=rows_read,
        rows_written=rows_written,
        files=files,
    )


def claim_item(table_id: str, job_id: str, record: ClaimRecord) -> Item:
    """Return the owner of a compaction job as an item."""
    return {**own_key(table_id, CLAIM, job_id), "Body": _json(claims_to_json({job_id: record}))}


def claims_of(item: Item) -> Mapping[str, ClaimRecord]:
    """Return the owner of a compaction job, by its id."""
    return claims_from_json(json.loads(item["Body"]["S"]))


def merged_item(table_id: str, leaf_id: str, into: str, place: int) -> Item:
    """Return what a merged leaf became as an item; items are in the order of `place`."""
    return {**own_key(table_id, MERGED, leaf_id), "Body": _json([place, leaf_id, into])}


def merged_of(item: Item) -> tuple[int, str, str]:
    """Return place, id and heir of a merged leaf."""
    place, leaf_id, into = json.loads(item["Body"]["S"])
    return place, leaf_id, into


def item_bytes(value: Any) -> int:
    """Return what an item or an attribute counts against Amazon's limits, or a little more."""
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, bool):
        return 1
    if isinstance(value, list):
        return 3 + sum(1 + item_bytes(each) for each in value)
    return sum(3 + len(name) + item_bytes(each) for name, each in value.items())


def _json(value: Any) -> Item:
    return {"S": json.dumps(value, separators=(",", ":"))}


def _keys_text(reference: FileReference) -> str | None:
    """Join first and last key by a line break, which their JSON does not contain."""
    if reference.first_key is None and reference.last_key is None:
        return None
    return f"{reference.first_key or ''}\n{reference.last_key or ''}"


def _is_plain(value: str) -> bool:
    if value.startswith("\\"):
        return False
    return value.isascii() or value.encode("utf-8", "replace").decode() == value


def _pair(filename: str, partition_id: str) -> Item:
    if "|" in partition_id:
        return {"S": _hashed(f"{len(partition_id)}|{partition_id}|{filename}")}
    return _range_key("", f"{partition_id}|{filename}")


def _range_key(prefix: str, name: str) -> Item:
    """Return text that may be a range key: the name after a prefix, or a hash of it."""
    key = prefix + name
    if key and _is_plain(name) and len(key.encode()) <= _KEY_BYTES_MAX:
        return {"S": key}
    return {"S": prefix + _hashed(name)}


def _hashed(name: str) -> str:
    return "\\" + sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
