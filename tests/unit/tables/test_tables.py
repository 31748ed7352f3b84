"""Making, changing, emptying and deleting tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

import sleeper
from sleeper.errors import (
    CommitContended,
    PropertiesInvalid,
    SplitPointsInvalid,
    TableAlreadyExists,
    TableChanged,
    TableNotFound,
)
from sleeper.tables.change import rename_table, set_table_online, set_table_properties
from sleeper.tables.delete import delete_table
from sleeper.tables.reinitialise import reinitialise
from tests.unit.tables.small_tables import PAIRS, SmallTable, small_table, store_of

PAGE_ROWS = "sleeper.table.parquet.page.rows"
GC_DELAY = "sleeper.table.gc.delay.minutes"
ROWS = [(1, "a"), (5, "b")]


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


class TestDelete:
    """TBL-4."""

    def test_everything_under_its_id_goes_and_nothing_else(self):
        """Data, log and snapshots of this table; other tables stay (TBL-4)."""
        table = small_table([3])
        other = small_table(name="other", table_id="t11", beside=table)
        for each in (table, other):
            each.ingest(ROWS)
        theirs = {info.key for info in table.objects.listing("t11/")}

        count = delete_table(table.record, table.context)

        assert count == 2 + 2  # transactions, and a data file of each leaf
        assert list(table.objects.listing("t1/")) == []
        assert {info.key for info in table.objects.listing("t11/")} == theirs
        assert [record.name for record in table.index.all()] == ["other"]

    def test_killed_half_way_it_is_gone_all_the_same(self, monkeypatch):
        """It leaves the index first, so nobody opens a table with holes."""
        table = small_table()
        table.ingest(ROWS)

        class Killed(Exception):
            """The process ends here."""

        def delete(keys):
            raise Killed

        monkeypatch.setattr(table.objects, "delete", delete)

        with pytest.raises(Killed):
            delete_table(table.record, table.context)

        assert table.index.all() == ()

    def test_twice_is_once_too_often(self):
        """The second is told that it is gone."""
        table = small_table()
        delete_table(table.record, table.context)

        with pytest.raises(TableNotFound):
            delete_table(table.record, table.context)


class TestReinitialise:
    """TBL-5."""

    def empty(self, table: SmallTable, split_points=None) -> int:
        return reinitialise(table.opened(), split_points)

    @pytest.mark.parametrize(("split_points", "leaves"), [(None, 2), ([], 1), ([1, 2, 3], 4)])
    def test_rows_go_and_partitions_stay_or_are_made_anew(self, split_points, leaves):
        """One commit takes all rows; data files and sketches are deleted (TBL-5)."""
        table = small_table([3])
        table.ingest(ROWS)
        before = table.store.refresh().tree

        number = self.empty(table, split_points)

        state = table.store.refresh()
        assert (number, state.number, state.files.file_count) == (3, 3, 0)
        assert len(list(state.tree.leaves())) == leaves
        assert (state.tree == before) == (split_points is None)
        assert table.keys() == set()

    def test_a_job_may_run_again(self):
        """Its rows are gone, so its id is too."""
        table = small_table()
        table.ingest(ROWS, job_id="j")

        self.empty(table)

        assert not table.ingest(ROWS, job_id="j").already_committed
        assert table.store.refresh().files.file_count == 1

    def test_files_of_an_ingest_under_way_stay(self):
        """They are not tracked yet; the ingest commits them afterwards."""
        table = small_table()
        emptied = []

        def empty_meanwhile(done, total):
            if not emptied:
                other = replace_store(table)
                emptied.append(self.empty(other))

        result = table.ingest(ROWS, progress=empty_meanwhile)

        assert result.transaction == emptied[0] + 1
        assert table.store.refresh().files.file_count == 1
        assert len(table.keys()) == 1

    def test_refused_split_points_take_nothing_away(self):
        """They are checked before the commit (TBL-9)."""
        table = small_table()
        table.ingest(ROWS)

        with pytest.raises(SplitPointsInvalid):
            self.empty(table, [2, 1])

        assert table.store.refresh().files.file_count == 1


def replace_store(table: SmallTable) -> SmallTable:
    """The same table, seen by another process."""
    return replace(table, store=store_of(table.objects, table.record.table_id, table.new_id))
