"""Rows are deleted by a condition in SQL: all in one entry, and no other row goes (rule DEL-2)."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sleeper
from sleeper.errors import CommitContended, DataDamaged, QueryInvalid
from sleeper.interfaces.rest.app import make_app
from sleeper.tables import compact, upsert, write_out
from sleeper.tables.deletions import where as deletion_by_condition
from sleeper.tables.push_down import push_down_references
from tests.soak import tries
from tests.unit.interfaces.command_line import sleeper as command
from tests.unit.interfaces.rest.running_server import running_server

SCHEMA = pa.schema(
    [("id", pa.int64()), ("day", pa.int64()), ("n", pa.float64()), ("name", pa.string())]
)
ODD = [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, None]
TEXTS = ["", "a", "A'b", "\U0001f600", "\x00", None]


def rows(ids, day):
    """Rows with values of every kind, by their number."""
    numbers = [*ids]
    columns = {
        "id": numbers,
        "day": [day] * len(numbers),
        "n": [ODD[number % len(ODD)] for number in numbers],
        "name": [TEXTS[number % len(TEXTS)] for number in numbers],
    }
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture
def table(tmp_path):
    """Numbers below 200 in two leaves, each in two files, with two days of each; format 1."""
    instance = sleeper.connect(tmp_path / "instance", create=True)
    table = instance.create_table(
        "t", SCHEMA, row_keys=["id"], sort_keys=["day"], split_points=[100]
    )
    for day in (1, 2):
        table.ingest(rows(range(200), day))
    return table


def content(table, **question):
    """The rows, as often as they are there; NaN is equal to itself here."""
    return Counter(map(repr, table.query(**question).to_pylist()))


def data_files(table):
    """The data files in the table's folder."""
    return [each.key for each in table._current().files.listing("data/")]


class TestWhichRows:
    """What a query of the condition returns is gone, and nothing else."""

    @pytest.mark.parametrize(
        "where",
        [
            "n = 1.5",
            "n > 1",
            "NOT (n > 1)",
            "n IS NULL OR name IS NULL",
            "isnan(n)",
            "name = 'A''b' AND day = 2",
            "name LIKE '%b' OR id = 7",
            "id < 30 AND day = 1",
            "id IN (3, 99, 100, 500)",
            "id >= 100 -- the upper leaf",
            "abs(n) = 0",
            "true",
            "day = 3",
        ],
    )
    def test_that_meet_the_condition(self, table, where):
        """Given rows for which it is true, false and null, only the first kind goes."""
        before, met = content(table), content(table, where=where)
        number = table.refresh()

        done = table.delete(where=where)

        assert done.rows == met.total()
        assert (done.transaction == number) == (not met)
        assert content(table) == before - met
        assert table.count() == (before - met).total()
        assert table.count(where=where) == 0
        assert content(table, as_of=number) == before
        assert table.verify().clean
        table.compact(all_files=True)
        assert content(table) == before - met

    def test_of_leaves_that_have_some_and_no_file_of_others_is_written(self, table):
        """Given a condition that only the lower leaf has rows for, files of the other stay."""
        high = table.state().leaf_partitions()[1].partition_id
        before = {each.filename for each in table.references() if each.partition_id == high}

        table.delete(where="id = 7")

        after = {each.filename for each in table.references() if each.partition_id == high}
        assert after == before
        assert len(table.references()) == 3

    def test_beside_rows_that_were_deleted_by_their_keys(self, table):
        """Given a deletion that files have yet to obey, its rows are not counted or written."""
        table.delete(range={"id": (0, 50)})

        done = table.delete(where="id < 60 AND day = 2")

        assert done.rows == 10
        assert table.count() == 2 * 150 - 10
        assert table.verify().clean

    def test_of_a_table_whose_columns_changed(self, table):
        """Given a column that was added and one that was renamed, the condition names them."""
        table.alter(
            add=[pa.field("colour", pa.string())],
            rename={"name": "label"},
            defaults={"colour": "r"},
        )

        done = table.delete(where="colour = 'r' AND label = 'a'")

        assert done.rows == 2 * len([n for n in range(200) if TEXTS[n % 6] == "a"])
        assert table.count(where="label = 'a'") == 0
        assert set(table.query(columns=["colour"]).to_arrow()["colour"].to_pylist()) == {"r"}

    def test_of_sums_as_readers_see_them(self, tmp_path):
        """Given counts of a key in two files, their sum meets the condition, and not each."""
        instance = sleeper.connect(tmp_path / "sums", create=True)
        schema = pa.schema([("key", pa.string()), pa.field("n", pa.int64(), nullable=False)])
        table = instance.create_table(
            "t", schema, row_keys=["key"], properties={"sleeper.table.aggregations": "sum(n)"}
        )
        table.ingest([{"key": "a", "n": 1}, {"key": "b", "n": 10}])
        table.ingest([{"key": "a", "n": 2}])

        done = table.delete(where="n = 3")

        assert done.rows == 1
        assert table.query().to_pylist() == [{"key": "b", "n": 10}]

    def test_of_a_table_that_leaves_old_rows_out(self, tmp_path):
        """Given rows that a filter by age hides, they are neither counted nor written again."""
        instance = sleeper.connect(tmp_path / "old", create=True)
        schema = pa.schema([("key", pa.int64()), ("at", pa.timestamp("ms"))])
        table = instance.create_table(
            "t", schema, row_keys=["key"], properties={"sleeper.table.filters": "ageOff(at,1000)"}
        )
        table.ingest(
            pa.table({"key": [1, 2, 3], "at": [0, 2**42, 2**42]}, schema=None).cast(schema)
        )

        done = table.delete(where="key <= 2")

        assert done.rows == 1
        assert [row["key"] for row in table.query().to_pylist()] == [3]
        assert sum(each.row_count for each in table.references()) == 1

    def test_of_a_table_that_is_split_by_its_second_key(self, tmp_path):
        """Given leaves that interleave, each is written in its own order."""
        instance = sleeper.connect(tmp_path / "two", create=True)
        schema = pa.schema([("a", pa.string()), ("b", pa.int64()), ("v", pa.int64())])
        table = instance.create_table(
            "t",
            schema,
            row_keys=["a", "b"],
            properties={"sleeper.table.partition.splitting.threshold": "60"},
        )
        table.ingest([{"a": "same", "b": b, "v": b % 3} for b in range(200)])
        while table.split_partitions():
            pass

        done = table.delete(where="v = 1")

        assert done.rows == 67
        assert [row["b"] for row in table.query().to_pylist()] == [
            b for b in range(200) if b % 3 != 1
        ]
        assert table.verify().clean


