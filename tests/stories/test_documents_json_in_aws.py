"""Plain boto3 in the documents' own JSON: what upstream's clients send, and where they look."""

from __future__ import annotations

import io
import json
import os
import uuid
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import boto3
import javaproperties
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.model.jobs.messages import ReceivedMessage
from sleeper.model.jobs.query_statuses import QueryState
from sleeper.model.jobs.statuses import JobState
from sleeper.storage.aws import clients
from sleeper.storage.aws.clients import aws_client
from sleeper.workers.kinds.batcher import run_batcher
from sleeper.workers.kinds.query import QueryReader
from tests.contracts.fault_proxy import fault_proxy
from tests.contracts.s3_server import CREDENTIALS, REGION, s3_server
from tests.stories.test_ingest_jobs import work

__all__ = ["s3_server"]

SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64()), ("raw", pa.binary())])
ROWS = [{"key": f"k{n}", "n": n, "raw": bytes([n])} for n in range(1, 6)]
BULK_IMPORT_QUEUES = {
    "EMR": "sleeper.bulk.import.emr.job.queue.url",
    "PersistentEMR": "sleeper.bulk.import.persistent.emr.job.queue.url",
    "EMRServerless": "sleeper.bulk.import.emr.serverless.job.queue.url",
    "EKS": "sleeper.bulk.import.eks.job.queue.url",
}


@dataclass(frozen=True)
class Client:
    """What a program has that knows the documents, an instance's properties, and no Sleeper."""

    s3: Any
    sqs: Any
    dynamodb: Any
    properties: dict[str, str]
    table: str
    job: str
    query: str

    def send(self, queue: str, body: object) -> None:
        """Send a message to the queue that a property names."""
        text = body if isinstance(body, str) else json.dumps(body)
        self.sqs.Queue(self.properties[queue]).send_message(MessageBody=text)

    def upload(self, name: str, rows: list[dict]) -> str:
        """Upload a Parquet file as the batch writer does; return bucket and key, without scheme."""
        body = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), body)
        bucket = self.properties["sleeper.data.bucket"]
        key = f"for_ingest/{self.table}/{name}"
        self.s3.Object(bucket, key).put(Body=body.getvalue())
        return f"{bucket}/{key}"

    def ask(self, query_id: str, *regions: dict, **more: object) -> None:
        """Send a query of its table."""
        query = {"tableName": self.table, "queryId": query_id, "type": "Query"}
        self.send("sleeper.query.queue.url", {**query, "regions": list(regions), **more})

    def state(self, query_id: str) -> dict:
        """Return the item of a query in the table of states; empty without one."""
        table = self.dynamodb.Table(self.properties["sleeper.query.tracker.table.name"])
        found = table.get_item(Key={"queryId": query_id, "subQueryId": "-"})
        return found.get("Item", {})

    def rows(self, query_id: str) -> list[dict]:
        """Return the rows of the Parquet files of a query."""
        bucket = self.s3.Bucket(self.properties["sleeper.query.results.bucket"])
        files = list(bucket.objects.filter(Prefix=f"query-{query_id}"))
        assert all(each.key.endswith(".parquet") for each in files)
        bodies = [io.BytesIO(each.get()["Body"].read()) for each in files]
        return [row for body in bodies for row in pq.read_table(body).to_pylist()]


@pytest.fixture(scope="module")
def endpoint(s3_server):
    """Where this process finds AWS. Clients take a while to make, so all tests share them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clients, "_clients", {})
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        wanted = {**CREDENTIALS, "AWS_ENDPOINT_URL": s3_server.endpoint, "AWS_REGION": REGION}
        for name, value in {**wanted, "NO_PROXY": "127.0.0.1"}.items():
            patch.setenv(name, value)
        yield s3_server.endpoint


@pytest.fixture(scope="module")
def everywhere(endpoint):
    """An instance in AWS. Tests have tables and ids of their own."""
    return sleeper.create_instance(f"aws://docs-{uuid.uuid4().hex[:8]}")


@pytest.fixture(scope="module")
def services(everywhere, endpoint):
    """What a program has that knows the instance's id: services, and what properties say."""
    made = {"region_name": REGION, "endpoint_url": endpoint}
    s3, sqs, dynamodb = (boto3.resource(name, **made) for name in ("s3", "sqs", "dynamodb"))
    account = boto3.client("sts", **made).get_caller_identity()["Account"]
    config = f"sleeper-{everywhere.properties.id}-config-{account}"
    text = s3.Object(config, "instance.properties").get()["Body"].read().decode()
    return {"s3": s3, "sqs": sqs, "dynamodb": dynamodb, "properties": javaproperties.loads(text)}


