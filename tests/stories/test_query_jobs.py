"""Queries and exports are asked for by messages; workers write their rows where they are found."""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import BadRequest, JobNotFound, QueryInvalid
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.jobs.query_statuses import QueryState
from sleeper.workers.serve.job_services import Timers, timers_of
from tests.stories.test_ingest_jobs import instance, work

__all__ = ["instance"]


@pytest.fixture(autouse=True)
def five_rows(instance):
    """The table has rows 0001 to 0005."""
    instance.table("numbers").ingest([{"id": f"{n:04}", "n": n} for n in range(1, 6)])


def test_a_query_goes_from_queued_to_completed_and_its_rows_are_in_a_file(instance):
    """Given a range, when a worker runs, then its rows are at the location that is told."""
    query_id = instance.jobs.submit_query("numbers", range={"id": ("0002", "0004")})
    assert instance.jobs.query(query_id).state is QueryState.QUEUED

    assert work(instance, "query") == 1

    status = instance.jobs.query(query_id)
    assert status.state is QueryState.COMPLETED
    assert status.rows == 2
    (location,) = status.locations
    assert f"/query-{query_id}/" in location
    assert pq.read_table(location).to_pylist() == [{"id": "0002", "n": 2}, {"id": "0003", "n": 3}]


def test_a_key_and_fewer_columns(instance):
    """Given one key and no value field, then one row with its key alone is written."""
    query_id = instance.jobs.submit_query("numbers", key="0005", columns=[])

    work(instance, "query")

    (location,) = instance.jobs.query(query_id).locations
    assert pq.read_table(location).to_pylist() == [{"id": "0005"}]


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        (["0004", "0002", "0004", "none"], [2, 4]),
        (iter(["0003"]), [3]),
        (pa.array(["0005", "0001"]), [1, 5]),
        ([], []),
    ],
    ids=["list", "iterator", "array", "none"],
)
def test_many_keys(instance, keys, wanted):
    """Given whole keys in any form, then the row of each that there is is written once (QRY-8)."""
    query_id = instance.jobs.submit_query("numbers", keys=keys)

    work(instance, "query")

    assert instance.jobs.query_rows(query_id).to_arrow()["n"].to_pylist() == wanted


def test_keys_that_no_message_holds_are_refused(instance):
    """Given more keys than a message may have, then the reason says so and nothing is sent."""
    with pytest.raises(BadRequest, match="Split it into several"):
        instance.jobs.submit_query("numbers", keys=[f"{n:05}" for n in range(5_000)])

    assert list(instance.jobs.queries()) == []


def test_a_prefix_and_what_contradicts(instance):
    """Given how keys begin, then their rows are written; what contradicts is refused at once."""
    query_id = instance.jobs.submit_query("numbers", prefix={"id": "000"}, columns=["n"])

    work(instance, "query")

    (location,) = instance.jobs.query(query_id).locations
    assert pq.read_table(location).num_rows == 5
    for asked in (
        {"prefix": {"n": "1"}},
        {"keys": ["0001"], "prefix": {"id": "0"}},
        {"keys": "0001"},
        {"keys": [None]},
        {"key": "0001", "range": {"id": ("a", "b")}},
    ):
        with pytest.raises(QueryInvalid):
            instance.jobs.submit_query("numbers", **asked)


def test_a_query_that_is_delivered_twice_has_one_file(instance, tmp_path):
    """Given a worker that was killed before it deleted the message, then the rows are not two."""
    query_id = instance.jobs.submit_query("numbers", query_id="twice")
    work(instance, "query")
    (location,) = instance.jobs.query(query_id).locations
    instance.jobs.submit_query("numbers", query_id="twice")

    assert work(instance, "query") == 1

    folder = location.rpartition("/")[0]
    assert len(list((tmp_path / folder).glob("*.parquet"))) == 1
    assert pq.read_table(location).num_rows == 5
    assert instance.jobs.query(query_id).rows == 5


def test_a_query_of_an_unknown_table_fails_with_its_reason(instance):
    """Given upstream's JSON for a table that is not there, then the tracker says so."""
    message = {"queryId": "lost", "tableName": "nobody", "type": "Query", "regions": []}
    instance.jobs.send("query", json.dumps(message))

    work(instance, "query")

    status = instance.jobs.query("lost")
    assert status.state is QueryState.FAILED
    assert status.errors == ('Table could not be found with name: "nobody"',)
    assert not status.is_unfinished


def test_a_column_that_is_not_there_is_refused_before_it_is_sent(instance):
    """Given a misspelt value field, then nothing is sent."""
    with pytest.raises(QueryInvalid, match='no field "m"'):
        instance.jobs.submit_query("numbers", columns=["m"])


