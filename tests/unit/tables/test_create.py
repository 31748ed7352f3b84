"""Making tables."""

from __future__ import annotations

import pytest

import sleeper
from sleeper.errors import (
    PropertiesInvalid,
    SplitPointsInvalid,
    TableAlreadyExists,
)
from tests.unit.tables.small_tables import PAIRS, small_table


class TestCreate:
    """TBL-1."""

    def test_partitions_come_first_and_the_name_last(self):
        """Killed between them, the table is not there at all (TBL-1)."""
        table = small_table([3])

        assert table.index.by_name("pairs") == table.record
        assert len(list(table.store.refresh().tree.leaves())) == 2

    @pytest.mark.parametrize(
        ("name", "value", "said"),
        [
            ("sleeper.table.name", "trips", "is 'trips', but the table is to be called 'pairs'"),
            ("sleeper.table.id", "0123abcd", "each new table gets an id of its own"),
            (
                "sleeper.table.schema",
                '{"rowKeyFields":[{"name":"other","type":"LongType"}]}',
                "another schema",
            ),
        ],
    )
    def test_properties_that_disagree_are_refused(self, name, value, said):
        """Given a name, an id or a schema as a property, it is never replaced in silence."""
        instance = sleeper.connect("memory://")

        with pytest.raises(PropertiesInvalid, match=said) as refused:
            instance.create_table("pairs", PAIRS, properties={name: value})

        assert [*refused.value.failures] == [name]
        assert instance.tables() == ()

    def test_properties_that_agree_are_taken(self):
        """Such as those of a table whose properties are copied."""
        instance = sleeper.connect("memory://")
        same = {"sleeper.table.name": "pairs", "sleeper.table.schema": PAIRS.to_json()}

        assert instance.create_table("pairs", PAIRS, properties=same).name == "pairs"

    def test_split_points_may_be_in_a_file_that_a_property_names(self, tmp_path):
        """They are taken where none are given; an empty list is none, too."""
        instance = sleeper.connect("memory://")
        (tmp_path / "points.txt").write_text("3\n5\n")
        named = {"sleeper.table.splits.file": str(tmp_path / "points.txt")}

        by_file = instance.create_table("a", PAIRS, properties=named)
        given = instance.create_table("b", PAIRS, split_points=[4], properties=named)
        none = instance.create_table("c", PAIRS, split_points=[], properties=named)

        assert by_file.split_points() == [3, 5]
        assert given.split_points() == [4]
        assert none.split_points() == []

    def test_a_file_of_split_points_that_cannot_be_read_makes_no_table(self, tmp_path):
        """The message names the property, the file and what the system says."""
        instance = sleeper.connect("memory://")
        named = {"sleeper.table.splits.file": str(tmp_path / "no.txt")}

        with pytest.raises(PropertiesInvalid, match=r"splits\.file is .*no\.txt.*No such file"):
            instance.create_table("a", PAIRS, properties=named)

        assert instance.tables() == ()

    def test_a_taken_name_is_refused_before_anything_is_written(self):
        """No partition is made for a table that cannot be (TBL-1)."""
        table = small_table()

        with pytest.raises(TableAlreadyExists, match="pairs"):
            small_table(table_id="t2", beside=table)

        assert list(table.objects.listing("t2/")) == []

    def test_split_points_that_are_refused_write_nothing(self):
        """Neither partitions nor a name (TBL-9)."""
        table = small_table()

        with pytest.raises(SplitPointsInvalid):
            small_table([2, 1], name="other", table_id="t2", beside=table)

        assert list(table.objects.listing("t2/")) == []
        assert table.index.by_name("other") is None