class TestAnyTable:
    """Rows, splits, deletions and conditions by chance, beside a list of rows."""

    CONDITIONS = (
        ("v > {}", lambda row, x: row[1] is not None and row[1] > x),
        ("v IS NULL AND k >= {}", lambda row, x: row[1] is None and row[0] >= x),
        ("k % 3 = {} % 3", lambda row, x: row[0] % 3 == x % 3),
        ("v = {} OR k = 5", lambda row, x: row[1] == x or row[0] == 5),
        ("NOT v < {}", lambda row, x: row[1] is not None and not row[1] < x),
    )

    @settings(
        max_examples=tries(15, soak=2_000), deadline=None, suppress_health_check=[*HealthCheck]
    )
    @given(data=st.data())
    @pytest.mark.soak
    def test_has_the_rows_of_the_list(self, tmp_path_factory, data):
        """Given any order of ingests, deletions, splits and compactions, then every reader has
        the rows of the list.
        """
        instance = sleeper.connect(tmp_path_factory.mktemp("any") / "i", create=True)
        schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
        table = instance.create_table("t", schema, row_keys=["k"], split_points=[8])
        model: list[tuple[int, int | None]] = []
        small = st.integers(0, 15)
        steps = data.draw(st.lists(st.sampled_from("iwwkcs"), min_size=2, max_size=7))
        for step in ["i", *steps]:
            if step == "i":
                new = data.draw(st.lists(st.tuples(small, st.none() | small), max_size=12))
                table.ingest(
                    [{"k": k, "v": v} for k, v in new]
                    or pa.table({"k": [], "v": []}, schema=schema)
                )
                model += new
            elif step == "w":
                text, meets = data.draw(st.sampled_from(self.CONDITIONS))
                x = data.draw(small)
                gone = [row for row in model if meets(row, x)]
                assert table.delete(where=text.format(x)).rows == len(gone)
                model = [row for row in model if not meets(row, x)]
            elif step == "k":
                low = data.draw(small)
                table.delete(range={"k": (low, low + 2)})
                model = [row for row in model if not low <= row[0] < low + 2]
            elif step == "c":
                table.compact(all_files=data.draw(st.booleans()))
            else:
                table.set_properties({"sleeper.table.partition.splitting.threshold": "4"})
                table.split_partitions()

            found = [(row["k"], row["v"]) for row in table.query().to_pylist()]
            assert [k for k, _ in found] == sorted(k for k, _ in model)
            assert Counter(found) == Counter(model)
            assert table.count() == len(model)
        assert table.verify().clean


