"""Whatever a message holds, its worker goes on: it is rejected with a reason, the next one runs."""

from __future__ import annotations

import datetime as dt
import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.instance.instance import Instance
from sleeper.model.jobs.events import JobEvent, JobEventType, JobFilter
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.model.jobs.messages import NewMessage
from sleeper.model.jobs.statuses import JobState
from sleeper.state import commit_request
from sleeper.workers.kinds.ingest import IngestReader, IngestWork
from tests.soak import FIRST_SEED, some, tries
from tests.stories.test_ingest_jobs import work

SCHEMA = pa.schema(
    [
        pa.field("day", pa.date32(), nullable=False),
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("code", pa.binary(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("value", pa.float64()),
    ]
)
KEYS = ["day", "at", "code", "name", "number"]
DEEP = 5_000

DELETION = "ingest of no rows"

KINDS = {
    "ingest": (QueueName.INGEST, JobKind.INGEST),
    "bulk-import": (QueueName.BULK_IMPORT, JobKind.INGEST),
    "batcher": (QueueName.BATCHER, JobKind.INGEST),
    "query": (QueueName.QUERY, JobKind.QUERY),
    "export": (QueueName.EXPORT, JobKind.EXPORT),
    "commit": (QueueName.COMMIT, JobKind.INGEST),
    DELETION: (QueueName.INGEST, JobKind.INGEST),
    "bulk-import of emr": (QueueName.BULK_IMPORT_EMR, JobKind.INGEST),
    "bulk-import of persistent emr": (QueueName.BULK_IMPORT_PERSISTENT_EMR, JobKind.INGEST),
    "bulk-import of emr serverless": (QueueName.BULK_IMPORT_EMR_SERVERLESS, JobKind.INGEST),
    "bulk-import of eks": (QueueName.BULK_IMPORT_EKS, JobKind.INGEST),
}
PLATFORMS = tuple(kind for kind in KINDS if kind.startswith("bulk-import of "))


def worker_of(kind: str) -> str:
    """The workers that take a kind of messages."""
    return kind.partition(" of ")[0]


def whole(path: str) -> dict[str, dict[str, Any]]:
    """A message of each kind, with every field that it can have."""
    job = {"id": "a-job", "tableName": "t", "tableId": None, "files": [path], "upsert": False}
    ends = {"min": None, "minInclusive": True, "max": None, "maxInclusive": False}
    at = "2026-06-01T00:00:00+00:00"
    values = {"day": "2026-06-01", "at": at, "code": "YQ==", "name": "YQ==", "number": 7}
    region = {name: {**ends, "min": value} for name, value in values.items()}
    deleted = {"regions": [region], "keys": None, "where": None, "reason": "ticket 4711"}
    return {
        "ingest": job,
        DELETION: {"id": "a-job", "tableName": "t", "tableId": None, "delete": deleted},
        "bulk-import": {
            **job,
            "className": "BulkImportJobDataframeDriver",
            "platformSpec": {
                "sleeper.table.bulk.import.emr.master.x86.instance.types": "m6i.xlarge"
            },
            "sparkConf": {"spark.driver.memory": "1g"},
        },
        "batcher": {"tableName": "t", "files": [path]},
        "query": {
            "queryId": "a-query",
            "tableName": "t",
            "tableId": None,
            "type": "Query",
            "regions": [{**region, "stringsBase64Encoded": True}],
            "requestedValueFields": ["value"],
            "queryTimeIteratorClassName": None,
            "queryTimeIteratorConfig": None,
            "resultsPublisherConfig": {
                "destination": "S3",
                "rowGroupSize": "1048576",
                "pageSize": "65536",
                "compressionCodec": "zstd",
            },
            "statusReportDestinations": [{"destination": "DYNAMODB"}],
        },
        "export": {"exportId": "an-export", "tableName": "t", "tableId": None},
    }


VALUES: list[Any] = [
    *(None, True, False, 0, -1, 20260601, 10**30, -(10**400), 1.5, 1e308, "", " ", "\0", "a\0b"),
    *("x" * 300, "x" * 5_000, "http://[::1", "s3://a b/x", "s3://b\n/x", "s3://\0/x"),
    *("s3:///x", "file:///\0", "gs://a?b/c", "...", "~", "\x1b[2J", "\u202e", "é" * 200),
    *("9" * 5_000, "2026-13-45", "99999-01-01", "0001-01-01T00:00:00+23:59", "YQ=", "/w==", "NaN"),
    *([], {}, [None], [[]], [{}], {"": None}, {"\0": 1}, [[[[["deep"]]]]], ["x"] * 200, {"a": {}}),
]
"""What stands where something else belongs."""

TEXTS = [
    *("\0", "null", "true", "7", '"text"', "[]", "[{}]", "{", "{]", "not JSON", "{'id': 1}"),
    *('{"id": NaN}', '{"id": 1e999}', '{"id": -Infinity}', '{"id": ' + "9" * 5_000 + "}"),
    *('{"id": "a", "id": "b"}', '{"files": [{"a": 1, "a": 2}]}', '{"tableName": "\\ud800"}'),
    *('{"id": "\\ud83d"}', '{"id": "\\udc00\\ud800"}', '{"a\\u0000": 1}', "\ufeff{}", "<xml/>"),
    "[" * DEEP + "]" * DEEP,
    '{"a":' * DEEP + "1" + "}" * DEEP,
    '{"files": ' + "[" * DEEP + "]" * DEEP + "}",
    '{"regions": [' + '{"day":' * 150 + "1" + "}" * 150 + "]}",
    "x" * 262_144,
    '{"id": "' + "x" * 262_000 + '"}',
]
"""What is no message of any kind."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where each value of a JSON document is."""
    yield path
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, inner in items:
            yield from places(inner, (*path, name))


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a document with another value at one place."""
    if not path:
        return value
    copy = document.copy()
    copy[path[0]] = replaced(document[path[0]], path[1:], value)
    return copy


@pytest.fixture
def instance(tmp_path) -> Instance:
    """An instance in a folder with one table, where no failed job is tried again."""
    opened = sleeper.connect(tmp_path / "instance", create=True)
    opened.set_properties({"sleeper.jobs.receives.max": 1})
    opened.create_table("t", SCHEMA, row_keys=KEYS)
    return opened


@pytest.fixture
def path(tmp_path) -> str:
    """A file with one row."""
    at = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)
    row = {"day": at.date(), "at": at, "code": b"a", "name": "a", "number": 7, "value": 0.5}
    pq.write_table(pa.Table.from_pylist([row], SCHEMA), tmp_path / "a.parquet")
    return str(tmp_path / "a.parquet")


def request(instance: Instance, path: str, job_id: str) -> str:
    """The request for the committer that a worker sends when it has written a job's files."""
    instance.table("t").set_properties({"sleeper.table.statestore.commit.async.enabled": True})
    instance.jobs.submit_ingest("t", path, job_id)
    work(instance)
    queue = instance.jobs.stores.queue(QueueName.COMMIT)
    (message,) = queue.receive(1)
    queue.delete([message.receipt])
    return message.body


def good(kind: str, path: str, instance: Instance) -> tuple[str, Callable[[], bool]]:
    """Return a message of a kind that can be run, and what tells whether it was."""
    jobs = instance.jobs
    if kind == "commit":
        body = request(instance, path, "the-good-one")
        return (
            body,
            lambda: jobs.tables.committed(json.loads(body)["tableId"], "the-good-one") is not None,
        )
    name = {"query": "queryId", "export": "exportId"}.get(kind, "id")
    message = whole(path)[worker_of(kind)] | ({} if kind == "batcher" else {name: "the-good-one"})
    if kind == "batcher":
        return json.dumps(message), lambda: bool(list(jobs.submitted_files()))
    of_kind = KINDS[kind][1]
    return json.dumps(message), lambda: any(
        event.type is JobEventType.FINISHED
        for event in jobs.stores.tracker.events_of_job(of_kind, "the-good-one")
    )


def message_of(kind: str, path: str, instance: Instance) -> dict[str, Any]:
    """A message of a kind, with every field that it can have."""
    if kind == "commit":
        return {**json.loads(request(instance, path, "a-job")), "bodyKey": None}
    messages = whole(path)
    return messages.get(kind) or messages[worker_of(kind)]


def malformed(message: dict[str, Any]) -> list[str]:
    """A message with each wrong value at each place, or without a field."""
    bad = [json.dumps(replaced(message, at, value)) for at in places(message) for value in VALUES]
    missing = [{name: message[name] for name in message if name != each} for each in message]
    return [*TEXTS, *bad, *map(json.dumps, missing)]


def spoilt(text: str, chance: random.Random) -> str:
    """Return a text with some characters deleted, repeated or replaced, as a fuzzer does."""
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(text) + 1)
        end = at + chance.choice([0, 1, 1, 2, 8, 40])
        new = chance.choice(
            ["", text[at:end] * 2, *'{}[]",:0\\', "null", "\0", "1e9", "é", "\\u0000"]
        )
        text = text[:at] + new + text[end:]
    return text or "{"


def check_answered(instance: Instance, kind: str, bad: list[str], path: str, caplog) -> None:
    """Send messages and a good one behind them, run a worker, and look what became of each."""
    name, of_kind = KINDS[kind]
    last, was_run = good(kind, path, instance)
    queue = instance.jobs.stores.queue(name)
    for body in [*bad, last]:
        if kind == "commit":
            queue.send([NewMessage(body=body, group="g")])
        else:
            instance.jobs.send(name, body)
    before = answers(instance, of_kind)

    work(instance, worker_of(kind))

    assert was_run()
    assert (queue.depth().ready, queue.depth().hidden) == (0, 0)
    dead = queue.dead_letters(len(bad) + 1) if queue.depth().dead else []
    assert all(letter.reason for letter in dead)
    told = [event for event in answers(instance, of_kind) if event not in before]
    if kind not in ("batcher", "commit"):
        assert len(told) > len(bad)
    for event in told:
        assert event.type is JobEventType.FINISHED or all(event.reasons), event
        assert event.type is not JobEventType.REJECTED or event.message in bad
        assert sum(map(len, event.reasons)) < 10_000
    unexpected = [record.getMessage() for record in caplog.records if record.exc_info]
    assert unexpected == []


def answers(instance: Instance, kind: JobKind) -> list[JobEvent]:
    """The ends of all runs that the tracker knows, and the rejected messages."""
    ends = (JobEventType.FINISHED, JobEventType.FAILED, JobEventType.REJECTED)
    jobs = instance.jobs.stores.tracker.jobs(JobFilter(kind=kind))
    return [event for events in jobs for event in events if event.type in ends]


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_each_wrong_value_at_each_place_is_answered(instance, path, kind, caplog):
    """Given messages that are wrong in one place, then each is rejected, or runs to its end."""
    bad = malformed(message_of(kind, path, instance))

    one_in = 61 if kind in PLATFORMS else 7
    tried = some(bad, one_in=one_in)
    check_answered(instance, kind, tried, path, caplog)
    print(f"{kind}: {len(tried)} messages")  # noqa: T201 - pytest -rP shows how much was tried


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_fuzzer_makes_of_a_message_is_answered(instance, path, kind, caplog):
    """Given texts with random damage, then each is rejected, or runs to its end."""
    chance = random.Random(f"{kind} {FIRST_SEED}")
    base = json.dumps(message_of(kind, path, instance))
    bad = [spoilt(base, chance) for _ in range(tries(10 if kind in PLATFORMS else 40, soak=5_000))]

    check_answered(instance, kind, bad, path, caplog)
    print(f"{kind}: {len(bad)} messages, seed {FIRST_SEED}")  # noqa: T201 - pytest -rP shows how much was tried


def test_every_queue_of_messages_is_tried():
    """Given a new kind of jobs with a queue, then it is among those that are tried above."""
    assert {name for name, _ in KINDS.values()} == {*QueueName}


class PanicException(BaseException):
    """What Python gets where code in Rust failed that should not."""


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("day", 20260602), ("day", True), ("day", ["2026-06-01"]), ("at", 1.5), ("at", {})),
        *(
            ("code", 7),
            ("code", [1]),
            ("code", "YQ"),
            ("name", 3),
            ("name", "/w=="),
            ("number", "7"),
        ),
        *(("number", 2**63), ("number", 1e300), ("day", "2026-02-30"), ("day", "x" * 90_000)),
        ("at", "0001-01-01T00:00:00+23:59"),
    ],
)
def test_a_key_of_a_wrong_type_is_rejected_by_the_name_of_its_field(instance, path, field, value):
    """Given a query with such a limit, then the reason names the field, and the message is kept."""
    region = {field: {"min": value}}
    query = {"queryId": "bad", "tableName": "t", "type": "Query", "regions": [region]}
    body = json.dumps(query)
    instance.jobs.send("query", body)

    work(instance, "query")

    status = instance.jobs.query("bad")
    assert (status.state.has_failed, status.message) == (True, body)
    (reason,) = status.errors
    assert repr(field) in reason
    assert len(reason) < 1_000


