"""Wrong arguments of `instance.jobs` are refused as bad input, and nothing is sent (ING-10)."""

from __future__ import annotations

import re
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import BadRequest, TableNotFound
from sleeper.instance.instance import Instance
from tests.stories.test_ingest_jobs import SCHEMA, written

LONG = "x" * 1_001


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Instance:
    """An instance with a table, where nothing was submitted."""
    opened = sleeper.connect(tmp_path_factory.mktemp("jobs") / "instance", create=True)
    opened.create_table("numbers", SCHEMA, row_keys=["id"])
    return opened


def path(instance: Instance) -> Path:
    """A file that could be ingested."""
    return written(Path(instance.url).parent / "a.parquet", 1)


NO_FILES: list[Any] = [
    None,
    [],
    (),
    "",
    " ",
    [""],
    [None],
    [1],
    7,
    b"a",
    [b"a"],
    {"a": 1},
    1.5,
]
NO_TABLES: list[Any] = [None, "", " ", 7, b"numbers", ["numbers"], LONG, "away", "a\0b"]
NO_IDS: list[Any] = ["", " \t", 7, b"a", ["a"], LONG]
NO_KINDS: list[Any] = [None, "", "nothing", "INGEST", 7, ["ingest"]]


def refused(call: Any, *words: str) -> None:
    """Check that a call is refused with these words, in a text of reasonable length."""
    with pytest.raises((BadRequest, TableNotFound)) as caught:
        call()
    assert all(re.search(word, str(caught.value)) for word in words), caught.value
    assert len(str(caught.value)) < 2_000


@pytest.mark.parametrize("submit", ["submit_ingest", "submit_bulk_import", "submit_files"])
@pytest.mark.parametrize("files", NO_FILES, ids=repr)
def test_what_is_no_file(instance, submit, files):
    """Given no files, or what is no path, then that is said."""
    refused(lambda: getattr(instance.jobs, submit)("numbers", files), "files")


@pytest.mark.parametrize("table", NO_TABLES, ids=lambda each: repr(each)[:20])
def test_what_is_no_table(instance, table):
    """Given what is no table's name, or that of none, then nothing is sent."""
    jobs, file = instance.jobs, path(instance)
    for submit in (jobs.submit_ingest, jobs.submit_bulk_import, jobs.submit_files):
        refused(lambda submit=submit: submit(table, file), "[Tt]able")
    refused(lambda: jobs.submit_query(table), "table")
    refused(lambda: jobs.submit_export(table), "[Tt]able")
    if table is not None:
        refused(lambda: list(jobs.list(table=table)), "table")
        refused(lambda: list(jobs.queries(table=table)), "table")


@pytest.mark.parametrize("given", NO_IDS, ids=lambda each: repr(each)[:20])
def test_what_is_no_id(instance, given):
    """Given what is no text, blank, or too long, then it is refused by the name of its argument."""
    jobs, file = instance.jobs, path(instance)
    refused(lambda: jobs.submit_ingest("numbers", file, given), "job_id ")
    refused(lambda: jobs.submit_bulk_import("numbers", file, given), "job_id ")
    refused(lambda: jobs.submit_query("numbers", query_id=given), "query_id ")
    refused(lambda: jobs.submit_export("numbers", given), "export_id ")
    for ask in (jobs.job, jobs.query, lambda each: jobs.wait(each, rest=lambda: False)):
        refused(lambda ask=ask: ask(given), "id")
    refused(lambda: list(jobs.list(task_id=given)), "task_id")


@pytest.mark.parametrize(
    "given", ["x" * 251, "é" * 101, "a/b", "..", "a\0b"], ids=lambda each: each[:5]
)
def test_what_names_no_folder_of_results(instance, given):
    """Given an id that cannot be a folder, then a query and an export are refused."""
    refused(lambda: instance.jobs.submit_query("numbers", query_id=given), "queryId", "folder")
    refused(lambda: instance.jobs.submit_export("numbers", given), "exportId", "folder")


