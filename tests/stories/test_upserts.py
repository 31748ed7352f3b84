"""Rows are replaced by their row keys, in one entry: the old rows or the new ones (rule DEL-3)."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sleeper
from sleeper.errors import BadRequest, CommitContended, InputRefused, QueryInvalid
from sleeper.interfaces.rest.app import make_app
from sleeper.tables import write_out
from tests.soak import tries
from tests.unit.interfaces.command_line import sleeper as command
from tests.unit.interfaces.rest.running_server import running_server

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
BOTH = pytest.mark.parametrize("written_out", [True, False], ids=["written out", "one entry"])


def rows(keys, value):
    numbers = [*keys]
    return pa.table({"k": numbers, "v": [value] * len(numbers)}, schema=SCHEMA)


def new_table(folder, *, written_out, **options):
    """A table whose upserts write leaves anew, as those of format 1 do, or add an entry."""
    instance = sleeper.connect(folder / "instance", create=True)
    table = instance.create_table("t", SCHEMA, row_keys=["k"], **options)
    if written_out:
        table.downgrade()
    return table


def found(table, **question):
    return {row["k"]: row["v"] for row in table.query(**question).to_pylist()}


class TestUpserts:
    """What the table has afterwards."""

    @BOTH
    def test_replace_rows_and_add_new_ones(self, tmp_path, written_out):
        """Given rows in two leaves and two files, each key has its newest row, and just one."""
        table = new_table(tmp_path, written_out=written_out, split_points=[100])
        table.ingest(rows(range(0, 200, 2), "old"))
        table.ingest(rows(range(1, 200, 2), "old"))
        before = table.refresh()

        done = table.upsert(rows([0, 99, 100, 199, 500], "new"))

        assert done.transaction == table.refresh()
        wanted = {k: "new" if k in (0, 99, 100, 199, 500) else "old" for k in [*range(200), 500]}
        assert found(table) == wanted
        assert table.count() == len(wanted)
        assert found(table, key=99) == {99: "new"}
        assert found(table, keys=[99, 98]) == {98: "old", 99: "new"}
        assert table.sql("select count(*) as n from t where v = 'new'").to_pylist() == [{"n": 5}]
        assert set(found(table, as_of=before).values()) == {"old"}
        table.compact(all_files=True)
        assert found(table) == wanted
        assert table.count() == len(wanted)
        assert table.verify().clean

    def test_of_more_keys_than_one_entry_has(self, tmp_path):
        """Given 3,000 keys in two leaves, and format 2, older files lose the keys of both new ones."""
        table = new_table(tmp_path, written_out=False, split_points=[2_000])
        table.ingest(rows(range(5_000), "old"))

        table.upsert(rows(range(500, 3_500), "new"))

        assert len(table.state().key_files()) == 2
        assert table.count(where="v = 'new'") == 3_000
        assert table.count() == 5_000

    def test_where_the_table_has_no_room_for_deletions_write_leaves_anew(self, tmp_path):
        """Given 1,000 deleted keys that files have yet to obey, upserts go on."""
        table = new_table(tmp_path, written_out=False)
        table.ingest(rows(range(3_000), "old"))
        table.delete(keys=[*range(1_000)])

        for key in (5, 2_000):
            table.upsert(rows([key], "new"))

        assert found(table, keys=[5, 6, 2_000]) == {5: "new", 2_000: "new"}
        assert table.count() == 2_001

    @BOTH
    def test_of_a_table_with_sort_keys_replace_all_rows_of_a_row_key(self, tmp_path, written_out):
        """Given several rows of a key, those that are given take the place of all of them."""
        instance = sleeper.connect(tmp_path / "sorted", create=True)
        schema = pa.schema([("a", pa.string()), ("b", pa.int64()), ("day", pa.int64())])
        table = instance.create_table("t", schema, row_keys=["a", "b"], sort_keys=["day"])
        if written_out:
            table.downgrade()
        table.ingest([{"a": a, "b": b, "day": d} for a in "xy" for b in (1, 2) for d in (1, 2, 3)])

        table.upsert([{"a": "x", "b": 2, "day": 8}, {"a": "x", "b": 2, "day": 9}])

        assert [row["day"] for row in table.query(key=("x", 2)).to_pylist()] == [8, 9]
        assert table.count() == 11

    @BOTH
    def test_are_committed_once_by_their_job(self, tmp_path, written_out):
        """Given a job that was committed, when it runs again, a later row of its key stays."""
        table = new_table(tmp_path, written_out=written_out)
        table.upsert(rows([1], "first"), job_id="job")
        table.upsert(rows([1], "second"))

        again = table.upsert(rows([1], "first"), job_id="job")

        assert again.already_committed
        assert found(table) == {1: "second"}

    @BOTH
    def test_of_no_rows_change_nothing(self, tmp_path, written_out):
        """Given an empty input, the table stays as it is."""
        table = new_table(tmp_path, written_out=written_out)
        table.ingest(rows([1], "old"))

        assert table.upsert(SCHEMA.empty_table()).rows_written == 0
        assert found(table) == {1: "old"}

    @settings(
        max_examples=tries(12, soak=1_000), deadline=None, suppress_health_check=[*HealthCheck]
    )
    @given(data=st.data(), written_out=st.booleans())
    @pytest.mark.soak
    def test_agree_with_a_dict(self, tmp_path_factory, data, written_out):
        """Given any order of upserts, deletions, splits and compactions, it is that of a dict."""
        table = new_table(tmp_path_factory.mktemp("any"), written_out=written_out, split_points=[8])
        small, model = st.integers(0, 15), {}
        for step in data.draw(st.lists(st.sampled_from("uuwcs"), min_size=1, max_size=7)):
            if step == "u":
                keys = data.draw(st.sets(small, max_size=10))
                value = data.draw(st.sampled_from(["a", "b", ""]))
                table.upsert(rows(sorted(keys), value))
                model |= dict.fromkeys(keys, value)
            elif step == "w":
                limit = data.draw(small)
                table.delete(where=f"k >= {limit} AND v <> 'a'")
                model = {k: v for k, v in model.items() if k < limit or v == "a"}
            elif step == "c":
                table.compact(all_files=data.draw(st.booleans()))
            else:
                table.set_properties({"sleeper.table.partition.splitting.threshold": "4"})
                table.split_partitions()

            assert found(table) == model
            assert table.count() == len(model)
        assert table.verify().clean


class TestOthersMeanwhile:
    """Two writers of one key leave one row, that of the later commit."""

    @pytest.mark.parametrize("after", ["_take_over", "_jobs", "_rewritten"])
    @pytest.mark.parametrize("how", ["upsert", "ingest"])
    def test_rows_of_the_same_key_are_replaced(self, tmp_path, monkeypatch, after, how):
        """Given a row that another adds while leaves are written, it has no second beside it."""
        table = new_table(tmp_path, written_out=True)
        table.ingest(rows(range(10), "old"))
        original, done = getattr(write_out, after), []

        def slow(*arguments):
            output = original(*arguments)
            if not done:
                done.append(True)
                getattr(sleeper.connect(table._context.url).table("t"), how)(rows([3, 77], "other"))
            return output

        monkeypatch.setattr(write_out, after, slow)
        table.upsert(rows([3], "mine"))

        assert done
        assert found(table) == {**dict.fromkeys(range(10), "old"), 3: "mine", 77: "other"}
        assert table.count() == 11

    def test_claims_are_lost(self, tmp_path, monkeypatch):
        """Given claims that are released before files are read, they are claimed again."""
        table = new_table(tmp_path, written_out=True)
        table.ingest(rows(range(10), "old"))
        original, done = write_out.claims_of_run, []

        def robbed(*arguments):
            claims = original(*arguments)
            rounds = claims.rounds

            def and_lost(*more):
                for jobs in rounds(*more):
                    yield [*jobs]
                    if not done:
                        done.append(table.release_claims())

            claims.rounds = and_lost
            return claims

        monkeypatch.setattr(write_out, "claims_of_run", robbed)

        assert table.delete(where="k >= 3").rows == 7
        table.upsert(rows([2], "new"))

        assert len(done[0].claims) == 1
        assert found(table) == {0: "old", 1: "old", 2: "new"}

    def test_others_who_add_rows_each_time(self, tmp_path, monkeypatch):
        """Given rows that come again and again, it says so, and none of its own are there."""
        table = new_table(tmp_path, written_out=True)
        table.ingest(rows(range(10), "old"))
        original = write_out._rewritten

        def slow(*arguments):
            output = original(*arguments)
            table.ingest(rows([50], "other"))
            return output

        monkeypatch.setattr(write_out, "_rewritten", slow)
        with pytest.raises(CommitContended, match="rows were added to leaf"):
            table.upsert(rows([3], "mine"), job_id="job")

        assert found(table, key=3) == {3: "old"}
        assert table.state().jobs.find("job") is None
        assert {each.filename for each in table.references()} <= {
            each.key for each in table._current().files.listing("data/")
        }


class TestRefusals:
    """Nothing is changed, and the message says what to do."""

    @BOTH
    def test_of_a_key_that_is_given_twice(self, tmp_path, written_out):
        """Given two rows of one key, none of them is chosen."""
        table = new_table(tmp_path, written_out=written_out, split_points=[5])
        table.ingest(rows([1], "old"))

        with pytest.raises(InputRefused, match=r"two rows of the input have the key {'k': 7}"):
            table.upsert(rows([1, 7, 3, 7], "new"))

        assert found(table) == {1: "old"}
        assert len(table.references()) == 1
        names = [each.key for each in table._current().files.listing("data/")]
        assert sum(name.endswith(".parquet") for name in names) == 1

    def test_of_a_table_that_aggregates(self, tmp_path):
        """Given sums, an upsert would replace them by their parts."""
        instance = sleeper.connect(tmp_path / "sums", create=True)
        schema = pa.schema([("key", pa.string()), pa.field("n", pa.int64(), nullable=False)])
        table = instance.create_table(
            "t", schema, row_keys=["key"], properties={"sleeper.table.aggregations": "sum(n)"}
        )

        with pytest.raises(BadRequest, match="unites rows of equal keys"):
            table.upsert([{"key": "a", "n": 1}])


class TestManyDeletedKeys:
    """More keys than one entry has are deleted all the same."""

    @pytest.mark.parametrize(
        "form",
        [
            range,
            lambda low, high: pa.array(range(low, high)),
            lambda low, high: pa.table({"k": range(low, high), "other": [None] * (high - low)}),
            lambda low, high: iter(range(low, high)),
            lambda low, high: [*range(low, high), *range(low, high), 9_999],
        ],
        ids=["range", "array", "table", "iterator", "list"],
    )
    @BOTH
    def test_in_any_form(self, tmp_path, form, written_out):
        """Given 2,500 keys of 3,000 rows in two leaves, the other rows stay."""
        table = new_table(tmp_path, written_out=written_out, split_points=[2_000])
        table.ingest(rows(range(1_000, 4_000), "old"))

        done = table.delete(keys=form(1_500, 4_000))

        assert done.rows == (2_500 if written_out else None)
        assert sorted(found(table)) == [*range(1_000, 1_500)]
        assert len(table.state().key_files()) == (0 if written_out else 2)
        assert table.verify().clean

    def test_of_several_row_keys(self, tmp_path):
        """Given pairs, only whole pairs are deleted, and texts with odd characters are told apart."""
        instance = sleeper.connect(tmp_path / "pairs", create=True)
        schema = pa.schema([("a", pa.string()), ("b", pa.int64()), ("v", pa.int64())])
        table = instance.create_table("t", schema, row_keys=["a", "b"])
        texts = ["", "\x00", "a", "a\x00", "\U0001f600"]
        everything = [{"a": a, "b": b, "v": 1} for a in texts for b in range(500)]
        table.ingest(everything)
        gone = [(row["a"], row["b"]) for row in everything if row["b"] % 2 == len(row["a"]) % 2]

        done = table.delete(keys=pa.table({"b": [b for _, b in gone], "a": [a for a, _ in gone]}))

        assert done.regions == len(gone) == 1_250
        left = {(row["a"], row["b"]) for row in table.query().to_pylist()}
        assert left == {(row["a"], row["b"]) for row in everything} - {*gone}

    def test_that_do_not_fit_are_refused(self, tmp_path):
        """Given a table without the key column, or with a null, nothing is deleted."""
        table = new_table(tmp_path, written_out=True)
        table.ingest(rows([1], "old"))

        with pytest.raises(QueryInvalid, match="no column 'k'"):
            table.delete(keys=pa.table({"id": range(2_000)}))
        with pytest.raises(QueryInvalid, match="have no value for 'k'"):
            table.delete(keys=[*range(2_000), None])

        assert table.count() == 1


def test_a_client_of_the_rest_server_replaces_rows(tmp_path):
    """Given a server, its client upserts frames and files, once by job id, and says why."""
    table = new_table(tmp_path, written_out=False)
    table.ingest(rows(range(2_000), "old"))
    (tmp_path / "new.csv").write_text("k,v\n2,file\n3,file\n")
    with running_server(make_app(sleeper.connect(table._context.url))) as url:
        remote = sleeper.connect(url).table("t")

        remote.upsert(rows([1, 5_000], "frame"), job_id="job", reason="ticket 4711")
        remote.upsert([str(tmp_path / "new.csv")])
        again = remote.upsert(rows([1], "again"), job_id="job")
        remote.upsert(rows(range(500, 1_900), "many"))
        with pytest.raises(InputRefused, match=r"two rows of the input have the key {'k': 7}"):
            remote.upsert(rows([7, 7], "twice"))

        assert again.already_committed
        assert found(table, keys=[0, 1, 2, 3, 7, 600, 5_000]) == {
            0: "old",
            1: "frame",
            2: "file",
            3: "file",
            7: "old",
            600: "many",
            5_000: "frame",
        }
        assert table.count() == remote.count() == 2_001
        assert ("ticket 4711",) in [each.reasons for each in table.history()]


def test_the_command_line_replaces_rows(tmp_path):
    """Given --upsert, rows of a file take the place of those with the same keys."""
    table = new_table(tmp_path, written_out=False)
    table.ingest(rows([1, 2], "old"))
    (tmp_path / "new.csv").write_text("k,v\n2,new\n3,new\n")

    done = command(
        "ingest", "t", str(tmp_path / "new.csv"), "--upsert", "--instance", table._context.url
    )

    assert done.exit_code == 0
    assert found(table) == {1: "old", 2: "new", 3: "new"}