@pytest.fixture
def client(services):
    """Another program, with a table and ids for this test."""
    name = uuid.uuid4().hex[:8]
    return Client(**services, table=f"numbers-{name}", job=f"job-{name}", query=f"query-{name}")


@pytest.fixture
def instance(everywhere, client):
    """The instance, with a table."""
    everywhere.create_table(client.table, SCHEMA, row_keys=["key"])
    return everywhere


@pytest.fixture
def filled(instance, client):
    """The same, with rows `k1` to `k5`."""
    instance.table(client.table).ingest(ROWS)
    return instance


def between(low, high, *, low_inclusive=True, high_inclusive=False, base64=False):
    """Return a region of the documents."""
    limits = {
        "min": low,
        "minInclusive": low_inclusive,
        "max": high,
        "maxInclusive": high_inclusive,
    }
    return {"key": limits, "stringsBase64Encoded": base64}


def exactly(key):
    """Return the region of one key, as clients ask for it."""
    return between(key, key, high_inclusive=True)


def keys_of(rows):
    return [row["key"] for row in rows]


class TestIngest:
    """Files that a message names become rows."""

    def test_files_and_folders_are_a_bucket_and_a_key(self, instance, client):
        """Given paths without a scheme, when a worker runs, then the rows are there (ING-9)."""
        file, _ = client.upload("one.parquet", ROWS[:2]), client.upload("day/two.parquet", ROWS[2:])
        folder = file.replace("one.parquet", "day/")
        job = {"id": client.job, "files": [file, folder], "tableName": client.table, "later": 1}
        client.send("sleeper.ingest.job.queue.url", job)

        assert work(instance) == 1

        assert instance.table(client.table).query().to_pylist() == ROWS
        assert instance.jobs.job(client.job).state is JobState.FINISHED

    def test_updates_of_a_job_are_in_dynamodb(self, instance, client):
        """Given a job that was done, then its updates are where the documents say (TRK-8)."""
        file = client.upload("one.parquet", ROWS)
        table_id = instance.table(client.table).table_id
        job = {"id": client.job, "files": [file], "tableId": table_id}
        client.send("sleeper.ingest.job.queue.url", job)
        work(instance)

        updates = client.dynamodb.Table(
            f"sleeper-{instance.properties.id}-ingest-job-updates"
        ).scan()["Items"]

        updates = [update for update in updates if update["JobId"] == client.job]
        by_type = {update["UpdateType"]: update for update in updates}
        assert by_type.keys() == {"validated", "started", "finished"}
        assert {update["TableId"] for update in updates} == {table_id}
        assert all(update["JobIdAndUpdate"].startswith(f"{client.job}|") for update in updates)
        assert by_type["validated"]["ValidationResult"] == "ACCEPTED"
        assert by_type["finished"]["RowsWritten"] == 5

    def test_a_bulk_import_from_the_queue_of_each_platform(self, instance, client):
        """Given platforms that are not set up, then the worker does their jobs itself (BLK-1)."""
        for number, (platform, queue) in enumerate(BULK_IMPORT_QUEUES.items()):
            file = client.upload(f"{platform}.parquet", [ROWS[number]])
            job = {"id": platform.lower(), "tableName": client.table, "files": [file]}
            client.send(queue, {**job, "platformSpec": {}, "sparkConf": {}})

        assert work(instance, "bulk-import") == 4

        assert instance.table(client.table).query().to_pylist() == ROWS[:4]

    def test_files_for_the_batcher(self, instance, client):
        """Given a folder, when it waited long enough, then a job is made of it (BAT-1)."""
        folder = client.upload("day/one.parquet", ROWS).rpartition("/")[0]
        table_id = instance.table(client.table).table_id
        instance.table(client.table).set_properties(
            {"sleeper.table.ingest.batcher.ingest.queue": "standard_ingest"}
        )
        client.send(
            "sleeper.ingest.batcher.submit.queue.url",
            {"tableName": client.table, "files": [folder]},
        )

        assert work(instance, "batcher") == 1
        store = client.dynamodb.Table(f"sleeper-{instance.properties.id}-ingest-batcher-store")
        [item] = [each for each in store.scan()["Items"] if each["Table"] == table_id]
        assert item["JobId"] == "not_assigned_to_job"
        assert item["FilePath"].endswith("/day/one.parquet")
        assert run_batcher(instance.jobs, datetime.now(UTC) + timedelta(days=1)).jobs == 1

        assert work(instance) == 1
        assert instance.table(client.table).query().to_pylist() == ROWS

    def test_an_export(self, filled, client):
        """Given the documents' JSON, then the rows are in the bucket of exports (EXP-1)."""
        client.send("sleeper.bulk.export.queue.url", {"exportId": "e", "tableName": client.table})

        assert work(filled, "export") == 1

        bucket = client.s3.Bucket(client.properties["sleeper.bulk.export.s3.bucket"])
        folder = f"{filled.table(client.table).table_id}/e/"
        files = [each for each in bucket.objects.filter(Prefix=folder) if "parquet" in each.key]
        bodies = [io.BytesIO(each.get()["Body"].read()) for each in files]
        assert [row for body in bodies for row in pq.read_table(body).to_pylist()] == ROWS


