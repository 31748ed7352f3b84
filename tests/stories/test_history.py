"""What changed, and when: history, versions by time, and the rows that were added between two."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta, timezone

import pandas as pd
import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import DataDamaged, QueryInvalid, TableNotFound, VersionNotFound
from sleeper.state.table_state import Transaction
from sleeper.state.transactions.files import ReplaceFiles
from sleeper.state.transactions.preconditions import (
    LeavesUnchanged,
    RegionsUnchanged,
)
from sleeper.tables import history as log_history

SCHEMA = pa.schema([("id", pa.string()), pa.field("n", pa.int64(), nullable=False)])


@pytest.fixture
def table(tmp_path):
    return new_table(tmp_path)


def new_table(folder):
    made = sleeper.connect(folder / "instance", create=True)
    return made.create_table("t", SCHEMA, row_keys=["id"], split_points=["m"])


@pytest.fixture(scope="module")
def long_log(tmp_path_factory):
    """The URL of an instance whose table has 150 entries, with a snapshot among them."""
    table = new_table(tmp_path_factory.mktemp("long"))
    for n in range(149):
        table.ingest(rows(f"k{n}"), f"job {n}")
    return table._context.url


@pytest.fixture(scope="module", params=[True, False], ids=["now", "earlier versions"])
def log_of_compactions(request, tmp_path_factory):
    """The URL of an instance whose table was split and compacted.

    Entries of earlier versions do not say how many rows they removed.
    """
    made = sleeper.connect(tmp_path_factory.mktemp("compacted") / "other", create=True)
    table = made.create_table(
        "t",
        SCHEMA,
        row_keys=["id"],
        properties={"sleeper.table.partition.splitting.threshold": 40},
    )
    with pytest.MonkeyPatch.context() as patch:
        if not request.param:
            patch.setattr(ReplaceFiles, "recorded", lambda change, state: change)
        table.ingest(rows(*(f"k{n:02}" for n in range(50))))
        table.split_partitions()
        table.ingest(rows("k01", "k49"))
        table.compact(all_files=True)
        table.ingest(rows("k02"))
        table.compact(all_files=True)
    return made.url


def rows(*ids, n=1):
    return [{"id": each, "n": n} for each in ids]


class TestHistory:
    """`Table.history`."""

    def test_tells_what_each_transaction_did(self, table):
        """The newest first: what, when, how many rows and files, and by which job."""
        started = datetime.now(UTC)
        table.ingest(rows("a", "b", "x"), "monday")
        table.ingest(rows("c"), "tuesday")
        table.compact(all_files=True)
        table.collect_garbage(force=True)
        table.split_partitions()
        emptied = table.reinitialise()

        found = table.history()

        assert [each.number for each in found] == list(range(emptied, 0, -1))
        assert "partitions made" in found[-1].kinds
        monday, tuesday = (each for each in found[::-1] if each.kinds == ("rows added",))
        assert (monday.job_ids, monday.rows_added, monday.rows_removed) == (("monday",), 3, 0)
        assert (tuesday.job_ids, tuesday.rows_added, tuesday.files_added) == (("tuesday",), 1, 1)
        compacted = [each for each in found if "files compacted" in each.kinds]
        assert sum(each.rows_added for each in compacted) == 3
        assert sum(each.rows_removed for each in compacted) == 3
        assert all(each.job_ids for each in compacted)
        assert "table emptied" in found[0].kinds
        assert found[0].rows_removed == 4
        assert any("garbage deleted" in each.kinds and each.files_removed for each in found)
        assert [each.time for each in found] == sorted((e.time for e in found), reverse=True)
        assert all(each.time.utcoffset() == timedelta() for each in found)
        assert started - timedelta(seconds=10) < found[-1].time

    @pytest.mark.parametrize("limit", [0, 1, 3, 150, 10**9])
    def test_reads_only_the_last_ones(self, long_log, limit, monkeypatch):
        """Given 150 entries with a snapshot among them, then those after `limit` are decoded."""
        decoded = []
        decode = log_history.decode_entry
        monkeypatch.setattr(
            log_history, "decode_entry", lambda *args: decoded.append(args[2]) or decode(*args)
        )
        table = sleeper.connect(long_log).table("t")

        found = table.history(limit)

        assert [each.number for each in found] == list(range(150, 0, -1))[:limit]
        assert len(decoded) == len(found) == min(limit, 150)
        assert table.history(limit)[: len(found)] == found

    def test_of_ingests_and_compactions_replays_nothing(self, table, monkeypatch):
        """Given compactions of files that the same entries added, then the entries tell all."""
        for n in range(5):
            table.ingest(rows(f"a{n}", f"x{n}", f"y{n}"))
            table.compact(all_files=True)
        monkeypatch.setattr(log_history, "replay", lambda *_: pytest.fail("replayed"))

        removed = [each.rows_removed for each in table.history() if each.rows_removed]

        assert sum(removed) == 3 * (2 + 3 + 4 + 5)

    def test_of_the_last_compaction_alone_replays_nothing(self, table, monkeypatch):
        """Given files that earlier entries added, then the compaction's own entry says all."""
        table.ingest(rows("a", "x", "y"))
        table.ingest(rows("a", "z"))
        table.compact(all_files=True)
        table.collect_garbage(force=True)
        table.reinitialise()
        monkeypatch.setattr(log_history, "replay", lambda *_: pytest.fail("replayed"))

        emptied, collected, second, first = table.history(4)

        assert (emptied.rows_removed, emptied.files_removed) == (5, 2)
        assert collected.kinds == ("garbage deleted",)
        assert (first.rows_removed + second.rows_removed, first.files_removed) == (5, 2)

    @pytest.mark.parametrize("at_once", [1, 2, 3, 100])
    @pytest.mark.parametrize("limit", [1, 4, 7, None])
    def test_counts_removed_rows_as_the_states_before_do(
        self, log_of_compactions, limit, at_once, monkeypatch
    ):
        """Given compactions of older files, moved references, merges and an emptied table."""
        monkeypatch.setattr(log_history, "_READ_AT_ONCE", at_once)
        table = sleeper.connect(log_of_compactions).table("t")
        store = table._current().store

        for entry in table.history(limit):
            body = store.log.read(entry.number)
            transactions = log_history.decode_entry(body, table.schema, "").transactions
            inputs = [
                (name, each.output.partition_id)
                for each in transactions
                if isinstance(each, ReplaceFiles)
                for name in each.inputs
            ]
            before = store.state_after(entry.number - 1)
            counts = [before.files.reference(*key).row_count for key in inputs]
            assert entry.rows_removed == sum(counts)
        assert sum(entry.rows_removed for entry in table.history()) > 50

    def test_of_a_log_with_a_gap_names_the_missing_entry(self, table):
        """Also where nothing is replayed."""
        for n in range(3):
            table.ingest(rows(f"a{n}"))
        opened = table._current()
        opened.files.delete([f"statestore/transactions/{3:020d}.json"])

        with pytest.raises(DataDamaged, match="has no entry 3"):
            table.history(3)

    @pytest.mark.parametrize("limit", [-1, "3", 1.5, True])
    def test_refuses_what_is_no_number(self, table, limit):
        """As for a query."""
        with pytest.raises(QueryInvalid, match="limit must"):
            table.history(limit)

    def test_has_a_word_for_every_transaction(self):
        """A new kind of transaction needs one too, unless it is never written."""
        kinds = {
            getattr(sys.modules[each.__module__], each.__name__)  # not what `slots=True` replaced
            for each in _below(Transaction)
            if each.__module__.startswith("sleeper.")
        }

        assert kinds - {LeavesUnchanged, RegionsUnchanged} == log_history._KINDS.keys()
        assert len({*log_history._KINDS.values()}) == len(log_history._KINDS)

    def test_of_a_deleted_table_is_not_found(self, tmp_path):
        """Its log would look empty."""
        instance = sleeper.connect(tmp_path / "i", create=True)
        table = instance.create_table("t", SCHEMA, row_keys=["id"])
        instance.delete_table("t")

        for ask in (table.history, table.kept_versions, lambda: table.diff(0)):
            with pytest.raises(TableNotFound):
                ask()


