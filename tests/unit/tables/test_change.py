"""Changing a table's name, online flag and properties."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sleeper.errors import (
    CommitContended,
    PropertiesInvalid,
    TableAlreadyExists,
    TableChanged,
    TableNotFound,
)
from sleeper.tables.change import rename_table, set_table_online, set_table_properties
from sleeper.tables.delete import delete_table
from tests.unit.tables.small_tables import small_table

PAGE_ROWS = "sleeper.table.parquet.page.rows"
GC_DELAY = "sleeper.table.gc.delay.minutes"


class Busy:
    """A table index on which somebody else is always faster, `times` times over."""

    def __init__(self, index, times, change):
        self._index, self._times, self._change = index, times, change
        self.by_id = index.by_id

    def replace(self, before, after):
        if self._times:
            self._times -= 1
            self._index.replace(before, self._change(before, self._times))
        self._index.replace(before, after)


class TestChange:
    """TBL-3, TBL-6, and properties."""

    def test_two_changes_at_the_same_time_are_both_kept(self):
        """The slower one is made again to what the faster one left."""
        table = small_table()

        def other(before, _):
            return replace(before, properties={**before.properties, GC_DELAY: "1"})

        busy = Busy(table.index, 1, other)

        after = set_table_properties("t1", {PAGE_ROWS: "7"}, index=busy)

        assert (after.properties[PAGE_ROWS], after.properties[GC_DELAY]) == ("7", "1")
        assert table.index.by_id("t1") == after

    def test_a_rename_keeps_what_others_set(self):
        """Name, flag and properties are one record, but not one change (TBL-3, TBL-6)."""
        table = small_table()
        busy = Busy(table.index, 1, lambda before, _: replace(before, online=False))

        after = rename_table("t1", "other", index=busy)

        assert (after.name, after.online) == ("other", False)

    def test_the_second_change_is_checked_against_the_first(self):
        """A name that was taken meanwhile is refused."""
        table = small_table()

        def taken(before, _):
            small_table(name="other", table_id="t2", beside=table)
            return replace(before, online=False)

        with pytest.raises(TableAlreadyExists, match="other"):
            rename_table("t1", "other", index=Busy(table.index, 1, taken))

    def test_losing_for_ever_ends(self):
        """After many lost races the caller is told to try again."""
        table = small_table()
        busy = Busy(
            table.index,
            99,
            lambda before, n: replace(before, properties={**before.properties, GC_DELAY: str(n)}),
        )

        with pytest.raises(CommitContended, match="try again"):
            set_table_online("t1", online=False, index=busy)

    def test_no_change_writes_nothing(self):
        """Setting what is set already adds no entry."""
        table = small_table()
        before = len(list(table.objects.listing("tables/")))

        set_table_online("t1", online=True, index=table.index)
        set_table_properties("t1", {PAGE_ROWS: None}, index=table.index)

        assert len(list(table.objects.listing("tables/"))) == before

    def test_wrong_values_change_nothing_and_are_all_told(self):
        """One wrong value keeps the others out too (INS-6)."""
        table = small_table()

        with pytest.raises(PropertiesInvalid) as caught:
            set_table_properties(
                "t1",
                {PAGE_ROWS: "7", GC_DELAY: "x", "sleeper.table.online": "perhaps"},
                index=table.index,
            )

        assert set(caught.value.failures) == {GC_DELAY, "sleeper.table.online"}
        assert table.index.by_id("t1") == table.record

    @pytest.mark.parametrize(
        ("name", "advice"),
        [
            ("sleeper.table.name", "Rename the table"),
            ("sleeper.table.id", "fixed"),
            ("sleeper.table.schema", "Make a new table"),
        ],
    )
    @pytest.mark.parametrize("value", ["x", None])
    def test_what_is_fixed_stays(self, name, advice, value):
        """Name, id and schema have other ways, or none (SCH-9, TBL-3)."""
        table = small_table()

        with pytest.raises(PropertiesInvalid, match=advice):
            set_table_properties("t1", {name: value}, index=table.index)

    def test_a_table_that_is_gone(self):
        """Each change says so."""
        table = small_table()
        delete_table(table.record, table.context)

        for change in (
            lambda: rename_table("t1", "x", index=table.index),
            lambda: set_table_online("t1", online=False, index=table.index),
            lambda: set_table_properties("t1", {PAGE_ROWS: "7"}, index=table.index),
        ):
            with pytest.raises(TableNotFound, match="deleted"):
                change()

    def test_busy_is_an_index_like_others(self):
        """The index itself refuses a change to an outdated record: the tests above rest on it."""
        table = small_table()
        set_table_online("t1", online=False, index=table.index)

        with pytest.raises(TableChanged):
            table.index.replace(table.record, replace(table.record, name="x"))