class TestOthersMeanwhile:
    """Whatever other processes do, each row goes or stays once."""

    def meanwhile(self, monkeypatch, act, after="_rewritten"):
        """Have something happen once: when the first leaf was written, or what `after` names."""
        module = deletion_by_condition if after == "_leaves_with_rows" else write_out
        original, done = getattr(module, after), []

        def slow(*arguments):
            output = original(*arguments)
            if not done:
                done.append(True)
                act()
            return output

        monkeypatch.setattr(module, after, slow)

    @pytest.mark.parametrize("after", ["_leaves_with_rows", "_take_over", "_jobs", "_rewritten"])
    def test_rows_that_are_added_stay(self, table, monkeypatch, after):
        """Given rows that come at any time, those that come after the plan are there, and once."""
        self.meanwhile(monkeypatch, lambda: table.ingest(rows(range(200), 3)), after)

        done = table.delete(where="day >= 2")

        stayed = 200 if after in ("_jobs", "_rewritten") else 0
        assert done.rows == 400 - stayed
        assert table.count(where="day = 3") == stayed
        assert table.count() == 200 + stayed

    def test_a_leaf_may_be_divided(self, table, monkeypatch):
        """Given rows that came after the plan, and lie on halves of a leaf, they are there once."""
        real = write_out.claims_of_run

        @contextmanager
        def claims(*arguments):
            with real(*arguments) as held:
                yield SimpleNamespace(
                    rounds=lambda *jobs: self.divided(
                        table, [[*each] for each in held.rounds(*jobs)]
                    )
                )

        monkeypatch.setattr(write_out, "claims_of_run", claims)

        done = table.delete(where="day = 2")

        assert done.rows == 200
        assert table.count(where="day = 3") == 200
        assert Counter(table.query().to_arrow()["id"].to_pylist()) == dict.fromkeys(range(200), 2)

    def divided(self, table, claimed):
        if table.count(where="day = 3"):
            return claimed
        table.ingest(rows(range(200), 3))
        table.set_properties({"sleeper.table.partition.splitting.threshold": "4"})
        assert any(each.children for each in table.split_partitions())
        push_down_references(table._current())
        return claimed

    @pytest.mark.parametrize("after", ["_take_over", "_jobs", "_rewritten"])
    def test_rows_that_an_upsert_replaces_meanwhile_are_its_own(self, table, monkeypatch, after):
        """Given many keys that are replaced while leaves are written, no old row of them is left."""
        monkeypatch.setattr(upsert, "REGIONS_MAX", 10)
        new = [*range(40), *range(60, 100)]
        self.meanwhile(monkeypatch, lambda: table.upsert(rows(new, 3)), after)

        table.delete(where="day = 2")

        assert table.state().key_files() or after != "_rewritten"
        assert table.count(where="day = 2") == 0
        assert table.count(where="day = 3") == len(new)
        assert table.count(where="day = 1") == 200 - len(new)

    def test_a_deletion_by_keys_is_obeyed(self, table, monkeypatch):
        """Given keys that are deleted while leaves are written, the new files hide them."""
        self.meanwhile(monkeypatch, lambda: table.delete(keys=[1, 2, 150]))

        table.delete(where="day = 2")

        assert table.count() == 200 - 3
        assert table.query(key=1).to_pylist() == []
        table.compact(all_files=True)
        assert table.count() == 200 - 3

    def test_another_one_comes_after_or_before(self, table, monkeypatch):
        """Given another deletion of the same leaves, both are done in the end."""
        self.meanwhile(monkeypatch, lambda: table.delete(where="id % 2 = 0"))

        table.delete(where="day = 2")

        assert table.count() == 100
        assert table.count(where="id % 2 = 0 OR day = 2") == 0
        assert {each.job_id for each in table.references()} == {None}

    def test_a_compaction_brings_nothing_back(self, table, monkeypatch):
        """Given a compaction that has read, when rows are deleted, its output is refused."""
        original, done = compact.compact_files, []

        def slow(*arguments, **more):
            output = original(*arguments, **more)
            if not done:
                done.append(table.delete(where="day = 2"))
            return output

        monkeypatch.setattr(compact, "compact_files", slow)
        ended = table.compact(all_files=True, workers=1)

        assert ended.failed
        assert table.count() == 200
        assert table.verify().clean

    def test_columns_that_are_added_keep_their_values(self, table, monkeypatch):
        """Given rows with a column that the handle does not know, no file loses its values."""

        def add_a_column():
            other = sleeper.connect(table._context.url).table("t")
            other.alter(add=[pa.field("more", pa.string())])
            new = rows([7, 107], 3).append_column("more", pa.array(["kept", "kept"]))
            other.ingest(new)

        self.meanwhile(monkeypatch, add_a_column, "_leaves_with_rows")

        with pytest.raises(CommitContended, match="columns that were added meanwhile"):
            table.delete(where="day = 2")

        assert table.count() == 402
        assert table.delete(where="day = 2").rows == 200
        assert table.count(where="more = 'kept'") == 2

    def test_a_split_takes_the_leaf_away(self, table, monkeypatch):
        """Given a leaf that is split after its files were claimed, nothing is lost."""
        table.set_properties({"sleeper.table.partition.splitting.threshold": "50"})
        self.meanwhile(monkeypatch, table.split_partitions)

        table.delete(where="day = 2")

        assert table.count() == 200
        assert table.verify().clean

    @pytest.mark.parametrize("leaves", [1, 2])
    def test_others_who_take_the_files_each_time(self, table, monkeypatch, leaves):
        """Given others who release claims of one leaf or both again and again, nothing is deleted."""
        written = write_out._rewritten

        def robbed(*arguments):
            output = written(*arguments)
            if len(table.claims()) == 2 and output.transaction.output.partition_id == high:
                for claim in table.claims()[:leaves]:
                    table.release_claims(claim.job_id)
            return output

        high = table.state().leaf_partitions()[1].partition_id

        monkeypatch.setattr(write_out, "_rewritten", robbed)

        with pytest.raises(CommitContended, match="nothing was committed"):
            table.delete(where="day = 2")

        assert table.count() == 400
        assert {each.filename for each in table.references()} == {
            name for name in data_files(table) if name.endswith(".parquet")
        }