@pytest.mark.parametrize("kind", ["ingest", "bulk-import"])
@pytest.mark.parametrize(
    "file",
    [
        "x" * 300,
        "/tmp/" + "é" * 200,
        "a\0b",
        "http://[::1",
        "file://[/x",
        "",
        "s3://b c/x",
        "gs://a?/b",
    ],
)
def test_a_path_that_cannot_be_one_is_rejected(instance, path, kind, file):
    """Given a job with it and a good one, then the first is rejected, and the second one runs."""
    body = json.dumps({"id": "bad", "tableName": "t", "files": [file, path]})
    instance.jobs.send(kind, body)
    instance.jobs.send(kind, json.dumps({"id": "good", "tableName": "t", "files": [path]}))

    work(instance, kind)

    status = instance.jobs.job("bad")
    assert (status.state, status.message) == (JobState.REJECTED, body)
    assert "path" in status.reasons[0] or "empty" in status.reasons[0]
    assert instance.jobs.job("good").state is JobState.FINISHED


@pytest.mark.parametrize(
    "error",
    [KeyError("k"), RecursionError("deep"), AssertionError(), PanicException("unwrap")],
    ids=repr,
)
def test_an_error_of_reading_that_nobody_expected_rejects_the_message(
    instance, path, error, monkeypatch, caplog
):
    """Given a reader that fails so, then the job has the error as its reason, the log its trace."""
    failing(monkeypatch, IngestReader, "read", error)
    body = json.dumps({"id": "bad", "tableName": "t", "files": [path]})
    instance.jobs.send("ingest", body)
    instance.jobs.send("ingest", json.dumps({"id": "good", "tableName": "t", "files": [path]}))

    work(instance)

    status = instance.jobs.job("bad")
    assert (status.state, status.message) == (JobState.REJECTED, body)
    assert type(error).__name__ in status.reasons[0]
    assert instance.jobs.job("good").state is JobState.FINISHED
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [error]


