"""Rows of many keys are replaced: by ranges, by single keys, or by writing leaves (rule DEL-3)."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sleeper
from sleeper.errors import CommitContended, DataDamaged
from sleeper.state.change_feed import added_between
from sleeper.tables import compact as compacting
from sleeper.tables import hide_keys, upsert
from sleeper.tables.hide_keys import HiddenKeys
from tests.soak import tries

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
ROWS = 40_000


def rows(keys, value):
    numbers = [*keys]
    return pa.table({"k": numbers, "v": [value] * len(numbers)}, schema=SCHEMA)


def new_table(folder, **options):
    instance = sleeper.connect(folder / "instance", create=True)
    return instance.create_table("t", SCHEMA, row_keys=["k"], **options)


@pytest.fixture
def table(tmp_path):
    """40,000 rows in two leaves, each in two files."""
    table = new_table(tmp_path, split_points=[20_000])
    for first in (0, 1):
        table.ingest(rows(range(first, ROWS, 2), "old"))
    return table


@pytest.fixture
def few_keys_are_many(monkeypatch):
    """A table of a few rows goes the ways of large ones."""

    def set_limits(regions=0, ranges=2, gap=1, written=1.0):
        monkeypatch.setattr(upsert, "REGIONS_MAX", 0)
        monkeypatch.setattr(hide_keys, "REGIONS_MAX", max(regions, ranges))
        monkeypatch.setattr(hide_keys, "RANGES_MAX", ranges)
        monkeypatch.setattr(hide_keys, "GAP_ROWS_MIN", gap)
        monkeypatch.setattr(hide_keys, "WRITTEN_MAX", written)

    return set_limits


def found(table, **question):
    return {row["k"]: row["v"] for row in table.query(**question).to_pylist()}


def check(table, wanted):
    """Every reader finds these rows, before a compaction and after it."""
    some = [*wanted][:: max(1, len(wanted) // 50)]
    for _ in range(2):
        assert found(table) == wanted
        assert table.count() == len(wanted)
        assert found(table, keys=[*some, 10**9]) == {k: wanted[k] for k in some}
        assert all(found(table, key=k) == {k: wanted[k]} for k in some[:5])
        new = table.sql("select count(*) as n from t where v = 'new'").to_pylist()
        assert new == [{"n": sum(value == "new" for value in wanted.values())}]
        table.compact(all_files=True)
    assert table.state().deletes == ()
    assert table.verify().clean


def regions(table):
    return sum(len(each.regions) for each in table.state().deletes)


def files(table):
    return {each.filename for each in table.references()}


class TestWays:
    """What is written, and what readers leave out."""

    def test_rows_that_follow_each_other_are_a_range(self, table):
        """Given 10,000 keys in a row, in both leaves, no row of before is written again."""
        before, version = files(table), table.refresh()

        done = table.upsert(rows(range(15_000, 25_000), "new"))

        assert regions(table) == 2
        assert files(table) == before | {each.filename for each in done.files}
        assert done.rows_written == 10_000
        assert set(found(table, as_of=version).values()) == {"old"}
        check(table, {k: "new" if 15_000 <= k < 25_000 else "old" for k in range(ROWS)})

    def test_rows_between_them_are_written_again(self, table):
        """Given every second key of a part of a leaf, the others of that part have a new file."""
        before = files(table)

        done = table.upsert(rows(range(3_000, 7_000, 2), "new"))

        assert regions(table) == 1
        (written,) = files(table) - before - {each.filename for each in done.files}
        assert {each.filename: each.row_count for each in table.references()}[written] == 1_999
        new = {*range(3_000, 7_000, 2)}
        check(table, {k: "new" if k in new else "old" for k in range(ROWS)})

    def test_rows_that_are_written_again_are_not_told_as_new(self, table):
        """Given a stream of what is added, and the history, they have the new rows alone."""
        before, store = table.refresh(), table._current().store

        done = table.upsert(rows(range(3_000, 7_000, 2), "new"))

        added = [*added_between(store.log, table.schema, before, done.transaction)]
        assert {each.filename for each in added} == {each.filename for each in done.files}
        assert table.history()[0].rows_added == 2_000

    def test_blocks_of_rows_are_a_range_each(self, table):
        """Given ten blocks of keys, the rows between them stay where they are."""
        before = files(table)
        new = [k for block in range(10) for k in range(block * 4_000, block * 4_000 + 500)]

        done = table.upsert(rows(new, "new"))

        assert regions(table) == 10
        assert files(table) == before | {each.filename for each in done.files}
        check(table, {**dict.fromkeys(range(ROWS), "old"), **dict.fromkeys(new, "new")})

    def test_rows_that_are_new_hide_nothing(self, table):
        """Given keys that the table does not have, also among those that it has, it is an ingest."""
        table.delete(range={"k": (5_000, 8_000)})
        table.compact(all_files=True)
        before = files(table)
        new = [*range(5_000, 8_000), *range(ROWS, ROWS + 5_000)]

        done = table.upsert(rows(new, "new"))

        assert regions(table) == 0
        assert files(table) == before | {each.filename for each in done.files}
        check(table, {**dict.fromkeys(range(ROWS), "old"), **dict.fromkeys(new, "new")})

    def test_a_few_old_rows_among_many_new_ones_are_left_out_one_by_one(self, table):
        """Given 5,000 keys of which the table has 200, all over it, no old row is written again."""
        before = files(table)
        new = [*range(0, ROWS, 200), *range(ROWS, ROWS + 5_000)]

        done = table.upsert(rows(new, "new"))

        assert regions(table) == 200
        assert files(table) == before | {each.filename for each in done.files}
        check(table, {**dict.fromkeys(range(ROWS), "old"), **dict.fromkeys(new, "new")})

    def test_keys_all_over_a_leaf_write_it_anew(self, table):
        """Given every tenth key of the first leaf, and a block of the second one, each goes its way."""
        before = files(table)
        new = [*range(0, 20_000, 10), *range(30_000, 33_000)]

        table.upsert(rows(new, "new"))

        assert regions(table) == 1
        assert len(before & files(table)) == 2
        assert all(
            region.ranges[0].min >= 20_000
            for each in table.state().deletes
            for region in each.regions
        )
        check(table, {**dict.fromkeys(range(ROWS), "old"), **dict.fromkeys(new, "new")})

    def test_without_room_for_ranges_leaves_are_written_anew(self, table):
        """Given 1,000 deleted keys that files have yet to obey, there is no range more."""
        table.delete(keys=[*range(0, 2_000, 2)])

        table.upsert(rows(range(10_000, 15_000), "new"))

        assert table.count(where="v = 'new'") == 5_000
        assert table.count() == ROWS - 1_000
        assert table.verify().clean

    def test_of_a_second_one_hide_those_of_the_first(self, table):
        """Given two upserts that overlap, and a deletion between, each key has its newest row."""
        table.upsert(rows(range(15_000, 25_000), "new"))
        table.delete(range={"k": (16_000, 17_000)})
        table.upsert(rows(range(16_500, 30_000), "newer"))

        wanted = dict.fromkeys(range(ROWS), "old")
        wanted |= dict.fromkeys(range(15_000, 25_000), "new")
        wanted = {k: v for k, v in wanted.items() if not 16_000 <= k < 17_000}
        check(table, {**wanted, **dict.fromkeys(range(16_500, 30_000), "newer")})

    def test_rows_that_a_filter_hides_are_hidden_for_good(self, tmp_path):
        """Given old rows of the same keys that are too old to be seen, they are left out as well."""
        instance = sleeper.connect(tmp_path / "aged", create=True)
        schema = pa.schema([pa.field("k", pa.int64()), pa.field("t", pa.int64(), nullable=False)])
        table = instance.create_table("t", schema, row_keys=["k"])
        table.ingest(pa.table({"k": range(2_000), "t": [0] * 2_000}, schema=schema))
        name = "sleeper.table.filters"
        table.set_properties({name: "ageOff(t, 1000)"})
        late = 10**14
        table.upsert(pa.table({"k": range(2_000), "t": [late] * 2_000}, schema=schema))

        table.set_properties({name: ""})

        assert table.count() == 2_000
        assert {row["t"] for row in table.query().to_pylist()} == {late}


class TestManyTables:
    """Any keys of any table, as in a dict."""

    @settings(
        max_examples=tries(40, soak=1_000), deadline=None, suppress_health_check=[*HealthCheck]
    )
    @given(data=st.data())
    @pytest.mark.soak
    def test_agree_with_a_dict(self, tmp_path_factory, few_keys_are_many, data):
        """Given pairs as keys, sort keys, splits, compactions and deletions, it is that of a dict."""
        instance = sleeper.connect(tmp_path_factory.mktemp("any"), create=True)
        schema = pa.schema(
            [("a", pa.string()), ("b", pa.int64()), ("s", pa.int64()), ("v", pa.int64())]
        )
        table = instance.create_table(
            "t", schema, row_keys=["a", "b"], sort_keys=["s"], split_points=["b"]
        )
        some = st.tuples(st.sampled_from(["", "a", "a\x00", "b", "\U0001f600"]), st.integers(0, 5))
        model = {}
        for number, step in enumerate(
            data.draw(st.lists(st.sampled_from("uuuudcs"), min_size=2, max_size=7))
        ):
            few_keys_are_many(
                regions=data.draw(st.integers(0, 6)),
                ranges=data.draw(st.integers(1, 5)),
                gap=data.draw(st.integers(1, 3)),
                written=data.draw(st.sampled_from([0.25, 1.0])),
            )
            if step == "u":
                keys = sorted(data.draw(st.sets(some, max_size=15)))
                sorts = data.draw(st.sampled_from([[0], [0, 1]]))
                table.upsert(
                    [{"a": a, "b": b, "s": s, "v": number} for a, b in keys for s in sorts]
                )
                model |= {key: [(s, number) for s in sorts] for key in keys}
            elif step == "d":
                low = data.draw(st.integers(0, 5))
                table.delete(range={"b": (low, low + 2)})
                model = {key: v for key, v in model.items() if not low <= key[1] < low + 2}
            elif step == "c":
                table.compact(all_files=data.draw(st.booleans()))
            else:
                table.set_properties({"sleeper.table.partition.splitting.threshold": "6"})
                table.split_partitions()

            wanted = [(*key, *row) for key in sorted(model) for row in model[key]]
            assert [tuple(row.values()) for row in table.query().to_pylist()] == wanted
            assert table.count() == len(wanted)
        assert table.verify().clean


def ingest_new(table):
    table.ingest(rows([16_001 + ROWS], "other"))


def ingest_there(table):
    table.ingest(rows([4_000], "other"))


def upsert_there(table):
    table.upsert(rows([4_000, 4_001], "other"))


def delete_replaced(table):
    table.delete(key=4_000)


def delete_written(table):
    table.delete(key=4_001)


def delete_where(table):
    table.delete(where="k = 4001")


def compact(table):
    table.compact(all_files=True)


def compact_and_collect(table):
    table.compact(all_files=True)
    gone = [name for name, _ in table.state().files.unreferenced()]
    assert gone
    table._current().files.delete(gone)


def split(table):
    table.set_properties({"sleeper.table.partition.splitting.threshold": "1000"})
    table.split_partitions()


OTHERS = {
    ingest_new: {16_001 + ROWS: "other"},
    ingest_there: {},
    upsert_there: {4_001: "other"},
    delete_replaced: {},
    delete_written: {4_001: None},
    delete_where: {4_001: None},
    compact: {},
    compact_and_collect: {},
    split: {},
}


class TestOthersMeanwhile:
    """Whatever others do between the read and the commit, it is as if they had done it before."""

    @pytest.mark.parametrize("when", ["plan_hidden", "write", "transactions"])
    @pytest.mark.parametrize("other", OTHERS, ids=lambda each: each.__name__)
    def test_it_is_as_before(self, table, monkeypatch, other, when):
        """Given rows that are written again, those of meanwhile are neither lost nor doubled."""
        done = []

        def once():
            if not done:
                done.append(True)
                other(sleeper.connect(table._context.url).table("t"))

        if when == "plan_hidden":
            planned = upsert.plan_hidden
            monkeypatch.setattr(upsert, when, lambda *all_of_it: [planned(*all_of_it), once()][0])
        else:
            original = getattr(HiddenKeys, when)
            monkeypatch.setattr(HiddenKeys, when, lambda self: [original(self), once()][0])
        new = {*range(3_000, 7_000, 2)}

        table.upsert(rows(sorted(new), "new"))

        assert done
        monkeypatch.undo()
        wanted = {k: "new" if k in new else "old" for k in range(ROWS)} | OTHERS[other]
        check(table, {k: v for k, v in wanted.items() if v is not None})

    def test_a_compaction_that_had_begun_before_brings_no_row_back(self, table):
        """Given a job that read the files before, its output obeys the upsert."""
        other, jobs = sleeper.connect(table._context.url).table("t"), []
        original = compacting.write_output

        def slow(*given, **options):
            written = original(*given, **options)
            if not jobs:
                jobs.append(True)
                table.upsert(rows(range(3_000, 7_000), "new"))
            return written

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compacting, "write_output", slow)
            other.compact(all_files=True)

        assert jobs
        check(table, {k: "new" if 3_000 <= k < 7_000 else "old" for k in range(ROWS)})

    def test_who_is_disturbed_each_time_says_so_and_leaves_nothing(self, table, monkeypatch):
        """Given rows that come before each commit, the table has none of its rows, nor a file."""
        original = HiddenKeys.transactions

        def slow(plan):
            table.ingest(rows([ROWS + 1], "other"))
            return original(plan)

        monkeypatch.setattr(HiddenKeys, "transactions", slow)
        with pytest.raises(CommitContended, match="rows were added to leaf"):
            table.upsert(rows([*range(3_000, 7_000, 2), ROWS + 5], "new"), job_id="job")

        assert table.count(where="v = 'new'") == 0
        assert table.state().jobs.find("job") is None
        stored = {each.key for each in table._current().files.listing("data/")}
        assert {name for name in stored if name.endswith(".parquet")} == files(table)

    def test_a_file_that_is_gone_is_said_at_once(self, table):
        """Given a file that nobody has replaced, another attempt would not find it either."""
        name = min(files(table))
        table._current().files.delete([name])
        before = files(table)

        with pytest.raises(DataDamaged):
            sleeper.connect(table._context.url).table("t").upsert(rows(range(ROWS), "new"))

        assert files(table) == before