class TestVersionsByTime:
    """`as_of=` an aware datetime."""

    def test_are_the_last_at_or_before_it(self, table):
        """To the microsecond, in any zone, for every transaction of the table."""
        for n in range(12):
            table.ingest(rows("a", n=n))
        entries = table.history()

        for entry in entries[:-1]:
            for time, number in (
                (entry.time, entry.number),
                (entry.time.astimezone(timezone(timedelta(hours=5, minutes=30))), entry.number),
                (entry.time - timedelta(microseconds=1), entry.number - 1),
            ):
                assert table.query(as_of=time).transaction == number, (entry, time)
        assert table.query(as_of=datetime.now(UTC) + timedelta(days=1)).transaction == 13
        assert table.count(as_of=entries[1].time) == 11
        exported = table.export(table._context.url + "-out", as_of=entries[3].time)
        assert (exported.transaction, exported.rows) == (10, 9)

    def test_before_the_first_are_not_found(self, table):
        """The error says when the first was committed."""
        first = table.history()[-1]

        with pytest.raises(VersionNotFound, match=rf"the first is 1, .* at {first.time.date()}"):
            table.query(as_of=first.time - timedelta(microseconds=1))
        with pytest.raises(VersionNotFound, match="no transaction 99") as raised:
            table.query(as_of=99)
        assert raised.value.__cause__ is None  # an error that is its own cause has no end
        with pytest.raises(VersionNotFound, match="no transaction 0; the first is 1"):
            table.query(as_of=0)
        with pytest.raises(VersionNotFound, match="the first is 1"):
            table.query(as_of=datetime.min.replace(tzinfo=UTC))

    @pytest.mark.parametrize(
        ("as_of", "says"),
        [
            (datetime(2026, 1, 1), "as_of must have a time zone.*it has no time zone.*tzinfo=UTC"),
            (datetime(2026, 1, 1).date(), "must be a transaction number or a datetime"),
            (datetime.min.replace(tzinfo=timezone(timedelta(hours=5))), "outside the years 1 to"),
            (pd.Timestamp("2026-01-01T00:00:00.000000001Z"), "it has nanoseconds"),
            ("2026-01-01", "must be a transaction number or a datetime"),
            (1.5, "must be a transaction number or a datetime"),
            (True, "must be a transaction number or a datetime"),
        ],
    )
    def test_must_have_a_time_zone(self, table, as_of, says):
        """A naive time means another moment on each machine."""
        with pytest.raises(QueryInvalid, match=says):
            table.query(as_of=as_of)
        with pytest.raises(QueryInvalid, match=says.replace("as_of", "before")):
            table.diff(as_of)

    def test_that_are_kept_are_told(self, table):
        """Given that garbage was deleted, then the first version is the compaction, with its time."""
        for n in range(3):
            table.ingest(rows("a", n=n))
        before = table.kept_versions()
        compacted = table.compact(all_files=True).transaction
        time = table.history(1)[0].time
        table.collect_garbage(force=True)
        kept = table.kept_versions()

        assert (before.first, before.newest) == (1, 4)
        assert (kept.first, kept.first_at, kept.newest) == (compacted, time, compacted + 1)
        assert table.query(as_of=kept.first_at).to_arrow().num_rows == 3
        with pytest.raises(VersionNotFound, match=rf"as of {compacted} .*since {time.date()}"):
            table.query(as_of=time - timedelta(microseconds=1))


