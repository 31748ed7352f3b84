"""Upstream's own Python client, unmodified, with an instance in AWS and its workers.

It runs in a process of its own, with the interpreter `.venv/bin/python` of its folder, on each set
of servers.
"""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import threading
import uuid
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.model.jobs.query_statuses import QueryState
from sleeper.model.jobs.statuses import JobState
from sleeper.workers.kinds.batcher import run_batcher
from sleeper.workers.open_worker import open_worker
from sleeper.workers.stop_signal import StopSignal
from sleeper.workers.worker import WorkerSettings
from tests.contracts.s3_server import REGION
from tests.contracts.servers.aws_sets import aws_set
from tests.patience import PATIENCE_S
from tests.stories.test_ingest_jobs import work

__all__ = ["aws_set"]

FOLDER = Path(os.environ.get("SLEEPER_UPSTREAM_CLIENT", ""))
CALLS = Path(__file__).with_name("upstream_client.py")
SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64())])
ROWS = [{"key": f"k{n}", "n": n} for n in range(1, 6)]


class Client:
    """A process that calls upstream's client."""

    def __init__(self, instance_id, log):
        environment = {
            **os.environ,
            "AWS_DEFAULT_REGION": REGION,
            "PYTHONPATH": str(FOLDER / "src"),
        }
        self._process = subprocess.Popen(
            [FOLDER / ".venv" / "bin" / "python", CALLS, instance_id],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            bufsize=1,
            env=environment,
        )

    def started(self):
        """Return what it told when it looked for its instance."""
        return self._answer()

    def call(self, method, **arguments):
        """Call a method; return what it did, or raise a RuntimeError with what it raised."""
        self._process.stdin.write(json.dumps([method, arguments]) + "\n")
        answer = self._answer()
        if "raised" in answer:
            raise RuntimeError(f"{answer['raised']}: {answer['told']}")
        return answer["returned"]

    def end(self):
        """End the process."""
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.kill()
        self._process.wait()

    def _answer(self):
        impatient = threading.Timer(PATIENCE_S, self._process.kill)
        impatient.start()
        try:
            line = self._process.stdout.readline()
        finally:
            impatient.cancel()
        assert line, "the client was killed, or waited for too long"
        return json.loads(line)


@pytest.fixture(scope="module")
def everywhere(aws_set):
    """An instance in AWS. Tests have tables and ids of their own."""
    return sleeper.create_instance(f"aws://docs-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def table():
    """The name of a table of this test, and the beginning of its ids."""
    return f"numbers-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def instance(everywhere, table):
    """An instance in AWS, with that table."""
    everywhere.create_table(table, SCHEMA, row_keys=["key"])
    return everywhere


@contextmanager
def client_of(instance_id, log_path):
    with log_path.open("w") as log:
        made = Client(instance_id, log)
        try:
            yield made
        finally:
            made.end()


@pytest.fixture(scope="module")
def client(everywhere, tmp_path_factory):
    """The client: it knows the instance's id."""
    log = tmp_path_factory.mktemp("client") / "client.log"
    with client_of(everywhere.properties.id, log) as made:
        assert made.started() == {"returned": None}
        yield made


@contextmanager
def worker_of_queries(instance):
    """Answer queries until the block ends."""
    stop = StopSignal()
    worker = open_worker(instance, "query", WorkerSettings(wait_s=0.2), stop)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def folder(instance, table):
    """Bucket and folder of a file with all rows, `all.parquet`, without a scheme."""
    bucket = instance.properties.text("sleeper.data.bucket")
    body = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), body)
    s3 = boto3.client("s3", region_name=REGION)
    s3.put_object(Bucket=bucket, Key=f"june/{table}/all.parquet", Body=body.getvalue())
    return f"{bucket}/june/{table}"


def test_an_instance_that_is_not_there_is_not_found(aws_set, tmp_path):
    """The client looks for a bucket of properties by the id, and finds none."""
    with client_of("nobody", tmp_path / "client.log") as client:
        assert client.started()["raised"] == "NoSuchBucket"


def test_rows_and_files_are_ingested(instance, client, table, folder):
    """Its batch writer, one batch, a file and a folder of files that lie in a bucket."""
    client.call(
        "write_single_batch", table_name=table, rows_to_write=ROWS[:1], job_id=f"{table}-one"
    )
    counted = client.call("write_batches", table_name=table, batches=[ROWS[1:2], ROWS[2:4]])
    assert work(instance) == 2
    assert counted == 3
    assert instance.table(table).query().to_pylist() == ROWS[:4]

    files = {f"{table}-file": f"{folder}/all.parquet", f"{table}-folder": f"{folder}/"}
    for job_id, path in files.items():
        client.call("ingest_parquet_files_from_s3", table_name=table, files=[path], job_id=job_id)
    assert work(instance) == 2

    assert {instance.jobs.job(each).state for each in (f"{table}-one", *files)} == {
        JobState.FINISHED
    }
    assert instance.jobs.job(f"{table}-folder").furthest_run.rows_written == 5
    assert instance.table(table).query().to_arrow().num_rows == 14


