"""What functions ask for while there is nothing to do: a few requests, however many tables.

`docs/deploy/costs.md` has these numbers: `REQUESTS`.
"""

from __future__ import annotations

import uuid
from collections import Counter

import pytest

import sleeper
from bench.counting_proxy import counting_proxy
from sleeper.interfaces.lambdas import handlers, worker_tasks
from sleeper.storage.aws import clients
from sleeper.workers.scheduled_operations import ask_for_operation
from tests.aws.lambdas.functions import (
    Context,
    aws_endpoint,
    functions_of,
    s3_credentials,
    s3_server,
)
from tests.stories.test_ingest_jobs import SCHEMA

__all__ = ["aws_endpoint", "functions_of", "s3_credentials", "s3_server"]

INGEST = {"SQS GetQueueAttributes": 1}
QUEUES = {"SQS GetQueueAttributes": 2}
TABLES = {"DynamoDB Scan": 1, "DynamoDB BatchGetItem": 1}
REQUESTS = {
    "create_batches": {"DynamoDB Query": 2},
    "start_workers ingest": INGEST,
    "start_workers export": INGEST,
    "start_workers compaction": TABLES,
    "start_workers query and commit": QUEUES,
    "trigger_tables": {**TABLES, "S3 GET": 1},
}
"""The requests of one call of a warm process, up to a hundred tables. A look for changed properties,
once a minute at most, is one GET of S3 more."""

CALLS = {
    "create_batches": lambda: handlers.create_batches({}, Context()),
    "start_workers ingest": lambda: handlers.start_workers({"kinds": ["ingest"]}, Context()),
    "start_workers export": lambda: handlers.start_workers({"kinds": ["export"]}, Context()),
    "start_workers compaction": lambda: handlers.start_workers(
        {"kinds": ["compaction"]}, Context()
    ),
    "start_workers query and commit": lambda: handlers.start_workers(
        {"kinds": [], "functions": {"query": "f", "commit": "g"}}, Context()
    ),
    "trigger_tables": lambda: handlers.trigger_tables({"operation": "split"}, Context()),
}


@pytest.fixture
def proxy(functions_of, aws_endpoint, monkeypatch):
    """A proxy before the server that functions of an instance use, and counts what they ask."""
    made = functions_of(sleeper.create_instance(f"aws://idle-{uuid.uuid4().hex[:8]}"))
    for n in range(5):
        made.create_table(f"table-{n}", SCHEMA, row_keys=["id"])
    for name in ("CLUSTER", "SUBNETS", "TABLES_QUEUE_URL"):
        monkeypatch.setenv(f"SLEEPER_{name}", "demo")
    monkeypatch.setattr(worker_tasks, "_warm", {})
    notes = made.service_notes
    ask_for_operation(made, "split", lambda messages: set())
    assert notes.read("split")
    with counting_proxy(aws_endpoint) as counting:
        monkeypatch.setenv("AWS_ENDPOINT_URL", counting.endpoint)
        monkeypatch.setattr(clients, "_clients", {})
        yield counting


def test_an_idle_look_is_a_few_requests_for_all_tables(proxy):
    """Given five tables and nothing to do, then each function asks for so much, and no more."""
    found = {}
    for function, call in CALLS.items():
        assert not any(call().values())
        assert not any(call().values())
        proxy.take()

        call()

        asked = (f"{each.service} {each.operation}" for each in proxy.take())
        found[function] = dict(Counter(asked))

    assert found == REQUESTS