class TestQuery:
    """Rows are asked for by a message, and read where clients read them."""

    def test_exact_keys(self, filled, client):
        """Given regions of one key each, then their rows are found, and none twice (QRY-10)."""
        client.ask(client.query, exactly("k2"), exactly("k4"), exactly("k2"), exactly("k9"))
        assert client.state(client.query) == {}

        assert work(filled, "query") == 1

        assert client.rows(client.query) == [ROWS[1], ROWS[3]]
        state = client.state(client.query)
        assert (state["lastKnownState"], state["rowCount"]) == ("COMPLETED", 2)

    def test_ranges(self, filled, client):
        """Given limits with and without their ends, or none, then what lies between is found."""
        asked = {
            "half-open": (between("k2", "k4"), [2, 3]),
            "other-end": (between("k2", "k4", low_inclusive=False, high_inclusive=True), [3, 4]),
            "no-end": (between("k4", None), [4, 5]),
            "nothing": (between("k2", "k2"), []),
            "base64": (between("azI=", "azQ=", base64=True), [2, 3]),
            "defaults": ({"key": {"min": "azQ="}}, [4, 5]),
        }
        for name, (region, _) in asked.items():
            client.ask(f"{name}-{client.query}", region, later={"unknown": 1})

        assert work(filled, "query") == len(asked)

        for name, (_, numbers) in asked.items():
            assert [row["n"] for row in client.rows(f"{name}-{client.query}")] == numbers
            assert client.state(f"{name}-{client.query}")["lastKnownState"] == "COMPLETED"

    def test_keys_of_bytes_and_of_two_fields(self, instance, client):
        """Given a composite key, then its bytes are base64 and a missing field has any value."""
        schema = pa.schema([("raw", pa.binary()), ("at", pa.int64()), ("v", pa.string())])
        rows = [{"raw": b"\xff\x00", "at": n, "v": str(n)} for n in range(3)]
        instance.create_table("pairs", schema, row_keys=["raw", "at"]).ingest(rows)
        raw = {"min": "/wA=", "minInclusive": True, "max": "/wA=", "maxInclusive": True}
        at = {"min": 1, "minInclusive": True, "max": 1, "maxInclusive": True}
        client.ask("one", {"raw": raw, "at": at}, tableName="pairs")
        client.ask("all", {"raw": raw, "stringsBase64Encoded": False}, tableName="pairs")

        assert work(instance, "query") == 2

        assert client.rows("one") == [rows[1]]
        assert client.rows("all") == rows

    def test_a_query_that_cannot_be_run_has_failed(self, filled, client):
        """Given no such table, then a client need not wait, and is told why (QRY-8, QRY-15)."""
        client.ask(client.query, exactly("k1"), tableName="nobody")

        work(filled, "query")

        assert client.state(client.query)["lastKnownState"] == "FAILED"
        assert "nobody" in client.state(client.query)["errors"]

    def test_what_a_query_costs(self, filled, client, endpoint, monkeypatch):
        """Given a worker that has the table open, then so many requests are made for a query."""
        calls = Counter()

        def noted(model, **_):
            calls[model.name] += 1

        used = [aws_client(service, REGION) for service in ("sqs", "dynamodb")]
        with fault_proxy(endpoint) as proxy:
            monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
            worker = sleeper.connect(filled.url)
            client.ask(f"before-{client.query}", exactly("k1"))
            work(worker, "query")
            client.ask(client.query, exactly("k1"))
            proxy.forget()
            for each in used:
                each.meta.events.register("before-call", noted)
            work(worker, "query")
            for each in used:
                each.meta.events.unregister("before-call", noted)
            seen = proxy.forget()

        assert client.rows(client.query) == ROWS[:1]
        assert calls == {
            "ReceiveMessage": 2,  # the last finds the queue empty
            "DeleteMessageBatch": 1,
            "GetItem": 4,  # the table by its name and its id, and two of the tracker
            "Query": 3,  # commits to the table since, other uses of the id, attempts before
            "TransactWriteItems": 4,  # two events of the query, two of the worker
        }
        assert seen.kinds == {"GET-range": 1, "LIST": 1, "PUT": 1}