def test_a_job_without_rows_is_rejected(instance, client, table):
    """The file that the client uploads for no rows has no columns."""
    client.call("write_single_batch", table_name=table, rows_to_write=[], job_id=f"{table}-empty")

    work(instance)

    assert instance.jobs.job(f"{table}-empty").state is JobState.FAILED


def test_bulk_imports_of_every_platform(instance, client, table, folder):
    """Each has a queue of its own; none is set up, so the worker does them all."""
    for number, platform in enumerate(("EMRServerless", "EMR", "PersistentEMR", "EKS")):
        client.call(
            "bulk_import_parquet_files_from_s3",
            table_name=table,
            files=[f"{folder}/all.parquet"],
            id=f"{table}-{number}",
            platform=platform,
            platform_spec={"sleeper.table.bulk.import.emr.instance.architecture": "arm64"},
            class_name="sleeper.bulkimport.runner.dataframelocalsort."
            "BulkImportDataframeLocalSortDriver",
        )

    assert work(instance, "bulk-import") == 4

    states = {instance.jobs.job(f"{table}-{number}").state for number in range(4)}
    assert states == {JobState.FINISHED}
    assert instance.table(table).query().to_arrow().num_rows == 20


def test_files_for_the_batcher(instance, client, table, folder):
    """They wait, then a job is made of them."""
    client.call("submit_to_ingest_batcher", table_name=table, files=[folder])

    assert work(instance, "batcher") == 1

    assert run_batcher(instance.jobs, datetime.now(UTC) + timedelta(days=1)).jobs == 1
    assert work(instance, "bulk-import") == 1
    assert instance.table(table).query().to_pylist() == ROWS


def test_an_export(instance, client, table):
    """By the table's name, or by its id."""
    instance.table(table).ingest(ROWS)
    client.call("bulk_export", export_id=f"{table}-by-name", table_name=table)
    client.call("bulk_export", export_id=f"{table}-by-id", table_id=instance.table(table).table_id)

    assert work(instance, "export") == 2

    exports = {each.query_id: each for each in instance.jobs.queries(kind="export", table=table)}
    assert {each.state for each in exports.values()} == {QueryState.COMPLETED}
    assert {each.rows for each in exports.values()} == {5}


def test_rows_are_found_by_keys_and_by_ranges(instance, client, table):
    """The client waits for the state of its query, and reads the files of its rows."""
    instance.table(table).ingest(ROWS)

    with worker_of_queries(instance):
        exact = client.call("exact_key_query", table_name=table, keys={"key": ["k2", "k4"]})
        regions = [{"key": ["k4", None]}, {"key": ["k1", False, "k2", True]}]
        ranges = client.call("range_key_query", table_name=table, regions=regions)
        none = client.call("exact_key_query", table_name=table, keys=[{"key": "k9"}])
        in_base64 = [
            {"key": [base64.b64encode(each.encode()).decode() for each in ("k2", "k4")]},
            {"strings_base64_encoded": True},
        ]
        encoded = client.call(
            "query_by_sqs", query_id=f"{table}-mine", table_name=table, regions=[in_base64]
        )

    assert exact == [ROWS[1], ROWS[3]]
    assert ranges == [ROWS[1], *ROWS[3:]]
    assert none == []
    assert encoded == ROWS[1:3]
    assert instance.jobs.query(f"{table}-mine").state is QueryState.COMPLETED


def test_keys_of_several_fields_and_of_bytes(instance, client, table):
    """Several fields in one key are one region; several lists are asked one by one."""
    schema = pa.schema([("at", pa.int64()), ("raw", pa.binary()), ("v", pa.string())])
    rows = [{"at": n, "raw": bytes([n]), "v": str(n)} for n in range(1, 4)]
    instance.create_table(f"{table}-pairs", schema, row_keys=["at", "raw"]).ingest(rows)

    with worker_of_queries(instance):
        together = client.call(
            "exact_key_query", table_name=f"{table}-pairs", keys=[{"at": 1, "raw": "AQ=="}]
        )
        apart = client.call(
            "exact_key_query", table_name=f"{table}-pairs", keys={"at": [2], "raw": ["AQ=="]}
        )

    assert together == [{"at": 1, "raw": {"base64": "AQ=="}, "v": "1"}]
    assert [row["v"] for row in apart] == ["1", "2"]


def test_a_query_that_fails_is_told_at_once(instance, client, table):
    """The client raises at FAILED, and does not wait for two minutes."""
    with worker_of_queries(instance), pytest.raises(RuntimeError, match="Query failed"):
        client.call("exact_key_query", table_name="nobody", keys={"key": ["k1"]})


@pytest.mark.parametrize(
    ("method", "keys"),
    [
        ("web_socket_exact_key_query", {"key": ["k1"]}),
        ("web_socket_range_key_query", [{"key": {"min": "k1", "max": "k2"}}]),
    ],
)
def test_there_is_no_web_socket(client, table, method, keys):
    """The instance names none, and the client says which property is missing."""
    with pytest.raises(RuntimeError, match=r"KeyError: 'sleeper\.query\.websocket\.api\.url'"):
        client.call(method, table_name=table, keys=keys)
