"""Names and values of a state as items of DynamoDB: each comes back, and has a key of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from sleeper.model.files import ClaimOwner, ClaimRecord
from sleeper.model.partitions import Partition
from sleeper.model.ranges import Range, Region, whole_region
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.state.state_difference import TrackedFile
from sleeper.state.table_state import JobRecord
from sleeper.storage.aws.state import read_items
from sleeper.storage.aws.state.state_items import (
    CLAIM,
    JOB,
    claim_item,
    claims_of,
    file_item,
    file_key,
    item_bytes,
    job_item,
    job_of,
    merged_item,
    merged_of,
    own_key,
    partition_item,
    partition_key,
    partition_of,
    reference_item,
    reference_key,
    text,
    text_of,
    waiting_file_of,
)
from tests.unit.state.any_transactions import references
from tests.unit.state.small_tables import NOON, SCHEMA

TRAPS = ["", "#", "revision", "job#a", "___", "a___b", "_", "|", "a|b", "a", "\0", "é", "\ud800"]
ESCAPES = ["\\", '\\"a"', "\\" + "0" * 64, "x" * 1_024, "x" * 1_025, "é" * 600]
ODD = st.text(st.characters(exclude_categories=[]), max_size=5) | st.sampled_from(TRAPS + ESCAPES)
NAMES = st.sampled_from(["a", "b|c", "#", "é" * 600, "é" * 600 + "y", "\\x", "x" * 2_000])
TIMES = st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9000, 1, 1)).map(
    lambda each: each.replace(tzinfo=UTC)
)


def range_key(item):
    """The range key of an item; it may be one."""
    [key] = [each["S"] for name, each in item.items() if name != "TableId"]
    assert 0 < len(key.encode()) <= 1_024
    return key


@given(one=st.tuples(ODD, NAMES), other=st.tuples(ODD, NAMES))
def test_each_reference_has_a_key_of_its_own(one, other):
    """Whatever stands between partition and file may stand in them."""
    keys = [range_key(reference_key("t", name, partition)) for partition, name in (one, other)]

    assert (keys[0] == keys[1]) == (one == other)


@given(one=ODD, other=ODD)
def test_each_name_has_a_key_of_its_own(one, other):
    """Jobs, claims and the revision item share a table."""
    for key_of in (
        lambda name: file_key("t", name),
        lambda name: partition_key("t", name),
        lambda name: own_key("t", JOB, name),
    ):
        assert (range_key(key_of(one)) == range_key(key_of(other))) == (one == other)
    of_kinds = {
        range_key(each)
        for each in (
            own_key("t", JOB, one),
            own_key("t", CLAIM, one),
            {"Id": {"S": "revision"}},
        )
    }
    assert len(of_kinds) == 3


@given(found=st.lists(references, max_size=5), partition_id=ODD, name=NAMES, updated=TIMES)
def test_references_come_back(found, partition_id, name, updated):
    """With every attribute."""
    found = [replace(each, updated=updated) for each in found]
    if found:
        found[0] = replace(found[0], partition_id=partition_id, filename=name, job_id="\\|")
    items = [reference_item("t", each) for each in found if _is_text(each)]
    if not items:
        return

    batch = read_items._batch(items)

    rows = batch.to_pylist()
    for each, row in zip((each for each in found if _is_text(each)), rows, strict=True):
        assert (row["filename"], row["partition_id"]) == (each.filename, each.partition_id)
        for column in ("row_count", "row_count_estimated", "whole_file", "size_bytes", "sequence"):
            assert row[column] == getattr(each, column)
        assert row["updated"] == each.updated
        assert row["job_id"] == each.job_id


def _is_text(reference):
    """Arrow has no halves of surrogate pairs; no commit takes them."""
    values = (reference.partition_id, reference.filename, reference.job_id or "")
    return all(value.encode("utf-8", "replace").decode() == value for value in values)


@given(value=ODD)
def test_texts_come_back(value):
    """Also those that DynamoDB does not take."""
    assert text_of(text(value)) == value
    assert text(value)["S"].encode().decode() == text(value)["S"]


@given(name=ODD, time=TIMES, parent=st.none() | ODD, children=st.booleans())
def test_other_items_come_back(name, time, parent, children):
    """Partitions, jobs, claims, merged leaves, and files that wait."""
    partition = Partition(
        partition_id=name,
        region=whole_region(SCHEMA),
        parent_id=parent,
        child_ids=(name + "l", name + "r") if children else (),
        dimension=0 if children else None,
    )
    assert partition_of(partition_item("t", partition, SCHEMA), SCHEMA) == partition
    record = JobRecord(
        number=3, at=time, keep_until=NOON, rows_read=2**63 - 1, rows_written=0, files=7
    )
    assert job_of(job_item("t", name, record)) == (name, record)
    owner = ClaimOwner(host=name, pid=1, worker_id=name)
    claim = ClaimRecord(owner=owner, since=NOON, renewed=time)
    assert claims_of(claim_item("t", name, claim)) == {name: claim}
    assert merged_of(merged_item("t", name, name + "x", 5)) == (5, name, name + "x")
    waiting = file_item("t", name, TrackedFile(0, time), NOON)
    assert waiting_file_of(waiting) == (name, time)


def test_a_partition_is_as_upstream_writes_it():
    """Strings and bytes in base64, numbers as they are, children joined by underscores."""
    row_keys = (
        Field("taxi", Primitive.STRING),
        Field("zone", Primitive.INT),
        Field("tag", Primitive.BYTES),
    )
    ranges = (Range("é", "z"), Range(-7, None), Range(b"\xff", None))
    partition = Partition(
        partition_id="p",
        region=Region(ranges),
        parent_id="above",
        child_ids=("low", "high"),
        dimension=1,
    )

    item = partition_item("t-1", partition, Schema(row_keys=row_keys))

    region = json.loads(item.pop("Region")["S"])
    assert item == {
        "TableId": {"S": "t-1"},
        "PartitionId": {"S": "p"},
        "PartitionIsLeaf": {"S": "false"},
        "PartitionParentId": {"S": "above"},
        "PartitionChildIds": {"S": "low___high"},
        "PartitionSplitDimension": {"N": "1"},
    }
    closed = {"minInclusive": True, "maxInclusive": False}
    assert region == {
        "stringsBase64Encoded": True,
        "taxi": {"min": "w6k=", "max": "eg==", **closed},
        "zone": {"min": -7, "max": None, **closed},
        "tag": {"min": "/w==", "max": None, **closed},
    }


def test_children_whose_names_hold_what_joins_them_come_back():
    """They have one attribute more, which upstream's readers pass over."""
    for ids in (("a___b", "c"), ("a_", "b"), ("_", "__")):
        partition = Partition(
            partition_id="p", region=whole_region(SCHEMA), child_ids=ids, dimension=0
        )
        item = partition_item("t", partition, SCHEMA)

        assert partition_of(item, SCHEMA).child_ids == ids
        assert item["PartitionChildIds"] == {"S": "___".join(ids)}


def test_the_size_of_an_item_is_not_underrated():
    """Amazon counts bytes of names and values, and a little for each element."""
    item = {"Id": {"S": "é"}, "N": {"N": "12"}, "L": {"L": [{"S": "a"}, {"BOOL": True}]}}

    assert item_bytes(item) >= 2 + 2 + 1 + 2 + 1 + 3 + 2 + 2
