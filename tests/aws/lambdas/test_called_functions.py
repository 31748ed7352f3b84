"""Functions of queues that nothing asks: who sends calls them, and each minute the starter does.

The emulator takes calls and runs no function: tests call the handler with what it was called with.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta

import pytest

import sleeper
from sleeper.errors import BadRequest, StorageFailed
from sleeper.interfaces.lambdas import handlers, worker_tasks
from sleeper.jobs.job_results import JobResults
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.messages import NewMessage
from sleeper.model.jobs.query_statuses import QueryState
from sleeper.model.jobs.statuses import JobState
from sleeper.storage.aws import clients
from sleeper.storage.aws.jobs.queue_functions import SendersCall, calls_for
from sleeper.workers.worker import Worker
from tests.aws.lambdas.functions import (
    Context,
    client,
    functions_of,
    instance,
    uploaded,
)
from tests.contracts.s3_server import REGION
from tests.deploy.flow.emulator import ACCOUNT, account, cloud, s3_credentials
from tests.stories.test_ingest_jobs import work, written

__all__ = ["account", "client", "cloud", "functions_of", "instance", "s3_credentials"]


@pytest.fixture
def aws_endpoint(cloud):
    """The URL of an emulator that has functions too."""
    return cloud.endpoint


@pytest.fixture
def bucket(cloud):
    """The name of an empty bucket."""
    cloud.client("s3").create_bucket(Bucket=cloud.instance_id)
    return cloud.instance_id


@pytest.fixture
def calls(monkeypatch):
    """The names of functions that were called, and with what."""
    found = []
    opened = clients._opened

    def watched(service, *given, **named):
        made = opened(service, *given, **named)
        if service == "lambda":
            made.meta.events.register(
                "before-call.lambda.Invoke",
                lambda params, **_: found.append(
                    (params["url_path"].split("/")[3], json.loads(params["body"]))
                ),
            )
        return made

    monkeypatch.setattr(clients, "_opened", watched)
    monkeypatch.setattr(clients, "_clients", {})
    return found


@pytest.fixture
def deployed(instance, functions_of, client):
    """The instance as a deployment has it: senders call the functions of queries and commits."""
    instance.set_properties({"sleeper.jobs.called.queues": "commit,query"})
    for function in ("query", "committer"):
        client("lambda").create_function(
            FunctionName=f"sleeper-{instance.instance_id}-{function}",
            PackageType="Image",
            Code={"ImageUri": f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/a:b"},
            Role=f"arn:aws:iam::{ACCOUNT}:role/x",
        )
    return functions_of(sleeper.connect(instance.url))


@pytest.fixture
def starter(deployed, monkeypatch):
    """Calls the starter, which has two functions to call, and no workers to start."""
    monkeypatch.setattr(worker_tasks, "_warm", {})
    names = {each: f"sleeper-{deployed.instance_id}-{each}" for each in ("query", "commit")}
    return lambda: handlers.start_workers(
        {"kinds": [], "functions": {**names, "commit": names["commit"] + "ter"}}, Context()
    )


def depth(opened, name):
    found = opened.jobs.stores.queue(name).depth()
    return found.ready, found.hidden, found.dead


def test_a_query_is_begun_by_a_call_of_its_sender(deployed, calls):
    """Given nothing that asks the queue, when a query is sent, then one call of its function runs it."""
    deployed.table("numbers").ingest([{"id": "a", "n": 1}])

    deployed.jobs.submit_query("numbers", query_id="q", key="a")

    ((name, event),) = calls
    assert name == f"sleeper-{deployed.instance_id}-query"
    assert event == {"waiting": "query"}
    assert handlers.query(event, Context()) == {"batchItemFailures": []}
    assert deployed.jobs.query("q").rows == 1
    assert depth(deployed, QueueName.QUERY) == (0, 0, 0)


def test_a_commit_is_begun_by_a_call_of_the_worker(deployed, calls, client, tmp_path):
    """Given a table that commits by the queue, then the worker calls the committer after its job."""
    deployed.table("numbers").set_properties(
        {"sleeper.table.statestore.commit.async.enabled": "true"}
    )
    file = written(tmp_path / "file.parquet", 1, 2)
    path = uploaded(client, deployed, file, "for_ingest/file.parquet")
    job = deployed.jobs.submit_ingest("numbers", [f"s3://{path}"])

    work(deployed)

    ((name, event),) = calls
    assert name.endswith("-committer")
    assert handlers.commit(event, Context()) == {"batchItemFailures": []}
    assert deployed.jobs.job(job).state is JobState.FINISHED
    assert deployed.table("numbers").query().to_arrow().num_rows == 2


def test_no_function_is_called_where_nothing_says_so(instance, calls):
    """Given an instance that was not deployed, then sending a query calls nothing."""
    instance.jobs.submit_query("numbers", key="a")

    assert calls == []


def test_a_call_takes_all_that_waits(deployed):
    """Given five queries and one call that was not lost, then it runs them one after the other."""
    for n in range(5):
        deployed.jobs.submit_query("numbers", query_id=f"q{n}", key="a")

    handlers.query({"waiting": "query"}, Context())

    states = {deployed.jobs.query(f"q{n}").state for n in range(5)}
    assert states == {QueryState.COMPLETED}
    assert depth(deployed, QueueName.QUERY) == (0, 0, 0)


def test_calls_that_find_nothing_do_nothing(deployed):
    """Given calls that were made twice, or came late, then the second finds an empty queue."""
    deployed.jobs.submit_query("numbers", query_id="once", key="a")

    answers = [handlers.query({"waiting": "query"}, Context()) for _ in range(2)]

    assert answers == [{"batchItemFailures": []}] * 2
    assert deployed.jobs.query("once").state is QueryState.COMPLETED


def test_a_lost_call_is_made_up_for_by_the_starter(deployed, starter, calls):
    """Given queries whose calls never ran, then the starter calls the function for each of them."""
    assert starter() == {}
    for n in range(3):
        deployed.jobs.submit_query("numbers", query_id=f"q{n}", key="a")
    calls.clear()

    assert starter() == {"query": 3}

    assert calls == [(f"sleeper-{deployed.instance_id}-query", {"waiting": "query"})] * 3


def test_calls_of_a_look_are_bounded():
    """Given any number of messages, then ten calls a minute at most; ten in order are one call."""
    assert [calls_for(n, in_order=False) for n in (0, 1, 9, 5_000)] == [0, 1, 9, 10]
    assert [calls_for(n, in_order=True) for n in (0, 1, 10, 11, 5_000)] == [0, 1, 1, 2, 10]


def test_a_function_that_is_gone_is_reported_and_the_others_are_called(
    deployed, starter, calls, client
):
    """Given a query and a commit that wait, and no committer, then the query is taken all the same."""
    deployed.jobs.submit_query("numbers", key="a")
    deployed.jobs.stores.queue(QueueName.COMMIT).send([NewMessage(body="{}", group="g")])
    name = f"sleeper-{deployed.instance_id}-committer"
    client("lambda").delete_function(FunctionName=name)
    calls.clear()

    with pytest.raises(
        StorageFailed, match=f"not called: cannot call the function {name}: it does"
    ):
        starter()

    assert (f"sleeper-{deployed.instance_id}-query", {"waiting": "query"}) in calls


def test_a_sender_that_may_not_call_sends_all_the_same(deployed, calls, client, caplog):
    """Given a function that is gone, then queries are sent, and it is tried no more for a while."""
    client("lambda").delete_function(FunctionName=f"sleeper-{deployed.instance_id}-query")

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            deployed.jobs.submit_query("numbers", key="a")

    assert depth(deployed, QueueName.QUERY)[0] == 3
    assert len(calls) == 1
    assert "taken up to a minute later" in caplog.text


def test_a_sender_tries_again_after_ten_minutes(aws_endpoint, calls):
    """Given a function that comes late, then its sender calls it some time later."""
    times = [datetime(2026, 1, 1, tzinfo=UTC)]
    made = SendersCall(
        lambda: clients.aws_client("lambda", REGION, is_quick=True),
        "not-there",
        QueueName.QUERY,
        now=lambda: times[-1],
    )
    made()
    made()
    times.append(times[0] + timedelta(minutes=10))

    made()

    assert len(calls) == 2


def test_a_sender_does_not_wait_for_a_service_that_does_not_answer(monkeypatch):
    """Given a subnet without a way to Lambda, then a client gives up after one short try."""
    monkeypatch.setattr(clients, "_clients", {})

    config = clients.aws_client("lambda", REGION, is_quick=True).meta.config

    assert (config.connect_timeout, config.read_timeout) == (2, 2)
    assert config.retries["total_max_attempts"] == 1


def test_a_job_that_fails_waits_for_another_call(deployed, monkeypatch):
    """Given a storage that fails, then the call ends, and the message is not lost."""

    def fails(*_):
        raise StorageFailed("no answer")

    monkeypatch.setattr(JobResults, "write_query", fails)
    for n in range(2):
        deployed.jobs.submit_query("numbers", query_id=f"q{n}", key="a")

    handlers.query({"waiting": "query"}, Context())

    assert depth(deployed, QueueName.QUERY) == (1, 1, 0)


def test_a_call_that_cannot_begin_ends_at_once(deployed, monkeypatch):
    """Given a worker that fails before its first job, then the call does not try for ever."""
    tried = []

    def fails(self):
        tried.append(1)
        raise StorageFailed("no answer")

    monkeypatch.setattr(Worker, "run", fails)
    deployed.jobs.submit_query("numbers", query_id="q", key="a")

    handlers.query({"waiting": "query"}, Context())

    assert tried == [1]
    assert depth(deployed, QueueName.QUERY) == (1, 0, 0)


def test_a_call_without_time_takes_nothing(deployed):
    """Given a call that is nearly over, then messages stay in the queue for the next."""
    deployed.jobs.submit_query("numbers", query_id="q", key="a")
    left_s = iter([10.0])  # at first; then four seconds of ten are left

    class Late(Context):
        def get_remaining_time_in_millis(self):
            return int(1000 * next(left_s, 4.0))

    handlers.query({"waiting": "query"}, Late())

    assert depth(deployed, QueueName.QUERY) == (1, 0, 0)


@pytest.mark.parametrize("event", [{}, {"waiting": "commit"}, {"detail": 1}])
def test_another_event_is_refused(deployed, event):
    """Given what neither Lambda nor a sender of this queue sends, then the error says what is taken."""
    with pytest.raises(BadRequest, match="the event has no Records"):
        handlers.query(event, Context())


@pytest.mark.parametrize("functions", ["query", {"nothing": "f"}])
def test_functions_of_no_queue_are_refused(deployed, functions):
    """Given an event that names something else, then nothing is called."""
    with pytest.raises(BadRequest, match="functions is"):
        handlers.start_workers({"kinds": [], "functions": functions}, Context())
