"""Rows of many keys are replaced: older files lose the keys of the new ones (rule DEL-3)."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sleeper
from sleeper.engine.writing import compaction_output
from sleeper.errors import CommitContended, DataDamaged, FileHasReferences
from sleeper.state.change_feed import added_between
from sleeper.state.plans.garbage import collectable
from sleeper.state.transactions.files import DeleteFiles
from sleeper.tables import compact as compacting
from sleeper.tables import upsert
from tests.soak import tries

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
ROWS = 20_000


def rows(keys, value):
    numbers = [*keys]
    return pa.table({"k": numbers, "v": [value] * len(numbers)}, schema=SCHEMA)


def new_table(folder, **options):
    instance = sleeper.connect(folder / "instance", create=True)
    return instance.create_table("t", SCHEMA, row_keys=["k"], **options)


@pytest.fixture
def table(tmp_path):
    """20,000 rows in two leaves, each in two files: a tenth of them are more keys than an entry names."""
    table = new_table(tmp_path, split_points=[10_000])
    for first in (0, 1):
        table.ingest(rows(range(first, ROWS, 2), "old"))
    return table


def old_rows():
    return dict.fromkeys(range(ROWS), "old")


def found(table, **question):
    rows = table.query(**question).to_arrow()
    return dict(zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True))


def check(table, wanted):
    """Every reader finds these rows, before a compaction and after it."""
    some = [*wanted][:: max(1, len(wanted) // 50)]
    for _ in range(2):
        assert found(table) == wanted
        assert found(table, ordered=False) == wanted
        assert table.count() == len(wanted)
        assert found(table, keys=[*some, 10**9]) == {k: wanted[k] for k in some}
        assert all(found(table, key=k) == {k: wanted[k]} for k in some[:5])
        assert table.query(key=some[0], columns=["v"]).to_pylist() == [{"v": wanted[some[0]]}]
        assert [*found(table, limit=30)] == sorted(wanted)[:30]
        part = {k: v for k, v in wanted.items() if 3_000 <= k < 3_400}
        assert found(table, range={"k": (3_000, 3_400)}) == part
        assert table.count(range={"k": (3_000, 3_400)}) == len(part)
        new = table.sql("select count(*) as n from t where v = 'new'").to_pylist()
        assert new == [{"n": sum(value == "new" for value in wanted.values())}]
        assert table.verify().clean
        table.compact(all_files=True)
    assert table.state().deletes == ()


def files(table):
    return {each.filename for each in table.references()}


def key_files(table):
    return {*table.state().key_files()}


class TestWays:
    """What is written, and what readers leave out."""

    @pytest.mark.parametrize(
        "new",
        [
            range(0, ROWS, 10),
            range(5_000, 15_000),
            [*range(0, 10_000, 7), *range(15_000, 18_000)],
            [*range(0, ROWS, 40), *range(ROWS, ROWS + 5_000)],
            range(ROWS),
        ],
        ids=["all over", "in a row", "both", "with new ones", "all"],
    )
    def test_no_file_of_before_is_written_again(self, table, new):
        """Given keys wherever they are, the entry adds the new files, and older ones lose the keys."""
        before, version = files(table), table.refresh()

        done = table.upsert(rows(new, "new"))

        assert files(table) == before | {each.filename for each in done.files}
        assert key_files(table) == {each.filename for each in done.files}
        assert done.transaction == version + 1
        assert found(table, as_of=version) == old_rows()
        check(table, old_rows() | dict.fromkeys(new, "new"))

    def test_a_merge_of_large_files_takes_old_rows_out(self, table, monkeypatch):
        """Given files too large to be read whole, then what DataFusion merges lacks the keys."""
        table.upsert(rows(range(0, ROWS, 10), "new"))
        monkeypatch.setattr(compaction_output, "are_small", lambda *_: False)

        check(table, old_rows() | dict.fromkeys(range(0, ROWS, 10), "new"))

    def test_keys_behind_all_others_burden_no_reader(self, table):
        """Given rows of a new day, by the first and last keys of files, nothing is left out."""
        table.upsert(rows(range(ROWS, ROWS + 5_000), "new"))

        assert table.state().deletes == ()
        check(table, old_rows() | dict.fromkeys(range(ROWS, ROWS + 5_000), "new"))

    def test_the_first_rows_of_a_table_burden_no_reader(self, tmp_path):
        """Given no file of before, then it is an ingest."""
        table = new_table(tmp_path)

        table.upsert(rows(range(2_000), "new"))

        assert table.state().deletes == ()
        check(table, dict.fromkeys(range(2_000), "new"))

    def test_of_a_second_one_hide_those_of_the_first(self, table):
        """Given two upserts that overlap, and a deletion between, each key has its newest row."""
        table.upsert(rows(range(5_000, 12_000), "new"))
        table.delete(range={"k": (6_000, 7_000)})
        table.upsert(rows(range(6_500, 17_000), "newer"))
        table.upsert(rows(range(16_000, 16_500), "few"))

        wanted = old_rows() | dict.fromkeys(range(5_000, 12_000), "new")
        wanted = {k: v for k, v in wanted.items() if not 6_000 <= k < 7_000}
        wanted |= dict.fromkeys(range(6_500, 17_000), "newer")
        check(table, wanted | dict.fromkeys(range(16_000, 16_500), "few"))

    def test_rows_that_are_added_later_stay(self, table):
        """Given an ingest of the same keys after it, both rows are there, as after any ingest."""
        table.upsert(rows(range(3_000, 7_000), "new"))
        table.ingest(rows([4_000], "later"))

        assert sorted(row["v"] for row in table.query(key=4_000).to_pylist()) == ["later", "new"]
        assert table.count() == ROWS + 1

    def test_rows_are_told_as_added_once(self, table):
        """Given a stream of what is added, and the history, they have the new rows."""
        before, store = table.refresh(), table._current().store

        done = table.upsert(rows(range(3_000, 7_000, 2), "new"))

        added = [*added_between(store.log, table.schema, before, done.transaction)]
        assert {each.filename for each in added} == {each.filename for each in done.files}
        (entry,) = table.history(1)
        assert (entry.kinds, entry.rows_added) == (("rows added or replaced",), 2_000)

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

    def test_columns_that_were_added_are_filled(self, table):
        """Given files without a column that came since, new rows have it, and old ones its default."""
        table.alter(add=[pa.field("w", pa.string())])
        new = rows(range(0, ROWS, 10), "new")
        table.upsert(new.append_column("w", pa.array(["w"] * new.num_rows)))

        values = {row["k"]: row["w"] for row in table.query().to_pylist()}
        assert values == {k: "w" if k % 10 == 0 else None for k in range(ROWS)}


class TestFilesOfKeys:
    """The files of an upsert are there for as long as others have rows of their keys."""

    def merge_the_new_files_alone(self, table):
        """Each is merged with a smaller one of later; those of before are not touched."""
        old = files(table)
        table.upsert(rows(range(0, ROWS, 10), "new"))
        table.ingest(rows([1, ROWS - 1], "later"))
        compacting.compact(
            table._current(), all_files=True, only=lambda each: each.filename not in old
        )
        return old

    def test_they_are_no_garbage(self, table):
        """Given a compaction that replaced them, readers still need their keys, and find them."""
        old = self.merge_the_new_files_alone(table)
        needed = key_files(table)
        assert needed.isdisjoint(files(table))

        garbage = {*collectable([table.state()], table.state().at + timedelta(hours=1))}

        assert garbage
        assert needed.isdisjoint(garbage)
        assert old <= files(table)
        assert found(table, key=10) == {10: "new"}
        assert table.count() == ROWS + 2
        with pytest.raises(FileHasReferences, match="keys of an upsert"):
            table._current().store.commit(DeleteFiles(filenames=tuple(needed)))
        assert table.verify().clean

    def test_they_are_garbage_from_when_the_last_file_has_left_the_keys_out(self, table):
        """Given a compaction of the old files, then the garbage collector deletes them."""
        self.merge_the_new_files_alone(table)
        needed, before = key_files(table), table.state()
        assert needed

        table.compact(all_files=True)

        waiting = dict(table.state().files.unreferenced())
        assert key_files(table) == set()
        assert all(waiting[name] > before.at for name in needed)
        assert found(table, as_of=before.number)[10] == "new"
        assert needed <= {*collectable([table.state()], table.state().at + timedelta(hours=1))}

    def test_one_that_is_missing_is_said(self, table):
        """Given that somebody deleted it, no old row is shown as if it were the newest."""
        self.merge_the_new_files_alone(table)
        name = min(key_files(table))
        table._current().files.delete([name])

        again = sleeper.connect(table._context.url).table("t")
        with pytest.raises(DataDamaged, match=f"^data file '{name}' is missing"):
            again.query().to_arrow()
        with pytest.raises(DataDamaged, match=f"^data file '{name}' is missing"):
            again.count()
        assert not again.verify().clean

    def test_many_of_them_have_files_written_anew(self, table):
        """Given upserts that have replaced most rows, a compaction takes the old ones out unasked."""
        for number in range(4):
            table.upsert(rows(range(number, ROWS, 6), "new"))
        table.set_properties({"sleeper.table.compaction.strategy.sizeratio.ratio": "100"})

        table.compact()

        assert table.state().deletes == ()

    def test_they_survive_a_split_and_a_merge_of_their_leaf(self, table):
        """Given leaves that come and go, their keys are left out wherever the rows are now."""
        new = range(0, ROWS, 10)
        table.upsert(rows(new, "new"))
        table.set_properties({"sleeper.table.partition.splitting.threshold": "1000"})
        table.split_partitions()
        wanted = old_rows() | dict.fromkeys(new, "new")
        assert found(table) == wanted
        table.upsert(rows(range(5, ROWS, 10), "newer"))
        wanted |= dict.fromkeys(range(5, ROWS, 10), "newer")
        assert found(table) == wanted
        table.compact(all_files=True)
        table.set_properties({"sleeper.table.partition.splitting.threshold": "1000000"})
        table.upsert(rows(range(7, ROWS, 10), "new"))
        wanted |= dict.fromkeys(range(7, ROWS, 10), "new")

        while table.merge_partitions(rows_below=100_000):
            assert found(table) == wanted
        check(table, wanted)


class TestManyTables:
    """Any keys of any table, as in a dict."""

    @settings(
        max_examples=tries(15, soak=1_000), deadline=None, suppress_health_check=[*HealthCheck]
    )
    @given(data=st.data())
    @pytest.mark.soak
    def test_agree_with_a_dict(self, tmp_path_factory, monkeypatch, data):
        """Given pairs as keys, sort keys, splits, compactions and deletions, it is that of a dict."""
        monkeypatch.setattr(upsert, "REGIONS_MAX", data.draw(st.integers(0, 3)))
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
            keys = data.draw(st.lists(some, min_size=1, max_size=5))
            asked = [row for row in wanted if row[:2] in keys]
            assert [tuple(row.values()) for row in table.query(keys=keys).to_pylist()] == asked
        assert table.verify().clean


def ingest_new(table):
    table.ingest(rows([16_001 + ROWS], "other"))


def ingest_there(table):
    table.ingest(rows([4_000], "other"))


def upsert_there(table):
    table.upsert(rows([4_000, 4_001], "other"))


def upsert_many(table):
    table.upsert(rows(range(4_000, 6_000), "other"))


def delete_replaced(table):
    table.delete(key=4_000)


def delete_another(table):
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
    upsert_many: dict.fromkeys(range(4_001, 6_000, 2), "other"),
    delete_replaced: {},
    delete_another: {4_001: None},
    delete_where: {4_001: None},
    compact: {},
    compact_and_collect: {},
    split: {},
}


class TestOthersMeanwhile:
    """Whatever others do before the commit, it is as if they had done it before."""

    @pytest.mark.parametrize("when", ["_check_not_repeated", "_may_replace", "LeavesUnchanged"])
    @pytest.mark.parametrize("other", OTHERS, ids=lambda each: each.__name__)
    def test_it_is_as_before(self, table, monkeypatch, other, when):
        """Given rows that others add or delete, they are neither lost nor doubled."""
        done = []

        def once():
            if not done:
                done.append(True)
                other(sleeper.connect(table._context.url).table("t"))

        original = getattr(upsert, when)
        monkeypatch.setattr(upsert, when, lambda *a, **o: [original(*a, **o), once()][0])
        new = {*range(3_000, 7_000, 2)}

        table.upsert(rows(sorted(new), "new"))

        assert done
        monkeypatch.undo()
        wanted = {k: "new" if k in new else "old" for k in range(ROWS)} | OTHERS[other]
        check(table, {k: v for k, v in wanted.items() if v is not None})

    def test_rows_that_come_behind_all_others_are_seen(self, table, monkeypatch):
        """Given keys that no file had when it looked, and one has before the commit, it looks again."""
        done, original = [], upsert._may_replace

        def slow(*given):
            found = original(*given)
            if not done:
                done.append(found)
                table.ingest(rows([ROWS + 10], "other"))
            return found

        monkeypatch.setattr(upsert, "_may_replace", slow)
        table.upsert(rows(range(ROWS, ROWS + 2_000), "new"))

        assert done == [False]
        check(table, old_rows() | dict.fromkeys(range(ROWS, ROWS + 2_000), "new"))

    def test_a_compaction_that_had_begun_before_brings_no_row_back(self, table):
        """Given a job that read the files before, its output obeys the upsert."""
        other, jobs = sleeper.connect(table._context.url).table("t"), []
        original = compacting.write_output

        def slow(*given, **options):
            written = original(*given, **options)
            if not jobs:
                jobs.append(True)
                table.upsert(rows(range(3_000, 7_000, 2), "new"))
            return written

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compacting, "write_output", slow)
            other.compact(all_files=True)

        assert jobs
        new = {*range(3_000, 7_000, 2)}
        check(table, {k: "new" if k in new else "old" for k in range(ROWS)})

    def test_who_is_disturbed_each_time_says_so_and_leaves_nothing(self, table, monkeypatch):
        """Given rows that come before each commit, the table has none of its rows, nor a file."""
        original = upsert.LeavesUnchanged

        def slow(**known):
            table.ingest(rows([ROWS + 1], "other"))
            return original(**known)

        monkeypatch.setattr(upsert, "LeavesUnchanged", slow)
        monkeypatch.setattr(upsert, "_may_replace", lambda *_: False)
        with pytest.raises(CommitContended, match="rows were added to leaf"):
            table.upsert(rows(range(ROWS + 5, ROWS + 2_005), "new"), job_id="job")

        assert table.count(where="v = 'new'") == 0
        assert table.state().jobs.find("job") is None
        stored = {each.key for each in table._current().files.listing("data/")}
        assert {name for name in stored if name.endswith(".parquet")} == files(table)