def test_an_export_writes_the_table_once(instance):
    """Given an export that is asked for twice, then its files are written once, complete."""
    export_id = instance.jobs.submit_export("numbers", "whole")
    work(instance, "export")
    first = instance.jobs.query(export_id, kind=JobKind.EXPORT)
    instance.jobs.submit_export("numbers", "whole")
    work(instance, "export")

    assert first.state is QueryState.COMPLETED
    assert pq.read_table(first.locations[0]).num_rows == 5
    second = instance.jobs.query(export_id, kind="export")
    assert (second.locations, second.rows) == (first.locations, 5)


def test_an_export_of_a_table_in_memory_is_written_once():
    """Given an instance in memory, whose exports are in a temp folder, then the second run finds it."""
    with sleeper.connect("memory://") as instance:
        instance.create_table("t", pa.schema([("id", pa.int64())]), row_keys=["id"]).ingest(
            [{"id": 1}]
        )
        for _ in range(2):
            instance.jobs.submit_export("t", "whole")
            work(instance, "export")

        status = instance.jobs.query("whole", kind="export")
        assert (status.state, status.rows, status.is_unfinished) == (QueryState.COMPLETED, 1, False)
        assert [*instance.jobs.dead_letters("export")] == []


def test_a_killed_export_leaves_nothing_once_it_is_done(instance):
    """Given the temp folder of a run that was killed, and another's, when it is run again, then
    the first is deleted.
    """
    table_id = instance.table("numbers").table_id
    above = Path(instance.jobs.results.export_location(table_id, "whole")).parent
    for name in (".whole.of-the-killed.unfinished", ".whole-2.of-another.unfinished"):
        (above / name / ".tmp-writes").mkdir(parents=True)

    instance.jobs.submit_export("numbers", "whole")
    work(instance, "export")

    assert {path.name for path in above.iterdir()} == {"whole", ".whole-2.of-another.unfinished"}


def test_queries_are_listed_by_state(instance):
    """Given one that is done and one that waits, then each is listed by its state."""
    done = instance.jobs.submit_query("numbers")
    work(instance, "query")
    waiting = instance.jobs.submit_query("numbers")

    listed = {
        state: [status.query_id for status in instance.jobs.queries(state=state)]
        for state in (QueryState.COMPLETED, QueryState.QUEUED)
    }

    assert listed == {QueryState.COMPLETED: [done], QueryState.QUEUED: [waiting]}


def test_an_unknown_query_is_not_found(instance):
    """Given no query of that id, then that is said."""
    with pytest.raises(JobNotFound, match="nothing is known of query 'nope'"):
        instance.jobs.query("nope")


def test_results_are_deleted_when_they_have_expired(instance, tmp_path, caplog):
    """Given results of nine days ago, when serve's timers run, then they are gone, and logged.

    What a user exported stays, however old it is (QRY-10, EXP-3).
    """
    caplog.set_level("INFO")
    instance.table("numbers").export(tmp_path / "mine")
    old = [instance.jobs.submit_query("numbers"), instance.jobs.submit_export("numbers")]
    work(instance, "query")
    work(instance, "export")
    locations = [
        instance.jobs.query(old[0]).locations[0],
        instance.jobs.query(old[1], kind=JobKind.EXPORT).locations[0],
    ]
    before = time.time() - 9 * 86_400
    for path in [*tmp_path.rglob("*.parquet"), *tmp_path.rglob("_SUCCESS")]:
        os.utime(path, (before, before))
    new = instance.jobs.submit_query("numbers", key="0001")
    work(instance, "query")

    Timers(timers_of(instance, lambda: True), instance.clock).run_due()
    assert all(Path(each).exists() for each in locations)  # it is paused
    Timers(timers_of(instance, lambda: False), instance.clock).run_due()

    assert not [*Path(locations[1]).glob("*"), *Path(locations[0]).parent.glob("*")]
    assert "deleted 2 results that had expired" in caplog.text
    assert len([*(tmp_path / "mine").glob("*.parquet")]) == 1
    assert Path(instance.jobs.query(new).locations[0]).exists()
    assert instance.table("numbers").query().to_arrow().num_rows == 5