@pytest.mark.parametrize("kind", NO_KINDS, ids=repr)
def test_what_is_no_kind(instance, kind):
    """Given an unknown kind, state or queue, then those that there are are named."""
    jobs = instance.jobs
    refused(lambda: jobs.job("a", kind=kind), "kind", "compaction")
    refused(lambda: jobs.list(kind=kind), "kind", "ingest")
    refused(lambda: jobs.query("a", kind=kind), "query or export")
    refused(lambda: jobs.queries(kind=kind), "query or export")
    refused(lambda: jobs.wait("a", kind=kind, rest=lambda: False), "kind")
    for of_queue in (jobs.dead_letters, jobs.redrive, jobs.delete_dead_letters):
        refused(lambda of_queue=of_queue: of_queue(kind), "queue", "bulk-import")
    refused(lambda: jobs.send(kind, "{}"), "queue")
    if kind is not None:
        refused(lambda: jobs.list(state=kind), "state", "FINISHED")
        refused(lambda: jobs.queries(state=kind), "state", "COMPLETED")
        refused(lambda: jobs.tasks(kind), "kind")


@pytest.mark.parametrize(
    "time", ["2026-06-01", 0, date(2026, 6, 1), datetime(2026, 6, 1)], ids=repr
)
def test_what_is_no_time(instance, time):
    """Given no time, or one without a time zone, then that is said."""
    refused(lambda: instance.jobs.list(since=time), "since", "time zone")
    refused(lambda: instance.jobs.list(until=time), "until", "time zone")


def test_other_wrong_arguments(instance):
    """Given limits, messages, columns and settings of a wrong type, then each is named."""
    jobs, file = instance.jobs, path(instance)
    for limit in (0, -1, 1.5, "7", None, True, 10**9):
        refused(lambda limit=limit: jobs.dead_letters("ingest", limit=limit), "limit")
    for ids in ("abc", 7, [7], b"a", {"a": 1}):
        refused(lambda ids=ids: jobs.redrive("ingest", ids), "message_ids")
        refused(lambda ids=ids: jobs.delete_dead_letters("ingest", ids), "message_ids")
        if ids != {"a": 1}:
            refused(lambda ids=ids: jobs.retry_files(ids), "job_ids")
    for message in (None, 7, b"{}", {"id": "a"}, ""):
        refused(lambda message=message: jobs.send("ingest", message), "message")
    for columns in ("n", 7, [7], {"n": 1}):
        refused(lambda columns=columns: jobs.submit_query("numbers", columns=columns), "columns")
    refused(lambda: jobs.submit_query("numbers", columns=["away"]), "away")
    for conf in ("a=b", [("a", "b")], {"a": 1}, {1: "a"}):
        refused(
            lambda conf=conf: jobs.submit_bulk_import("numbers", file, spark_conf=conf),
            "spark_conf",
        )
    refused(lambda: jobs.submit_bulk_import("numbers", file, queue="ingest"), "no queue for bulk")


@pytest.mark.parametrize(
    "values",
    [pa.array([1]), pa.array(["a", None]), pa.array([b"a"]), pa.array([[1]])],
    ids=lambda each: str(each.type),
)
def test_an_array_of_values_has_no_rows(instance, values):
    """Given one Arrow array, then `ingest` says that it wants columns with names (ING-1)."""
    refused(lambda: instance.table("numbers").ingest(values), "named columns", "record batch")


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(1)], ids=str)
def test_bytes_are_no_keys_of_a_text_field(instance, kind):
    """Given an Arrow array of bytes, then it is refused as each of its values is."""
    table = instance.table("numbers")
    refused(lambda: table.query(key=b"a").to_arrow(), "id")
    refused(lambda: table.query(keys=pa.array([b"a"], kind)).to_arrow(), "bytes", "text")


def test_nothing_was_sent(instance):
    """Given all of these, then no queue and no tracker has anything."""
    assert not any(depth.ready for depth in instance.jobs.queue_depths().values())
    assert list(instance.jobs.list()) == []
