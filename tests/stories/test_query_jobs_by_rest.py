"""Queries and exports that workers run, asked for and followed by a client of a server (QRY-8)."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import BadRequest, DataDamaged, JobNotFound, QueryInvalid, TableNotFound
from sleeper.interfaces.rest.app import make_app
from sleeper.model.jobs.query_statuses import QueryState
from sleeper.model.jobs.statuses import JobState
from tests.patience import PATIENCE_S
from tests.stories.test_ingest_jobs import work
from tests.unit.interfaces.rest.running_server import running_server

SCHEMA = pa.schema(
    [
        *(("name", pa.string()), ("day", pa.date32()), ("n", pa.int64())),
        ("took", pa.duration("us")),
    ]
)
DAY = dt.date(2026, 1, 1)
ROWS = [
    {
        "name": f"n{i}",
        "day": dt.date(2026, 1, 1 + i),
        "n": i,
        "took": dt.timedelta(seconds=i),
    }
    for i in range(5)
]


@pytest.fixture
def instance(tmp_path):
    with sleeper.connect(tmp_path / "instance", create=True) as opened:
        yield opened


@pytest.fixture
def url(instance):
    table = instance.create_table("t/ü", SCHEMA, row_keys=["name", "day"])
    table.ingest(ROWS)
    with running_server(make_app(instance)) as url:
        yield url


@pytest.fixture
def jobs(url):
    with sleeper.connect(url, token="unused") as remote:
        yield remote.jobs


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({}, ROWS),
        ({"key": "n1"}, ROWS[1:2]),
        ({"key": ("n1", dt.date(2026, 1, 2))}, ROWS[1:2]),
        ({"key": {"day": dt.date(2026, 1, 3)}}, ROWS[2:3]),
        (
            {"keys": [("n3", dt.date(2026, 1, 4)), ("n1", dt.date(2026, 1, 2)), ("n1", DAY)]},
            [ROWS[1], ROWS[3]],
        ),
        ({"keys": [{"name": "n0", "day": DAY}] * 2}, ROWS[:1]),
        ({"keys": []}, []),
        ({"range": {"name": ("n1", "n3")}}, ROWS[1:3]),
        ({"regions": [{"name": ("n0", "n1")}, {"name": ("n4", None)}]}, [ROWS[0], ROWS[4]]),
        ({"prefix": {"name": "n"}}, ROWS),
        ({"key": "none"}, []),
    ],
    ids=str,
)
def test_a_query_is_submitted_followed_and_read(instance, jobs, asked, wanted):
    """Given a client of a server, when a worker has run its query, then it reads the rows."""
    query_id = jobs.submit_query("t/ü", **asked)
    assert jobs.query(query_id) == instance.jobs.query(query_id)
    assert jobs.query(query_id).state is QueryState.QUEUED

    work(instance, "query")

    status = jobs.query(query_id)
    assert status == instance.jobs.query(query_id)
    assert (status.state, status.rows) == (QueryState.COMPLETED, len(wanted))
    assert [*jobs.queries()] == [*instance.jobs.queries()] == [status]
    rows = jobs.query_rows(query_id)
    assert rows.transaction == instance.table("t/ü").refresh()
    assert rows.schema.metadata is None
    assert rows.to_pylist() == wanted
    assert instance.jobs.query_rows(query_id).to_pylist() == wanted


def test_columns_and_ids_are_the_callers(instance, jobs):
    """Keys come along, an id names the query, and dots and slashes stay in it."""
    query_id = "../of .. me"
    assert jobs.submit_query("t/ü", columns=["n"], query_id="mine") == "mine"
    with pytest.raises(QueryInvalid):
        jobs.submit_query("t/ü", query_id=query_id + "/x")

    work(instance, "query")

    assert jobs.query_rows("mine", table="t/ü").to_pylist() == [
        {name: row[name] for name in ("name", "day", "n")} for row in ROWS
    ]
    with pytest.raises(JobNotFound, match=r"of \.\. me"):
        jobs.query(query_id)


def test_a_client_waits_for_what_it_asked_for(instance, jobs):
    """As `wait` of the instance itself: until it has ended, or has waited enough."""
    query_id = jobs.submit_query("t/ü", key="n1")
    looks = []

    def rest():
        looks.append(1)
        if len(looks) == 3:
            work(instance, "query")
        return len(looks) < 6

    assert jobs.wait(query_id, kind="query", rest=rest).state is JobState.FINISHED
    assert len(looks) == 3
    other = jobs.submit_query("t/ü", key="n1")
    assert jobs.wait(other, kind="query", rest=lambda: False).state is JobState.ACCEPTED


def test_an_export_is_submitted_and_followed(instance, jobs):
    """Its files are where the instance is, so the client learns where."""
    export_id = jobs.submit_export("t/ü", "whole")

    work(instance, "export")

    status = jobs.query(export_id, kind="export")
    assert (status.state, status.rows) == (QueryState.COMPLETED, 5)
    assert pq.read_table(status.locations[0]).num_rows == 5
    assert [*jobs.queries(kind="export", table="t/ü", state="COMPLETED")] == [status]
    assert [*jobs.queries(kind="export", state="FAILED")] == [*jobs.queries()] == []


def test_rows_come_in_every_form(instance, url, jobs):
    """As those of a query that is answered at once."""
    jobs.submit_query("t/ü", range={"name": ("n0", "n2")}, query_id="q")
    work(instance, "query")
    where = f"{url}/sleeper/queries/q/rows"

    found = httpx.get(where, timeout=PATIENCE_S)
    assert found.json()["rows"] == [
        {"name": "n0", "day": "2026-01-01", "n": 0, "took": "PT0S"},
        {"name": "n1", "day": "2026-01-02", "n": 1, "took": "PT1S"},
    ]
    csv = httpx.get(where, params={"format": "csv"}, timeout=PATIENCE_S)
    assert csv.text.count("\n") == 3
    lines = httpx.get(where, headers={"Accept": "application/jsonl"}, timeout=PATIENCE_S)
    assert len(lines.text.splitlines()) == 2


def test_rows_that_are_not_there_are_told(instance, jobs):
    """Before a worker ran, after a failure, after they expired, and where they went elsewhere."""
    jobs.submit_query("t/ü", query_id="waits")
    with pytest.raises(BadRequest, match="'waits' is QUEUED"):
        jobs.query_rows("waits")
    work(instance, "query")
    (location,) = jobs.query("waits").locations
    Path(location).write_bytes(b"no Parquet")
    with pytest.raises(DataDamaged, match="Delete the file"):
        jobs.query_rows("waits").to_pylist()
    Path(location).unlink()
    with pytest.raises(JobNotFound, match="there no longer"):
        jobs.query_rows("waits")
    asked = {"type": "Query", "regions": [], "queryId": "lost", "tableName": "none"}
    instance.jobs.send("query", json.dumps(asked))
    nothing = {"resultsPublisherConfig": {"destination": "NoResultsOutput"}}
    instance.jobs.send(
        "query", json.dumps({**asked, "queryId": "none", "tableName": "t/ü", **nothing})
    )
    work(instance, "query")
    for query_id, words in ("lost", "is FAILED .Table could not"), ("none", "went to nowhere"):
        with pytest.raises(BadRequest, match=words):
            jobs.query_rows(query_id)
    with pytest.raises(JobNotFound, match="nothing is known of query 'no'"):
        jobs.query_rows("no")


def test_mistakes_are_refused_before_anything_is_sent(instance, url, jobs):
    """By the client where it knows, else by the server."""
    for asked in (
        {"key": 5},
        {"keys": ["n1"]},
        {"keys": [("n1", DAY)], "prefix": {"name": "n"}},
        {"range": {"n": (1, 2)}},
        {"columns": ["no"]},
        {"columns": "n"},
    ):
        with pytest.raises(BadRequest):
            jobs.submit_query("t/ü", **asked)
    with pytest.raises(TableNotFound):
        jobs.submit_query("no")
    with pytest.raises(BadRequest, match="state is 'DONE'"):
        jobs.queries(state="DONE")
    with pytest.raises(BadRequest, match="kind is 'ingest'"):
        jobs.query("q", kind="ingest")
    regions = [{"name": [f"n{i}", f"n{i}x"]} for i in range(10_001)]
    where = f"{url}/sleeper/tables/t%2F%C3%BC/queries"
    assert httpx.post(where, json={"regions": regions}, timeout=PATIENCE_S).status_code == 400
    keys = [[f"n{i}", "2026-01-01"] for i in range(10_001)]
    assert httpx.post(where, json={"keys": keys}, timeout=PATIENCE_S).status_code == 400
    assert httpx.post(where, json={"keys": None}, timeout=PATIENCE_S).status_code == 400
    assert httpx.post(where, json={"where": "n = 1"}, timeout=PATIENCE_S).status_code == 400
    assert [*instance.jobs.queries()] == []