class TestDiff:
    """`Table.diff`: the rows that ingests added."""

    def test_has_the_rows_that_were_added_between(self, table):
        """In key order, over several ingests; what a compaction rewrote is not new."""
        monday = table.ingest(rows("a", "x")).transaction
        tuesday = table.ingest(rows("c", "m", n=2)).transaction
        wednesday = table.ingest(rows("b", "y", n=3)).transaction
        table.compact(all_files=True)

        assert ids(table.diff(0)) == ["a", "b", "c", "m", "x", "y"]
        assert ids(table.diff(monday)) == ["b", "c", "m", "y"]
        assert ids(table.diff(monday, tuesday)) == ["c", "m"]
        assert ids(table.diff(tuesday, wednesday)) == ["b", "y"]
        assert ids(table.diff(wednesday)) == []
        assert table.diff(monday, tuesday).transaction == tuesday
        assert table.diff(monday, columns=["n"]).to_pylist()[0] == {"n": 3}
        assert len(table.diff(monday)) == table.diff(monday).count() == 4

    def test_takes_times(self, table):
        """What changed since yesterday."""
        table.ingest(rows("a"))
        yesterday = table.history(1)[0].time
        table.ingest(rows("b"))

        assert ids(table.diff(yesterday)) == ["b"]
        assert ids(table.diff(yesterday, datetime.now(UTC) + timedelta(hours=1))) == ["b"]
        assert ids(table.diff(yesterday, yesterday)) == []
        assert ids(table.diff(yesterday - timedelta(days=1))) == ["a", "b"]
        with pytest.raises(VersionNotFound, match="the first is 1"):
            table.diff(0, yesterday - timedelta(days=1))

    def test_filters_and_does_not_aggregate(self, tmp_path):
        """Rows come as they were added: equal keys of two ingests are two rows."""
        table = sleeper.connect(tmp_path / "i", create=True).create_table(
            *("t", SCHEMA), row_keys=["id"], properties={"sleeper.table.aggregations": "sum(n)"}
        )
        before = table.ingest(rows("a")).transaction
        for n in (2, 3):
            table.ingest(rows("a", "b", n=n))

        assert table.diff(before).to_pylist() == [
            *rows("a", n=2),
            *rows("a", n=3),
            *rows("b", n=2),
            *rows("b", n=3),
        ]

    def test_needs_files_that_are_still_there(self, table):
        """Files that were compacted and deleted have rows that nobody can tell from others."""
        first = table.ingest(rows("a")).transaction
        second = table.ingest(rows("b")).transaction
        table.compact(all_files=True)
        table.collect_garbage(force=True)
        third = table.ingest(rows("c")).transaction

        with pytest.raises(
            VersionNotFound, match=rf"1 of the 2 files .*from transaction {second} on"
        ):
            table.diff(first)
        assert ids(table.diff(third - 1)) == ["c"]

    def test_says_so_before_the_collector_has_recorded_it(self, table):
        """Given a collector that was killed when it had deleted a file."""
        first = table.ingest(rows("a")).transaction
        table.ingest(rows("b"))
        table.compact(all_files=True)
        for name in table.garbage(force=True):
            table._current().files.delete([name])

        with pytest.raises(VersionNotFound, match="were compacted and then deleted"):
            table.diff(first).to_arrow()

    def test_tells_damage_from_deletion(self, table):
        """A file that the newest version needs is missing."""
        first = table.ingest(rows("a")).transaction
        table.ingest(rows("b"))
        table._current().files.delete([each.filename for each in table.references()])

        with pytest.raises(sleeper.DataDamaged, match="is missing"):
            table.diff(first).to_arrow()

    @pytest.mark.parametrize(
        ("asked", "error", "says"),
        [
            ((3, 2), QueryInvalid, "3 is not before 2"),
            ((None,), QueryInvalid, "before must be"),
            ((-1,), VersionNotFound, "no transaction -1; the newest is 3"),
            ((4,), VersionNotFound, "no transaction 4"),
            ((1, 99), VersionNotFound, "no transaction 99"),
        ],
    )
    def test_of_versions_that_are_not_there_is_refused(self, table, asked, error, says):
        """The message says what there is."""
        table.ingest(rows("a"))
        table.ingest(rows("b"))

        with pytest.raises(error, match=says):
            table.diff(*asked)
        with pytest.raises(QueryInvalid, match="no column 'm'"):
            table.diff(1, columns=["m"])


def _below(kind):
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


def ids(found):
    return found.to_arrow()["id"].to_pylist()