class TestRefusals:
    """Nothing is deleted, no file is left, and the message says what to do."""

    @pytest.mark.parametrize(
        ("where", "says"),
        [
            ("nn = 3", "did you mean 'n'"),
            ("1=1) OR (2=2", "Expected: end of expression"),
            ("", "A condition is what stands after WHERE"),
            (7, "where must be a condition"),
            ("id", "non-boolean"),
            ("id IN (SELECT id FROM t)", "no table"),
            ("100 / (day - 1) > 0", "Divide by zero"),
            ("random() < 0.5", "must give the same each time"),
            ("RANDOM ( ) < 2", "must give the same each time"),
            ("id > 5 OR uuid() > ''", "has uuid"),
        ],
    )
    def test_of_a_condition_that_is_none(self, table, where, says):
        """Given text that is no condition of this table, or not always the same one."""
        files = data_files(table)

        with pytest.raises(QueryInvalid, match=says):
            table.delete(where=where)

        assert table.count() == 400
        assert data_files(table) == files
        assert {each.job_id for each in table.references()} == {None}

    @pytest.mark.parametrize("beside", [{"key": 7}, {"keys": [7]}, {"range": {"id": (1, 2)}}])
    def test_of_keys_beside_a_condition(self, table, beside):
        """Given keys too, it is not guessed whether both or either is meant."""
        with pytest.raises(QueryInvalid, match="where= alone"):
            table.delete(where="n = 1", **beside)

    def test_of_a_damaged_file(self, table):
        """Given a file that is gone, the error names it, and no claim is left."""
        table._current().files.delete([table.references()[0].filename])

        with pytest.raises(DataDamaged, match="is missing"):
            table.delete(where="day = 2")

        assert {each.job_id for each in table.references()} == {None}


class TestEveryDoor:
    """The command line, REST and its client delete the same rows."""

    def test_the_command_line(self, table):
        """Given --where, it asks with the number of rows, deletes them, and history says why."""
        url = table._context.url

        done = command(
            *("--reason", "ticket 4711", "delete", "t", "--where", "day = 2 AND id < 10"),
            *("--instance", url),
            answer="y\n",
        )

        assert "Delete 10 rows of table t" in done.output
        assert "deleted 10 rows of table t" in done.output
        assert table.count() == 390
        assert table.history(limit=1)[0].reasons == ("ticket 4711",)

    def test_a_client_of_the_rest_server(self, table):
        """Given a server, its client deletes, and refuses what the library refuses."""
        with running_server(make_app(sleeper.connect(table._context.url))) as url:
            remote = sleeper.connect(url).table("t")

            done = remote.delete(where="day = 2", reason="by mistake")
            with pytest.raises(QueryInvalid, match="where= alone"):
                remote.delete(key=1, where="day = 1")
            with pytest.raises(QueryInvalid, match="did you mean 'n'"):
                remote.delete(where="nn = 1")

            assert done.rows == 200
            assert remote.count() == table.count() == 200
            assert table.history(limit=1)[0].reasons == ("by mistake",)