@pytest.mark.parametrize("error", [MemoryError(), OSError(5, "Input/output error")], ids=repr)
def test_a_message_that_this_machine_cannot_read_now_is_tried_again(
    instance, path, error, monkeypatch
):
    """Given memory or a disk that fails once, then the job runs at the next delivery."""
    instance.set_properties({"sleeper.jobs.receives.max": 2, "sleeper.jobs.retry.first.seconds": 0})
    failing(monkeypatch, IngestReader, "read", error)
    instance.jobs.submit_ingest("t", path, "a")

    work(instance)

    assert instance.jobs.job("a").state is JobState.FINISHED


@pytest.mark.parametrize("error", [PanicException("unwrap"), ZeroDivisionError("x")], ids=repr)
def test_an_error_of_running_that_nobody_expected_fails_the_job(
    instance, path, error, monkeypatch, caplog
):
    """Given a job that ends so, then it has failed, and the next one runs."""
    failing(monkeypatch, IngestWork, "run", error)
    instance.jobs.submit_ingest("t", path, "bad")
    instance.jobs.submit_ingest("t", path, "good")

    work(instance)

    status = instance.jobs.job("bad")
    assert status.state is JobState.FAILED
    assert status.reasons == (f"{type(error).__name__}: {error}",)
    assert instance.jobs.job("good").state is JobState.FINISHED
    assert "unexpected error" in caplog.text