class TestAnIdThatAnotherTableHad:
    """The results of a query are found by its id alone, so an id is for one table (QRY-10)."""

    @pytest.fixture(autouse=True)
    def letters(self, instance):
        """Another table, with one row."""
        table = instance.create_table(
            "letters", instance.table("numbers").arrow_schema, row_keys=["id"]
        )
        table.ingest([{"id": "a", "n": 26}])

    def message(self, query_id: str, table: str, **fields: object) -> str:
        """A query of all rows, as others send it."""
        query = {"queryId": query_id, "tableName": table, "type": "Query", "regions": [{}]}
        return json.dumps(query | fields)

    @pytest.mark.parametrize("destination", ["S3", "NoResultsOutput"])
    @pytest.mark.parametrize("is_renamed", [False, True])
    def test_is_rejected_and_the_first_querys_rows_stay(self, instance, destination, is_renamed):
        """Given a worker of another process and day, then the reason says what to do."""
        instance.jobs.send("query", self.message("q", "numbers"))
        work(instance, "query")
        if is_renamed:
            instance.table("numbers").rename("digits")
        later = sleeper.connect(instance.url)
        publisher = {"resultsPublisherConfig": {"destination": destination}}
        later.jobs.send("query", self.message("q", "letters", **publisher))

        work(later, "query")

        (status,) = later.jobs.queries(table="letters")
        assert status.state is QueryState.FAILED
        assert "'q' was used for a query of another table" in status.errors[0]
        assert "another queryId" in status.errors[0]
        (first,) = later.jobs.queries(table="digits" if is_renamed else "numbers")
        assert first.state is QueryState.COMPLETED
        assert pq.read_table(first.locations[0]).num_rows == 5

    def test_is_known_by_the_results_where_the_tracker_has_forgotten(self, instance):
        """Given a tracker that keeps nothing, then the files tell."""
        instance.jobs.submit_query("numbers", query_id="q")
        work(instance, "query")
        forgotten = instance.now() + dt.timedelta(days=9)
        assert instance.jobs.stores.tracker.delete_expired(forgotten)
        instance.jobs.send("query", self.message("q", "letters"))

        work(instance, "query")

        (status,) = instance.jobs.queries(table="letters")
        assert "'q' was used" in status.errors[0]

    def test_is_known_by_the_tracker_where_there_are_no_files(self, instance):
        """Given a first query whose rows went elsewhere, then the second is rejected too."""
        nothing = {"resultsPublisherConfig": {"destination": "NoResultsOutput"}}
        instance.jobs.send("query", self.message("q", "letters", **nothing))
        work(instance, "query")
        instance.jobs.send("query", self.message("q", "numbers"))

        work(instance, "query")

        (status,) = instance.jobs.queries(table="numbers")
        assert "'q' was used" in status.errors[0]

    def test_is_refused_when_it_is_submitted(self, instance):
        """Given an id that is chosen, then the caller hears at once, and nothing is sent."""
        instance.jobs.submit_query("numbers", query_id="q")
        work(instance, "query")

        with pytest.raises(QueryInvalid, match="'q' was used for a query of another table"):
            instance.jobs.submit_query("letters", query_id="q")

        assert list(instance.jobs.queries(table="letters")) == []

    def test_is_free_where_the_other_query_was_rejected(self, instance):
        """Given a first query that was never begun, then the second has its own rows."""
        instance.jobs.send("query", self.message("q", "numbers", regions=[{"n": {}}]))
        instance.jobs.send("query", self.message("q", "letters"))

        work(instance, "query")

        (status,) = instance.jobs.queries(table="letters")
        assert pq.read_table(status.locations[0]).to_pylist() == [{"id": "a", "n": 26}]

    def test_a_message_that_comes_again_is_answered_as_before(self, instance):
        """Given another try of the other table between, then its own table still has its rows."""
        for table in ("numbers", "letters", "numbers", "letters"):
            instance.jobs.send("query", self.message("q", table))
            work(instance, "query")

        (status,) = instance.jobs.queries(table="numbers")
        assert status.state is QueryState.COMPLETED
        assert status.rows == 5
        (folder,) = Path(instance.url, "query_results").iterdir()
        assert folder.name == "query-q"
        assert len(list(folder.iterdir())) == 1

    @pytest.mark.parametrize(
        "query_id", ["a/b", ".", "..", ".tmp-a", "a\0b", "a\nb", "x" * 201, "é" * 101]
    )
    def test_an_id_that_names_no_folder_is_rejected(self, instance, query_id):
        """Queries and exports, before anything is read."""
        instance.jobs.send("query", self.message(query_id, "numbers"))
        export = json.dumps({"exportId": query_id, "tableName": "numbers"})
        instance.jobs.send("export", export)

        work(instance, "query")
        work(instance, "export")

        for kind in ("query", "export"):
            status = instance.jobs.query(query_id, kind=kind)
            assert "names a folder of results" in status.errors[0]

    @pytest.mark.parametrize("query_id", ["x" * 200, "é" * 100, "...", "a b", "-x"])
    def test_any_other_id_names_one(self, instance, query_id):
        """The longest ones too, for queries and for exports."""
        instance.jobs.submit_query("numbers", query_id=query_id)
        instance.jobs.submit_export("numbers", export_id=query_id)

        work(instance, "query")
        work(instance, "export")

        for kind in ("query", "export"):
            assert instance.jobs.query(query_id, kind=kind).state is QueryState.COMPLETED
