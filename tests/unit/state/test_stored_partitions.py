"""Partitions as rows of Arrow, which are decoded when they are asked for."""

from __future__ import annotations

from itertools import count

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import DataDamaged
from sleeper.model.partitions import Partition, PartitionTree, tree_from_split_points
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.state import stored_partitions
from sleeper.state.stored_partitions import StoredPartitions, partitions_to_arrow
from tests.unit.state.any_transactions import schemas, trees

SCHEMA = Schema(row_keys=(Field("key", Primitive.STRING),))


@pytest.fixture
def tree():
    """A tree of 3,000 leaves."""
    points, ids = [f"{leaf:04d}" for leaf in range(1, 3_000)], count()
    return tree_from_split_points(SCHEMA, points, new_id=lambda: f"p{next(ids)}")


@pytest.fixture
def decoded(monkeypatch):
    """The ids of the partitions that were decoded, in their order."""
    made = []

    def partition(**values):
        made.append(values["partition_id"])
        return Partition(**values)

    monkeypatch.setattr(stored_partitions, "Partition", partition)
    return made


def stored(rows, schema=SCHEMA):
    return StoredPartitions(rows.column, schema, "a part", "Restore it.")


def test_a_key_decodes_the_partitions_on_its_way(tree, decoded):
    """Given a tree of 3,000 leaves, when a leaf is looked up, then some dozens are decoded."""
    partitions = stored(partitions_to_arrow(tree.partitions.values(), SCHEMA))

    found = PartitionTree(partitions, partitions.root_id).leaf_of(("1234-x",))

    assert found == tree.leaf_of(("1234-x",))
    assert len(decoded) < 30
    assert len(decoded) == len(set(decoded))


def test_who_asks_for_many_gets_all_at_once(tree, decoded):
    """Given 3,000 leaves, when all are asked for, then none is decoded more than twice."""
    partitions = stored(partitions_to_arrow(tree.partitions.values(), SCHEMA))

    leaves = [*PartitionTree(partitions, partitions.root_id).leaves()]

    assert leaves == [*tree.leaves()]
    assert len(decoded) == len(tree) + 1_000


@given(data=st.data(), schema=schemas)
def test_they_are_what_was_stored(data, schema):
    """Given any tree, then the same partitions come back, under the same ids and root."""
    tree = data.draw(trees(schema))

    partitions = stored(partitions_to_arrow(tree.partitions.values(), schema), schema)

    assert partitions == tree.partitions
    assert [*partitions] == [*tree.partitions]
    assert PartitionTree(partitions, partitions.root_id) == tree
    assert "no such" not in partitions


@pytest.mark.parametrize("region", ["[[1, null]]", "[[null, null]]", "[]", "{", "7"])
def test_a_row_that_is_no_partition_is_damage(tree, region):
    """Given a region that is none, when it is asked for, then the error names what has it."""
    rows = partitions_to_arrow(tree.partitions.values(), SCHEMA)
    changed = rows.set_column(5, "region", pa.array([region] * len(rows)))

    with pytest.raises(DataDamaged, match=r"a part is damaged: .*Restore it\."):
        stored(changed)[tree.root_id]


@pytest.mark.parametrize(("column", "value"), [(0, "the same"), (1, None), (1, "no root")])
def test_rows_that_are_no_tree_are_refused(tree, column, value):
    """Given ids that are not unique, or no single root, then nothing is opened."""
    rows = partitions_to_arrow(tree.partitions.values(), SCHEMA)
    name = rows.column_names[column]
    changed = rows.set_column(column, name, pa.array([value] * len(rows), pa.string()))

    with pytest.raises(ValueError, match=r"the same id|without a parent"):
        stored(changed)