class TestResultsInMessages:
    """A query names a queue in SQS for its rows."""

    @pytest.fixture
    def answers(self, client):
        """A queue of whoever asks."""
        return client.sqs.create_queue(QueueName=f"answers-{uuid.uuid4().hex[:8]}")

    @staticmethod
    def received(queue):
        """Return the bodies of messages, read as JSON, and delete them."""
        found = []
        while messages := queue.receive_messages(MaxNumberOfMessages=10):
            found += [json.loads(message.body) for message in messages]
            queue.delete_messages(
                Entries=[
                    {"Id": str(n), "ReceiptHandle": m.receipt_handle}
                    for n, m in enumerate(messages)
                ]
            )
        return found

    def test_rows_come_in_batches(self, filled, client, answers):
        """Given two rows a message, then five rows are three messages in key order (QRY-11)."""
        publisher = {"destination": "SQS", "sqsResultsUrl": answers.url, "batchSize": "2"}
        client.ask(client.query, between("", None), resultsPublisherConfig=publisher)

        work(filled, "query")

        messages = sorted(self.received(answers), key=lambda each: each["rows"][0]["key"])
        assert [len(each["rows"]) for each in messages] == [2, 2, 1]
        assert {each["queryId"] for each in messages} == {client.query}
        assert messages[0]["rows"][0] == {"key": "k1", "n": 1, "raw": "AQ=="}
        fields = messages[0]["schema"]
        assert fields["rowKeyFields"] == [{"name": "key", "type": "StringType", "nullable": False}]
        status = filled.jobs.query(client.query)
        assert (status.state, status.rows) == (QueryState.COMPLETED, 5)
        assert status.locations == (answers.url,)
        assert client.rows(client.query) == []

    def test_no_rows_are_a_message_without_rows(self, filled, client, answers):
        """Given a key that is not there, then whoever asks is told so (QRY-11)."""
        publisher = {"destination": "SQS", "sqsResultsUrl": answers.url}
        client.ask(client.query, exactly("k9"), resultsPublisherConfig=publisher)

        work(filled, "query")

        [message] = self.received(answers)
        assert message["rows"] == []
        assert client.state(client.query)["lastKnownState"] == "COMPLETED"

    def test_a_queue_that_is_missing_or_denied_fails_the_query(self, filled, client, answers):
        """Given no such queue, then the query has failed, its message is a dead letter (QRY-11)."""
        publisher = {"destination": "SQS", "sqsResultsUrl": f"{answers.url}-not-there"}
        client.ask(client.query, exactly("k1"), resultsPublisherConfig=publisher)

        work(filled, "query")

        assert client.state(client.query)["lastKnownState"] == "FAILED"
        assert "sqsResultsUrl" in client.state(client.query)["errors"]
        letters = filled.jobs.dead_letters("query")
        [letter] = [each for each in letters if client.query in each.body]
        assert "not-there" in letter.reason

    def test_a_failure_after_some_rows_is_a_failure_in_part(
        self, filled, client, answers, monkeypatch
    ):
        """Given a queue that is deleted meanwhile, then rows are not sent again (QRY-15)."""
        sqs = aws_client("sqs", REGION)
        numbers = count()

        def refuse_the_second(params, **_):
            if next(numbers):
                params["QueueUrl"] += "-gone"

        publisher = {"destination": "SQS", "sqsResultsUrl": answers.url, "batchSize": "2"}
        client.ask(client.query, between("", None), resultsPublisherConfig=publisher)
        hook = "provide-client-params.sqs.SendMessage"
        sqs.meta.events.register(hook, refuse_the_second)
        try:
            work(filled, "query")
        finally:
            sqs.meta.events.unregister(hook, refuse_the_second)

        state = client.state(client.query)
        assert (state["lastKnownState"], state["rowCount"]) == ("PARTIALLY_FAILED", 2)
        assert filled.jobs.query(client.query).is_given_up
        assert len(self.received(answers)) == 1
        assert work(filled, "query") == 0

    def test_a_query_that_is_delivered_again_is_sent_once(self, filled, client, answers):
        """Given a message that was not deleted, then the tracker knows that it was done."""
        publisher = {"destination": "SQS", "sqsResultsUrl": answers.url}
        query = {
            "tableName": client.table,
            "queryId": client.query,
            "type": "Query",
            "regions": [exactly("k1")],
        }
        body = json.dumps({**query, "resultsPublisherConfig": publisher})
        again = ReceivedMessage(
            receipt="r", message_id="m", body=body, group=None, receives=2, sent=datetime.now(UTC)
        )
        client.send("sleeper.query.queue.url", body)
        work(filled, "query")

        done = QueryReader(filled).read(again).done_before()

        assert done.rows_written == 1
        assert QueryReader(filled).read(replace(again, receives=1)).done_before() is None
        assert len(self.received(answers)) == 1


