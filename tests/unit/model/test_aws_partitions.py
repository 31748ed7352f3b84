"""The parts of AWS are those that botocore knows."""

from __future__ import annotations

import pytest
from botocore.loaders import create_loader

from sleeper.model.aws_partitions import PARTITIONS, partition_of
from sleeper.model.object_stores import ObjectStoreSettings

KNOWN = create_loader().load_data("partitions")["partitions"]


def test_all_parts_are_there_with_their_domains():
    """A new release of botocore may know more: then the table is to be changed."""
    known = {(each["id"], each["outputs"]["dnsSuffix"]) for each in KNOWN}

    assert {(each.name, each.domain) for each in PARTITIONS} == known


@pytest.mark.parametrize("part", KNOWN, ids=lambda part: part["id"])
def test_each_region_is_in_its_part(part):
    """Given the regions of a part, then each is found there, and the part itself is no region."""
    regions = [each for each in part["regions"] if not each.endswith("-global")]

    assert regions
    for region in regions:
        found = partition_of(region)
        assert found is not None
        assert found.name == part["id"], region
    assert partition_of(part["id"]) is None


def test_buckets_of_every_part_are_amazons():
    """Given Amazon's S3 in any part, then it is trusted; a name that only ends alike is not."""
    for part in PARTITIONS:
        assert ObjectStoreSettings(f"https://s3.region.{part.domain}").is_amazon
        assert not ObjectStoreSettings(f"https://s3.region.not{part.domain}").is_amazon