@pytest.mark.parametrize("place", [(IngestReader, "read"), (IngestWork, "run")], ids=repr)
@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_process_ends_the_worker(instance, path, place, end, monkeypatch):
    """Given Ctrl-C, then it is raised, and the message is there as before."""
    failing(monkeypatch, *place, end())
    instance.jobs.submit_ingest("t", path, "a")

    with pytest.raises(end):
        work(instance)

    depth = instance.jobs.stores.queue(QueueName.INGEST).depth()
    assert (depth.hidden, depth.dead) == (1, 0)


@pytest.mark.parametrize("error", [PanicException("unwrap"), RuntimeError("x")], ids=repr)
def test_a_request_that_fails_unexpectedly_holds_up_no_other(
    instance, path, tmp_path, error, monkeypatch
):
    """Given three requests of a table, one of which fails so, then the others are committed."""
    instance.set_properties({"sleeper.jobs.receives.max": 3})
    bodies = [request(instance, path, job_id) for job_id in ("one", "bad", "two")]
    for body in bodies:
        instance.jobs.stores.queue(QueueName.COMMIT).send([NewMessage(body=body, group="g")])
    decode = commit_request.transaction_from_json

    def fail(document: dict[str, Any], schema: Any) -> Any:
        if '"bad"' in json.dumps(document):
            raise error
        return decode(document, schema)

    monkeypatch.setattr(commit_request, "transaction_from_json", fail)
    for _ in range(5):
        work(instance, "commit", wait=lambda _: None)
        time.sleep(0.5)

    jobs = instance.jobs.tables
    table_id = instance.table("t").table_id
    assert [jobs.committed(table_id, each) is None for each in ("one", "bad", "two")] == [
        *(False, True, False)
    ]
    (dead,) = instance.jobs.dead_letters("commit")
    assert type(error).__name__ in dead.reason


def failing(monkeypatch, kind: type, method: str, error: BaseException) -> None:
    """Have the first call of a method raise an error."""
    whole, errors = getattr(kind, method), [error]

    def fail(self: Any, argument: Any) -> Any:
        if errors:
            raise errors.pop()
        return whole(self, argument)

    monkeypatch.setattr(kind, method, fail)
