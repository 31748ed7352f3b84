"""Rows are deleted by their keys: every reader leaves them out, and compactions end them (rule DEL-1)."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import BadRequest, QueryInvalid, TableChanged
from sleeper.interfaces.rest.app import make_app
from sleeper.tables import compact
from tests.unit.interfaces.command_line import sleeper as command
from tests.unit.interfaces.rest.running_server import running_server

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.int64()), ("n", pa.int64())])


@pytest.fixture
def table(tmp_path):
    """Numbers below 200 in two leaves, each in two files, with two days of each."""
    instance = sleeper.connect(tmp_path / "instance", create=True)
    table = instance.create_table(
        "t", SCHEMA, row_keys=["id"], sort_keys=["day"], split_points=[100]
    )
    for day in (1, 2):
        table.ingest(rows(range(200), day))
    return table


def rows(ids, day, n=0):
    return pa.table({"id": [*ids], "day": [day] * len(ids), "n": [n] * len(ids)}, schema=SCHEMA)


def ids(table, **question):
    return sorted({row["id"] for row in table.query(**question).to_pylist()})


class TestEveryReader:
    """Deleted rows are in no answer."""

    @pytest.mark.parametrize(
        ("asked", "gone"),
        [
            ({"key": 7}, {7}),
            ({"keys": [3, 150, 199]}, {3, 150, 199}),
            ({"keys": pa.array([0])}, {0}),
            ({"keys": iter([4, 4, 3])}, {3, 4}),
            ({"range": {"id": (90, 110)}}, set(range(90, 110))),
            (
                {"regions": [{"id": (0, 5)}, {"id": (4, 9)}, {"id": (195, None)}]},
                {*range(9), *range(195, 200)},
            ),
            ({"range": {"id": (None, 200)}}, set(range(200))),
        ],
    )
    def test_leaves_them_out(self, table, asked, gone):
        """Given a deletion, then looks by key, keys, range, SQL, counts and exports agree."""
        left = sorted(set(range(200)) - gone)

        table.delete(**asked)

        assert ids(table) == left
        assert table.count() == 2 * len(left)
        assert table.query(ordered=False).to_arrow().num_rows == 2 * len(left)
        assert ids(table, keys=[*range(200)]) == left
        for one in (0, 7, 99, 100, 199):
            assert table.query(key=one).to_arrow().num_rows == (0 if one in gone else 2)
        assert ids(table, range={"id": (80, 120)}) == [each for each in left if 80 <= each < 120]
        assert table.sql("select count(*) as n from t").to_pylist() == [{"n": 2 * len(left)}]
        assert table.query(limit=4).to_arrow().num_rows == min(4, 2 * len(left))
        assert ids(table, where="day = 2") == left

    def test_keeps_what_is_added_later(self, table):
        """Given a key that was deleted, when rows of it are added, they alone are there."""
        table.delete(range={"id": (0, 100)})

        table.ingest(rows([7], 3, n=1))

        assert table.query(key=7).to_pylist() == [{"id": 7, "day": 3, "n": 1}]
        assert ids(table, range={"id": (None, 100)}) == [7]

    def test_sees_an_earlier_version_as_it_was(self, table):
        """Given a deletion, as_of the transaction before it, all rows are there."""
        done = table.delete(key=7)

        assert table.query(key=7, as_of=done.transaction - 1).to_arrow().num_rows == 2
        assert table.query(key=7, as_of=done.transaction).to_arrow().num_rows == 0

    def test_of_a_prefix_and_of_several_row_keys(self, tmp_path):
        """Given two row keys, a box of them is deleted, and a prefix of the first."""
        instance = sleeper.connect(tmp_path / "two", create=True)
        schema = pa.schema([("a", pa.string()), ("b", pa.int64())])
        table = instance.create_table("t", schema, row_keys=["a", "b"])
        everything = [{"a": a, "b": b} for a in ("x", "xy", "y") for b in range(4)]
        table.ingest(everything)

        table.delete(range={"a": ("x", True, "x", True), "b": (1, 3)})
        table.delete(
            prefix={"a": "xy"},
        )
        table.delete(key={"a": "y", "b": 0})

        assert [(row["a"], row["b"]) for row in table.query().to_pylist()] == [
            ("x", 0),
            ("x", 3),
            ("y", 1),
            ("y", 2),
            ("y", 3),
        ]
        assert table.count() == 5


class TestCompaction:
    """Files without the deleted rows."""

    def test_writes_files_without_them_and_ends_the_deletion(self, table):
        """Given a deletion, when all files were compacted, no file has the rows, and nothing is
        left to obey.
        """
        table.delete(range={"id": (50, 150)})

        table.compact(all_files=True)

        assert table.state().deletes == ()
        assert sum(each.row_count for each in table.references()) == table.count() == 200
        assert table.verify().clean

    def test_ends_a_deletion_whose_leaf_it_wrote_whatever_other_leaves_have(self, table):
        """Given a deletion in one leaf, when its files are written anew, it ends, though older files
        are in the other leaf; while one of its files is left, it goes on.
        """
        table.compact(all_files=True)
        table.ingest(rows([1, 2], 3))
        table.delete(range={"id": (0, 10)})
        low = table.state().leaf_partitions()[0].partition_id
        before = {each.filename for each in table.references() if each.partition_id != low}

        table.compact(all_files=True)

        assert before <= {each.filename for each in table.references()}
        assert table.state().deletes == ()
        assert table.count() == 2 * 190

    def test_need_not_end_a_deletion_where_no_file_is(self, tmp_path):
        """
        Given a leaf without files, then a deletion of keys in it is no transaction: no compaction
        could end it, and the table could take fewer deletions, or never be of format 1 again.
        """
        instance = sleeper.connect(tmp_path / "leaf without files", create=True)
        table = instance.create_table("t", SCHEMA, row_keys=["id"], split_points=[100])
        table.ingest(rows([1], 1))
        before = table.refresh()

        done = table.delete(keys=[100, 150])

        assert done.transaction == table.refresh() == before
        assert table.state().deletes == ()
        assert table.downgrade().format == 1

    def test_ends_a_deletion_where_the_last_old_file_has_no_row(self, tmp_path):
        """Given a key that no old file has, when its leaf is split off and references are moved
        down, then no file there is older than the deletion, and it ends.
        """
        instance = sleeper.connect(tmp_path / "no row in a leaf", create=True)
        table = instance.create_table("t", SCHEMA, row_keys=["id"])
        table.set_properties({"sleeper.table.partition.splitting.threshold": 10})
        table.ingest(rows(range(4), 1))
        table.delete(key=150)
        table.ingest(rows(range(100, 120), 1))
        assert len(table.split_partitions()) == 1
        assert table.state().deletes != ()

        table.compact()

        assert table.state().deletes == ()
        assert ids(table) == [*range(4), *range(100, 120)]

    def test_that_read_before_the_deletion_does_not_bring_rows_back(self, table):
        """Given a compaction that has read, when rows are deleted before it commits, its output
        hides them.
        """
        original = compact.compact_files
        done = []

        def slow(*arguments, **more):
            output = original(*arguments, **more)
            if not done:
                done.append(table.delete(range={"id": (0, 200)}))
            return output

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compact, "compact_files", slow)
            table.compact(all_files=True, workers=1)

        assert done
        assert table.count() == 0
        assert ids(table) == []
        table.compact(all_files=True)
        assert table.count() == 0

    def test_of_a_table_with_sums_deletes_before_rows_are_united(self, tmp_path):
        """Given counts of a key, when it is deleted, then later counts of it alone are summed."""
        instance = sleeper.connect(tmp_path / "sums", create=True)
        schema = pa.schema([("key", pa.string()), pa.field("n", pa.int64(), nullable=False)])
        table = instance.create_table(
            "t", schema, row_keys=["key"], properties={"sleeper.table.aggregations": "sum(n)"}
        )
        table.ingest([{"key": "a", "n": 1}, {"key": "b", "n": 10}])
        table.ingest([{"key": "a", "n": 2}])
        table.delete(key="a")
        table.ingest([{"key": "a", "n": 4}, {"key": "b", "n": 20}])

        before = table.query().to_pylist()
        table.compact(all_files=True)

        assert before == table.query().to_pylist() == [{"key": "a", "n": 4}, {"key": "b", "n": 30}]


class TestOtherEngines:
    """What others read in place has no deleted row."""

    def test_a_version_with_deleted_rows_in_its_files_is_not_published(self, table):
        """Given a published table, when rows are deleted, the older version stays published until
        the files are written anew.
        """
        first = table.publish("delta")
        table.delete(range={"id": (0, 10)})

        second = table.publish("delta")
        third = table.publish("delta", make_clean=True)

        assert (second.transaction, second.is_new) == (first.transaction, False)
        assert third.rows == table.count() == 380


class TestSplits:
    """Leaves change, and what is deleted stays deleted."""

    def test_a_file_that_leaves_share_obeys_a_deletion_in_each(self, tmp_path):
        """Given a deletion, when its leaf is split, both halves leave the rows out."""
        instance = sleeper.connect(tmp_path / "split", create=True)
        table = instance.create_table(
            "t",
            SCHEMA,
            row_keys=["id"],
            properties={"sleeper.table.partition.splitting.threshold": "100"},
        )
        table.ingest(rows(range(200), 1))
        table.delete(range={"id": (95, 105)})

        table.split_partitions()

        assert len(table.state().leaf_partitions()) == 2
        assert ids(table) == [*range(95), *range(105, 200)]
        table.compact(all_files=True)
        assert table.count() == 190
        assert table.verify().clean


class TestRefusals:
    """Nothing is deleted, and the message says what to do."""

    def test_a_table_of_format_1(self, tmp_path):
        """Given a table for earlier versions, they would show the rows."""
        table = sleeper.connect(tmp_path / "i", create=True).create_table(
            "t", SCHEMA, row_keys=["id"]
        )
        table.downgrade()

        with pytest.raises(BadRequest, match="sleeper table upgrade t"):
            table.delete(key=1)

    def test_nothing_that_says_which_rows(self, table):
        """Given no key, then it is not all rows that go."""
        with pytest.raises(QueryInvalid, match=r"use reinitialise\(\)"):
            table.delete()

    @pytest.mark.parametrize(
        "asked",
        [
            {"range": {}},
            {"range": {"id": (None, None)}},
            {"range": {"id": (-(2**63), True, 2**63 - 1, True)}},
            {"regions": [{}]},
            {"regions": [{"id": (1, 2)}, {"id": (None, None)}]},
        ],
    )
    def test_a_region_of_all_keys(self, table, asked):
        """Given a region that is the whole key space, wherever it comes from, all rows stay."""
        with pytest.raises(QueryInvalid, match=r"use reinitialise\(\)"):
            table.delete(**asked)

        assert table.count() == 400

    def test_a_prefix_of_all_keys(self, tmp_path):
        """Given the empty prefix, which every text has, all rows stay; so with a range of the rest."""
        instance = sleeper.connect(tmp_path / "texts", create=True)
        schema = pa.schema([("a", pa.string()), ("b", pa.int64())])
        table = instance.create_table("t", schema, row_keys=["a", "b"])
        table.ingest([{"a": "x", "b": 1}])

        for asked in ({}, {"range": {"b": (None, None)}}):
            with pytest.raises(QueryInvalid, match=r"use reinitialise\(\)"):
                table.delete(prefix={"a": ""}, **asked)

        assert table.count() == 1
        table.delete(prefix={"a": ""}, range={"b": (None, 2)})
        assert table.count() == 0

    @pytest.mark.parametrize("key", [("x", None), {"a": "x", "b": None}, {"b": None}, (None, 1)])
    def test_a_key_with_a_null(self, tmp_path, key):
        """Given a key of which a value is missing by mistake, it is not any value that is meant."""
        instance = sleeper.connect(tmp_path / "pairs", create=True)
        schema = pa.schema([("a", pa.string()), ("b", pa.int64())])
        table = instance.create_table("t", schema, row_keys=["a", "b"])
        table.ingest([{"a": "x", "b": 1}, {"a": "y", "b": 1}])

        with pytest.raises(QueryInvalid, match="None is not a value for key field"):
            table.delete(key=key)

        assert table.count() == 2

    @pytest.mark.parametrize(
        ("keys", "says"),
        [
            (7, "Give a list of complete row keys, or for one key key="),
            ("7", r"'7' is one key; did you mean key='7'\? keys= is a list of complete row keys"),
            ({"id": 7}, "a dict is not a sequence. Give a list of complete row keys"),
            ([7, None], "1 of 2 keys have no value for 'id'"),
            ([7.5], "7.5"),
        ],
    )
    def test_keys_that_are_no_list(self, table, keys, says):
        """Given one key as keys, or what is no key, the message is that of a query."""
        with pytest.raises(QueryInvalid, match=says):
            table.delete(keys=keys)
        with pytest.raises(QueryInvalid, match=says):
            table.query(keys=keys)

    def test_more_than_can_be_kept(self, table):
        """Given very many regions, or keys in several deletions, the bound is named."""
        with pytest.raises(BadRequest, match=r"may have 1,000"):
            table.delete(regions=[{"id": (n, n + 1)} for n in range(1_001)])
        table.delete(keys=[*range(100, 1_100)])
        with pytest.raises(TableChanged, match="Compact the table"):
            table.delete(key=7)
        assert table.delete(keys=[7, 8]).regions == 2
        assert table.query(keys=[7, 8]).to_pylist() == []
        assert table.count() == 2 * 98
        table.compact(all_files=True)
        table.delete(key=9)

    def test_an_empty_list_and_an_empty_range(self, table):
        """Given no keys at all, nothing is committed."""
        before = table.state().number

        assert table.delete(keys=[]).transaction == before
        assert table.delete(range={"id": (5, 5)}).regions == 0
        assert table.state().number == before

    def test_a_table_goes_back_to_format_1_only_without_deleted_rows(self, table):
        """Given a deletion that files have yet to obey, format 1 would show the rows."""
        table.delete(key=7)

        with pytest.raises(TableChanged, match="deleted rows"):
            table.downgrade()
        table.compact(all_files=True)
        assert table.downgrade().format == 1


class TestEveryDoor:
    """The command line, REST and its client delete the same rows."""

    def test_the_command_line(self, table):
        """Given --key or --keys-file, rows go, and the history says why."""
        url = table._context.url
        command(
            "--reason", "ticket 4711", "delete", "t", "--key", "id=7", "--force", "--instance", url
        )

        done = command("delete", "t", "--range", "id=10,20", "--instance", url, answer="y\n")

        assert "20 rows" in done.output
        assert table.count() == 400 - 2 - 20
        entries = [each for each in table.history() if "rows deleted" in each.kinds]
        assert [each.reasons for each in entries] == [(), ("ticket 4711",)]

    @pytest.mark.parametrize(
        ("options", "says", "code"),
        [
            (["--where", "n = 1", "--key", "id=1"], "where= alone", 1),
            ([], "sleeper table reinitialise t", 2),
            (["--range", "id=,"], "sleeper table reinitialise t", 1),
        ],
    )
    def test_the_command_line_refuses_what_names_no_keys(self, table, options, says, code):
        """Given a condition, or nothing, nothing is deleted, and the message says what to do."""
        refused = command("delete", "t", *options, "--force", "--instance", table._context.url)

        assert refused.exit_code == code
        assert says in " ".join(refused.output.split())
        assert table.count() == 400

    def test_a_client_of_the_rest_server(self, table):
        """Given a server, its client upgrades nothing by itself, and deletes by every way."""
        served = sleeper.connect(table._context.url)
        with running_server(make_app(served)) as url:
            remote = sleeper.connect(url).table("t")

            remote.delete(key=1)
            remote.delete(keys=[2, 3])
            remote.delete(range={"id": (4, 6)}, reason="by mistake")
            for asked in ({}, {"range": {}}, {"regions": [{}]}, {"range": {"id": (None, None)}}):
                with pytest.raises(QueryInvalid, match=r"use reinitialise\(\)"):
                    remote.delete(**asked)

            assert remote.count() == table.count() == 400 - 2 * 5
            assert table.history(limit=1)[0].reasons == ("by mistake",)