class TestTrouble:
    """What other programs do wrong, and what is missing."""

    @pytest.mark.parametrize(
        ("queue", "kind"),
        [("sleeper.ingest.job.queue.url", "ingest"), ("sleeper.bulk.export.queue.url", "export")],
    )
    def test_what_is_not_json_is_rejected_with_its_text(self, instance, client, queue, kind):
        """Given text, then the tracker has it with the reason, and nothing waits (ING-10)."""
        text = f"rows of {client.table}, please"
        client.send(queue, text)

        work(instance, kind)

        jobs = instance.jobs.list(kind=kind, state=JobState.REJECTED)
        [status] = [each for each in jobs if each.message == text]
        assert "Error parsing JSON" in status.reasons[0]
        assert instance.jobs.queue_depths()[kind].ready == 0

    def test_a_query_that_is_not_json_has_failed(self, instance, client):
        """Under the id of its message, as it names none (QRY-8)."""
        text = f"{{{client.table}"
        client.send("sleeper.query.queue.url", text)

        work(instance, "query")

        [status] = [each for each in instance.jobs.queries() if each.message == text]
        assert status.state is QueryState.FAILED
        assert client.state(status.query_id)["lastKnownState"] == "FAILED"

    def test_a_message_that_comes_twice_adds_rows_once(self, instance, client):
        """Given SQS, which may deliver a message twice, then its job is done once (ING-9)."""
        job = {
            "id": client.job,
            "tableName": client.table,
            "files": [client.upload("one.parquet", ROWS)],
        }
        client.send("sleeper.ingest.job.queue.url", job)
        client.send("sleeper.ingest.job.queue.url", job)

        assert work(instance) == 2

        assert instance.table(client.table).query().to_pylist() == ROWS

    def test_a_message_that_is_older_than_its_table(self, filled, client):
        """Given a table that was made anew, then its name means the new one, and its id none."""
        old_id = filled.table(client.table).table_id
        files = [client.upload("one.parquet", ROWS[:1])]
        work(filled)  # it has the old table open
        client.send("sleeper.ingest.job.queue.url", {"id": "a", "tableId": old_id, "files": files})
        client.send(
            "sleeper.ingest.job.queue.url", {"id": "b", "tableName": client.table, "files": files}
        )
        filled.delete_table(client.table)
        filled.create_table(client.table, SCHEMA, row_keys=["key"])

        work(filled)

        assert filled.table(client.table).query().to_pylist() == ROWS[:1]
        assert filled.jobs.job("a").state is JobState.REJECTED
        assert filled.jobs.job("a").reasons == (f"Table not found: {old_id}",)
        assert filled.jobs.job("b").state is JobState.FINISHED

    def test_jobs_run_without_their_tracker(self, filled, client, caplog):
        """Given tables that somebody deleted, then rows come all the same, and a warning says so."""
        client.ask(f"before-{client.query}", exactly("k1"))
        work(filled, "query")
        prefix = f"sleeper-{filled.properties.id}-query-"
        for table in client.dynamodb.tables.all():
            if table.name.startswith(prefix):
                table.delete()
        client.ask(client.query, exactly("k2"))

        work(filled, "query")

        assert client.rows(client.query) == [ROWS[1]]
        assert f"the tracker misses job {client.query} finished" in caplog.text
        client.ask(f"after-{client.query}", exactly("k2"))
        work(sleeper.connect(filled.url), "query")  # another process makes them anew
        assert client.state(f"after-{client.query}")["lastKnownState"] == "COMPLETED"

    def test_a_path_that_names_nothing_is_told_as_it_was_looked_for(self, instance, client):
        """Given no such bucket, then the job is rejected, and says where it looked (ING-11)."""
        job = {"id": client.job, "tableName": client.table, "files": ["nobody-has-it/one.parquet"]}
        client.send("sleeper.ingest.job.queue.url", job)

        work(instance)

        status = instance.jobs.job(client.job)
        assert status.state is JobState.REJECTED
        assert "s3://nobody-has-it/one.parquet" in status.reasons[0]
