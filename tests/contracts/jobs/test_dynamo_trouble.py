"""Trouble with DynamoDB: lost replies, processes that are killed, conflicts, throttling."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from sleeper.errors import StorageFailed
from sleeper.model.jobs.events import JobEventType
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.storage.aws import dynamo_tables
from sleeper.storage.aws.dynamo_tables import DynamoTables
from sleeper.storage.aws.jobs.dynamo_batcher_store import (
    FILES_TOGETHER,
    SAVED_TOGETHER,
    UNFINISHED_MAX,
    DynamoBatcherStore,
)
from sleeper.storage.aws.jobs.dynamo_tracker import (
    BATCHER_JOBS,
    QUERY_STATES,
    SUBMITTED_FILES,
    DynamoTracker,
    job_lookup,
    job_updates,
    task_status,
)
from tests.contracts.jobs.batcher_store_contract import NOON, file
from tests.contracts.jobs.clock import Clock
from tests.contracts.jobs.job_tracker_contract import INGESTS, LATER, event, hour, task_event
from tests.contracts.servers.dynamo import (
    LastingTables,
    dynamo,
    dynamo_client,
    dynamo_endpoint,
    new_id,
    on_one_server,
    pause,
    tables,
    without_backoff,
)
from tests.contracts.servers.dynamo_answers import cancelled, done_without_a_reply, refused
from tests.contracts.servers.running import free_port
from tests.patience import PATIENCE_S

__all__ = ["dynamo", "dynamo_endpoint", "tables", "without_backoff"]

pytestmark = pytest.mark.usefixtures("without_backoff")

INGEST = QueueName.INGEST
WRITE = "before-send.dynamodb.TransactWriteItems"


class Killed(BaseException):
    """The process is gone."""


class Faults:
    """A client whose `number`-th transaction goes wrong; without a number none does."""

    def __init__(self, endpoint, kind, number=None):
        self.client = dynamo_client(endpoint)
        self.client.meta.events.register(WRITE, self)
        self.kind, self.number, self.writes = kind, number, 0

    def __call__(self, request, **_):
        self.writes += 1
        if self.writes != self.number:
            return None
        if self.kind == "killed before":
            raise Killed
        lost = done_without_a_reply(request)
        if self.kind == "killed after":
            raise Killed
        return lost


def refusal(code, *, reasons=False):
    """Return a hook that refuses the first two transactions."""
    numbers = count()

    def refuse(request, **_):
        if next(numbers) >= 2:
            return None
        return cancelled(request, {-1: code}) if reasons else refused(request, code)

    return refuse


def store_of(tables_or_client, prefix=None, now=lambda: NOON):
    tables = tables_or_client
    if prefix is not None:
        tables = LastingTables(lambda: tables_or_client, prefix, pause=pause, new_id=new_id)
    return DynamoBatcherStore(tables, now=now)


def tracker_of(client):
    tables = LastingTables(lambda: client, f"sleeper-{new_id()}-", pause=pause, new_id=new_id)
    return DynamoTracker(tables, now=lambda: NOON, pause=pause)


def run_batcher(store):
    """Save more files than a transaction holds, put them into two jobs, and send one."""
    files = [file(f"{n:02d}", n) for n in range(FILES_TOGETHER + 30)]
    store.save(files)
    first = store.assign("large", files[: FILES_TOGETHER + 5], INGEST)
    second = store.assign("small", files[FILES_TOGETHER + 5 :], INGEST)
    store.note_sent("small")
    return files, first, second


def paths_of(files):
    return [each.path for each in files]


def in_one_place(store, files):
    """Return the paths that are pending; every file is pending or in a job, and in one of them."""
    found = paths_of(store.newest())
    assert sorted(found) == sorted(paths_of(files))
    return paths_of(store.pending())


@on_one_server
def test_a_lost_reply_of_any_write_of_the_batcher_changes_nothing(dynamo_endpoint):
    """boto3 sends the transaction again with its token; DynamoDB does it once."""
    plain = Faults(dynamo_endpoint, "lost")
    expected = run_batcher(store_of(plain.client, f"sleeper-{new_id()}-"))

    for number in range(1, plain.writes + 1):
        faults = Faults(dynamo_endpoint, "lost", number)
        store = store_of(faults.client, f"sleeper-{new_id()}-")
        assert run_batcher(store) == expected
        assert in_one_place(store, expected[0]) == []
        assert [(job.job_id, len(job.paths)) for job in store.unsent()] == [("large", 38)]
        assert faults.writes == plain.writes + 1
    assert plain.writes > 6


@on_one_server
@pytest.mark.parametrize("kind", ["killed before", "killed after"])
def test_a_batcher_that_is_killed_at_any_write_loses_no_file(dynamo_endpoint, kind):
    """Another finishes its job, and makes jobs of what is pending; every file is in one job."""
    for number in count(1):
        faults = Faults(dynamo_endpoint, kind, number)
        prefix = f"sleeper-{new_id()}-"
        try:
            files, *_ = run_batcher(store_of(faults.client, prefix))
        except Killed:
            files = [file(f"{n:02d}", n) for n in range(FILES_TOGETHER + 30)]
        else:
            break  # there are no more writes
        other = store_of(
            dynamo_client(dynamo_endpoint), prefix, lambda: NOON + UNFINISHED_MAX * 1.1
        )
        other.save(files)  # the message is delivered again
        other.unsent()  # finishes what was left
        other.assign("rest", other.pending(), INGEST)
        assert in_one_place(other, files) == []
        unsent = [path for job in other.unsent() for path in job.paths]
        sent = [each.path for each in other.newest() if each.job_id == "small"]
        assert sorted(unsent) in (paths_of(files), sorted(set(paths_of(files)) - set(sent)))
    assert number > 6


@pytest.mark.parametrize(
    ("code", "reasons"),
    [
        ("TransactionConflict", True),
        ("ThrottlingError", True),
        ("ProvisionedThroughputExceeded", True),
        ("TransactionInProgressException", False),
        ("ThrottlingException", False),
    ],
)
def test_transactions_that_were_not_done_are_sent_again(dynamo_endpoint, caplog, code, reasons):
    """After a pause, for others write the same items or write too much; the log tells of it."""
    client = dynamo_client(dynamo_endpoint, attempts=1)
    client.meta.events.register(WRITE, refusal(code, reasons=reasons))
    pauses = []
    tables = LastingTables(
        lambda: client, f"sleeper-{new_id()}-", pause=pauses.append, new_id=new_id
    )
    store = DynamoBatcherStore(tables, now=lambda: NOON)

    with caplog.at_level("INFO"):
        store.save([file("a"), file("b")])

    assert paths_of(store.pending()) == ["a", "b"]
    assert pauses[-2:] == [0, 1]
    assert code in caplog.text


def test_a_conflict_without_end_is_an_error(dynamo_endpoint, monkeypatch):
    """It says what to do."""
    monkeypatch.setattr(dynamo_tables, "_ATTEMPTS_MAX", 2)
    client = dynamo_client(dynamo_endpoint, attempts=1)
    client.meta.events.register(WRITE, refusal("TransactionConflict", reasons=True))

    with pytest.raises(StorageFailed, match=r"in each of 2 attempts.*Try again later"):
        store_of(client, f"sleeper-{new_id()}-").save([file("a")])


def test_what_the_service_refuses_for_good_is_not_sent_again(dynamo_endpoint):
    """An item that is too large, for one."""
    client = dynamo_client(dynamo_endpoint, attempts=1)
    client.meta.events.register(WRITE, refusal("ItemCollectionSizeLimitExceeded", reasons=True))

    with pytest.raises(StorageFailed, match="cannot write to the tables sleeper-"):
        store_of(client, f"sleeper-{new_id()}-").save([file("a")])


def test_a_server_that_is_down_is_an_error():
    """For reads and writes."""
    store = store_of(dynamo_client(f"http://127.0.0.1:{free_port()}", attempts=1), "sleeper-a-")

    with pytest.raises(StorageFailed, match="there is no answer"):
        store.pending()
    with pytest.raises(StorageFailed, match="there is no answer"):
        store.save([file("a")])


def test_two_processes_put_each_file_into_one_job(dynamo_endpoint, tables):
    """They assign the same files at once, by one transaction or several."""
    store = store_of(tables)
    files = [file(f"{n:03d}", n) for n in range(150)]
    store.save(files)
    command = [sys.executable, "-m", "tests.contracts.jobs.dynamo_race", dynamo_endpoint]
    prefix = tables.name(SUBMITTED_FILES).removesuffix(SUBMITTED_FILES.name)

    running = [
        subprocess.Popen(
            [*command, prefix, name], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": "."}
        )
        for name in ("one", "two")
    ]
    told = [json.loads(each.communicate(timeout=PATIENCE_S)[0]) for each in running]

    jobs = {job_id: paths for each in told for job_id, paths in each.items() if paths}
    assert sorted(path for paths in jobs.values() for path in paths) == paths_of(files)
    assert {job.job_id: sorted(job.paths) for job in store.unsent()} == {
        job_id: sorted(paths) for job_id, paths in jobs.items()
    }


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (0, [[], [], [], []]),  # before the note, two groups of files, and the end
        (3, [[], [], [], [FILES_TOGETHER], [FILES_TOGETHER]]),
    ],
)
def test_a_job_of_many_files_is_not_sent_before_it_is_finished(
    dynamo, tables, monkeypatch, steps, expected
):
    """Another batcher sees it once all files are in it; after a minute it finishes the job."""
    clock = Clock()
    prefix = tables.name(SUBMITTED_FILES).removesuffix(SUBMITTED_FILES.name)
    maker, other = store_of(tables, now=clock.now), store_of(dynamo, prefix, clock.now)
    files = [file(str(n)) for n in range(FILES_TOGETHER + 1)]
    maker.save(files)
    seen = []
    write_together = tables.write_together

    def watched(groups, guard=None):
        seen.append([len(job.paths) for job in other.unsent()])
        if len(seen) == steps:
            clock.sleep(UNFINISHED_MAX.total_seconds() + 1)
            seen.append([len(job.paths) for job in other.unsent()])
        return write_together(groups, guard)

    monkeypatch.setattr(tables, "write_together", watched)
    assigned = maker.assign("job", files, INGEST)

    assert seen == expected
    assert len(assigned) == (expected[-1] or [len(files)])[0]
    [job] = other.unsent()
    assert sorted(job.paths) == sorted(paths_of(assigned))
    assert len(other.pending()) == len(files) - len(assigned)


def test_tables_are_made_as_amazon_is_to_keep_them(dynamo):
    """With upstream's names and keys, on demand, with an expiry; twice does no harm."""
    prefix = f"sleeper-{new_id()}-"
    every = [job_updates(JobKind.INGEST), job_lookup(JobKind.COMPACTION), SUBMITTED_FILES]
    every += [task_status(JobKind.COMPACTION)]

    for _ in range(2):
        DynamoTables(lambda: dynamo, prefix, pause=pause, new_id=new_id).make(*every)

    found = []
    for table in every:
        name = prefix + table.name
        described = dynamo.describe_table(TableName=name)["Table"]
        assert described["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
        ttl = dynamo.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
        assert (ttl["TimeToLiveStatus"], ttl["AttributeName"]) == ("ENABLED", table.expiry)
        found.append((table.name, *(key["AttributeName"] for key in described["KeySchema"])))
    assert found == [
        ("ingest-job-updates", "TableId", "JobIdAndUpdate"),
        ("compaction-job-lookup", "JobId", "TableId"),
        ("ingest-batcher-store", "JobId", "FilePath"),
        ("compaction-task-status", "TaskId", "UpdateTime"),
    ]


def test_submitted_files_have_upstreams_attributes(dynamo, tables):
    """A file of an unsent job has no expiry, so that Amazon does not delete it (rule BAT-2)."""
    store = store_of(tables)
    store.save([file("bucket/a.parquet"), file("b")])
    store.assign("job", [file("b")], INGEST)

    def items():
        return {
            (item["JobId"]["S"], item["FilePath"]["S"]): "ExpiryTime" in item
            for item in dynamo.scan(TableName=tables.name(SUBMITTED_FILES))["Items"]
        }

    unsent = items()
    store.note_sent("job")

    pending = ("not_assigned_to_job", "flights/bucket/a.parquet")
    assert unsent == {pending: True, ("job", "flights/b"): False}
    assert items() == {pending: True, ("job", "flights/b"): True}


def test_a_path_may_be_longer_than_a_key(tables):
    """Two that begin alike are two files."""
    store = store_of(tables)
    long = [file("é" * 600 + end) for end in "xy"]

    store.save(long)
    assigned = store.assign("job", [long[1]], INGEST)

    assert paths_of(assigned) == [long[1].path]
    assert store.pending() == [long[0]]


def test_a_job_that_moves_up_while_jobs_are_listed_is_listed_once(tables):
    """At the end, if it had not been listed before."""
    tracker = DynamoTracker(tables, now=lambda: NOON, pause=pause)
    tracker.record([event(f"{n:03d}", hour(n)) for n in range(60)], expires=LATER)

    listed = tracker.jobs(INGESTS)
    first = next(listed)
    tracker.record([event(name, hour(99)) for name in ("059", "001")], expires=LATER)
    ids = [events[0].job_id for events in (first, *listed)]

    assert sorted(ids) == [f"{n:03d}" for n in range(60)]
    assert (ids[0], ids[-1]) == ("059", "001")


def test_a_lost_reply_of_any_write_of_the_tracker_changes_nothing(dynamo_endpoint):
    """Every event is there once, in order."""
    events = [event(at=hour(n), run_id=str(n)) for n in range(10)]
    for number in (1, 2, 3):
        faults = Faults(dynamo_endpoint, "lost", number)
        tracker = tracker_of(faults.client)

        tracker.record([*events, task_event()], expires=LATER)

        assert tracker.events_of_job(JobKind.INGEST, "job") == events
        assert list(tracker.tasks()) == [[task_event()]]
        assert faults.writes == 4


def test_two_events_of_a_task_may_have_one_time(tables):
    """Neither replaces the other."""
    tracker = DynamoTracker(tables, now=lambda: NOON, pause=pause)
    both = [task_event(), task_event(is_finished=True)]

    for _ in range(2):
        tracker.record(both, expires=LATER)

    assert list(tracker.tasks()) == [both]


def test_a_long_message_is_compressed(tables):
    """What is too long even then is an error, and nothing is recorded."""
    tracker = DynamoTracker(tables, now=lambda: NOON, pause=pause)
    long = event(type=JobEventType.REJECTED, message="x" * 1_000_000, reasons=("bad",))
    random = "".join(chr(0x4E00 + each) for each in os.urandom(700_000))

    tracker.record([long], expires=LATER)
    with pytest.raises(StorageFailed, match="an item of DynamoDB may have"):
        tracker.record([event("huge", message=random)], expires=LATER)

    assert list(tracker.jobs(INGESTS)) == [[long]]


def test_events_have_upstreams_attributes(dynamo, tables):
    """Beside the whole event, for those who read the tables by other tools (rule TRK-8)."""
    tracker = DynamoTracker(tables, now=lambda: NOON, pause=pause)
    refused = event(type=JobEventType.REJECTED, reasons=("a", "b"), message="{}", input_files=2)

    tracker.record([refused], expires=LATER)

    [item] = dynamo.scan(TableName=tables.name(job_updates(JobKind.INGEST)))["Items"]
    assert item["JobIdAndUpdate"]["S"].startswith("job|1777896000123|")
    assert item["ExpiryDate"]["N"] == str(int(LATER.timestamp()) + 1)
    assert item["UpdateType"]["S"] == "validated"
    assert item["ValidationResult"]["S"] == "REJECTED"
    assert [each["S"] for each in item["ValidationReasons"]["L"]] == ["a", "b"]
    assert item["InputFilesCount"]["N"] == "2"


def test_the_commit_of_a_compaction_has_its_time(dynamo, tables):
    """As upstream's clients read it (rule TRK-8)."""
    tracker = DynamoTracker(tables, now=lambda: NOON, pause=pause)
    committed = event(kind=JobKind.COMPACTION, type=JobEventType.COMMITTED, transaction=9)

    tracker.record([committed], expires=LATER)

    [item] = dynamo.scan(TableName=tables.name(job_updates(JobKind.COMPACTION)))["Items"]
    assert (item["UpdateType"]["S"], item["CommitTime"]["N"]) == ("committed", "1777896000123")


@pytest.mark.parametrize(("busy_s", "rates"), [(4.0, (25.0, 12.5)), (0.0, (None, None))])
def test_a_finished_task_has_its_rates(dynamo, tables, busy_s, rates):
    """Rows a second of the seconds spent on jobs; none without any (rule TRK-6)."""
    tracker = DynamoTracker(tables, now=lambda: NOON, pause=pause)
    done = task_event(is_finished=True, jobs=2, rows_read=100, rows_written=50, busy_s=busy_s)

    tracker.record([done], expires=LATER)

    [item] = dynamo.scan(TableName=tables.name(task_status(done.kind)))["Items"]
    found = [item.get(name) for name in ("ReadRate", "WriteRate")]
    assert tuple(None if each is None else float(each["N"]) for each in found) == rates


def test_rejected_jobs_are_found_by_upstreams_index(dynamo, tables):
    """By what was said of them last; a job that is accepted later is rejected no longer (TRK-7)."""
    tracker = DynamoTracker(tables, now=lambda: NOON, pause=pause)
    for job_id, types in {
        "refused": (JobEventType.REJECTED,),
        "mended": (JobEventType.REJECTED, JobEventType.ACCEPTED, JobEventType.STARTED),
        "spoilt": (JobEventType.ACCEPTED, JobEventType.FAILED, JobEventType.REJECTED),
        "unknown": (JobEventType.STARTED,),
    }.items():
        for type_ in types:
            tracker.record([event(type=type_, job_id=job_id)], expires=LATER)

    found = dynamo.query(
        TableName=tables.name(job_lookup(JobKind.INGEST)),
        IndexName="by-validation",
        KeyConditionExpression="LastValidationResult = :rejected",
        ExpressionAttributeValues={":rejected": {"S": "REJECTED"}},
    )["Items"]

    assert {item["JobId"]["S"] for item in found} == {"refused", "spoilt"}
    assert all(item["TableId"]["S"] for item in found)


def test_a_submission_of_many_files_that_fails_is_completed_by_its_next_delivery(dynamo_endpoint):
    """Groups of 50 are stored all or none."""
    faults = Faults(dynamo_endpoint, "killed before", 2)
    store = store_of(faults.client, f"sleeper-{new_id()}-")
    files = [file(f"{n:03d}", 0) for n in range(SAVED_TOGETHER + 1)]

    with pytest.raises(Killed):
        store.save(files)
    stored = len(store.pending())
    store.save(files)

    assert stored == SAVED_TOGETHER
    assert paths_of(store.pending()) == paths_of(files)


def test_a_job_that_lost_its_files_is_forgotten(dynamo, tables):
    """Its maker was killed before it deleted it."""
    store = store_of(tables, now=lambda: NOON + timedelta(minutes=2))
    maker = store_of(tables)
    maker.save([file("a")])
    maker.assign("job", [file("a")], INGEST)
    dynamo.delete_item(
        TableName=tables.name(SUBMITTED_FILES),
        Key={"JobId": {"S": "job"}, "FilePath": {"S": "flights/a"}},
    )

    assert store.unsent() == []
    jobs = dynamo.scan(TableName=tables.name(BATCHER_JOBS))["Items"]
    assert [item["EntryKind"]["S"] for item in jobs] == ["file flights/a"]


@pytest.mark.parametrize("years", [-20, 20])
def test_events_of_a_clock_that_is_years_wrong_are_kept(dynamo, years):
    """A worker's clock says when things happened, and the server's how long they are kept."""
    prefix = f"sleeper-{new_id()}-"
    tables = DynamoTables(lambda: dynamo, prefix, pause=pause, new_id=new_id)
    wrong, right = Clock(), Clock()
    right.time = datetime.now(UTC)
    wrong.time = right.time + timedelta(days=365 * years)
    worker = DynamoTracker(tables, now=wrong.now, pause=pause)
    happened = event("j", at=wrong.time)
    begun = task_event("w", at=wrong.time)

    worker.record([happened, begun], expires=wrong.time + timedelta(days=7))

    for clock in (right, wrong):
        again = DynamoTables(lambda: dynamo, prefix, pause=pause, new_id=new_id)
        reader = DynamoTracker(again, now=clock.now, pause=pause)
        assert reader.events_of_job(JobKind.INGEST, "j") == [happened]
        assert [*reader.jobs(INGESTS)] == [[happened]]
        assert [*reader.tasks(JobKind.INGEST)] == [[begun]]
    # and a clock that is ahead hides nothing that others recorded
    other = event("k", at=right.time)
    DynamoTracker(tables, now=right.now, pause=pause).record(
        [other, task_event("v", at=right.time)], expires=right.time + timedelta(days=7)
    )
    assert reader.events_of_job(JobKind.INGEST, "k") == [other]
    assert {task.task_id for (task,) in reader.tasks(JobKind.INGEST)} == {"v", "w"}
    # the server deletes nothing before a week is over
    name = tables.name(job_lookup(JobKind.INGEST))
    (entry,) = (each for each in dynamo.scan(TableName=name)["Items"] if each["JobId"]["S"] == "j")
    kept = int(entry["ExpiryDate"]["N"]) - right.time.timestamp()
    assert kept >= timedelta(days=7).total_seconds() - 5
    assert years > 0 or kept <= timedelta(days=7).total_seconds() + 60


def test_a_query_of_a_clock_that_is_years_behind_is_found_by_clients(dynamo):
    """Upstream's clients read an item of their own, which is kept as long."""
    prefix = f"sleeper-{new_id()}-"
    tables = DynamoTables(lambda: dynamo, prefix, pause=pause, new_id=new_id)
    clock = Clock()
    clock.time = datetime.now(UTC) - timedelta(days=5_000)
    worker = DynamoTracker(tables, now=clock.now, pause=pause)

    worker.record(
        [event("q", kind=JobKind.QUERY, at=clock.time)], expires=clock.time + timedelta(days=7)
    )

    (item,) = dynamo.scan(TableName=tables.name(QUERY_STATES))["Items"]
    assert int(item["expiryDate"]["N"]) > datetime.now(UTC).timestamp() + 86_400
