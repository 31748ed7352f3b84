"""Real processes commit to one table, on each kind of storage: some to the end, some until killed.

No commit that was acknowledged is lost, and none is there twice.
"""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

import sleeper
from tests.any_order.forked_workers import Workers
from tests.any_order.run_until_killed import SCHEMA
from tests.contracts.s3_server import CREDENTIALS, REGION, aws_endpoint, s3_credentials, s3_server
from tests.soak import FIRST_SEED, SOAK, tries

__all__ = ["aws_endpoint", "s3_credentials", "s3_server"]

WRITERS, COMMITS = tries(4, soak=8), tries(5, soak=20)
KILLS, AT_ONCE = tries(5, soak=100), 3
CLASS_NAME = "sleeper.table.statestore.classname"
FOLDER, BUCKET = "folder", "bucket"
CLASSES = (
    "TransactionLogStateStore",
    "DynamoDBTransactionLogStateStore",
    "DynamoDBStateStore",
    "S3StateStore",
)
EVERY = [(FOLDER, "TransactionLogStateStore"), *((BUCKET, each) for each in CLASSES)]
PLACES = EVERY if SOAK else EVERY[-2:]


@pytest.fixture(params=PLACES, ids="-".join)
def table(request, tmp_path):
    """A table whose state is kept in a place, as a process opens it; its instance's URL."""
    place, class_name = request.param
    url = str(tmp_path / "instance")
    if place == BUCKET:
        request.getfixturevalue("aws_endpoint")
        url = f"s3://{request.getfixturevalue('s3_server').new_bucket()}/instance"
    with sleeper.connect(url, create=True) as instance:
        properties = {CLASS_NAME: class_name}
        instance.create_table("jobs", SCHEMA, row_keys=["job", "n"], properties=properties)
    return url


@pytest.fixture(scope="module")
def workers(s3_server):
    """Processes that find storage where this one does."""
    found = {"AWS_ENDPOINT_URL": s3_server.endpoint, "AWS_REGION": REGION, **CREDENTIALS}
    started = Workers(max(WRITERS, AT_ONCE), {**found, "NO_PROXY": "127.0.0.1"})
    yield started
    started.close()


def check(url, acknowledged):
    """All that was acknowledged is there, once, and nothing has been told of another number."""
    with sleeper.connect(url) as instance:
        state = instance.table("jobs").state()
    jobs = {job_id: record.number for job_id, record in state.jobs.records()}
    assert {job_id: jobs.get(job_id) for job_id in acknowledged} == acknowledged
    files = [each.filename.rpartition("/")[2] for each in state.references()]
    assert sorted(files) == sorted(f"{job_id}.parquet" for job_id in jobs)
    assert sorted(jobs.values()) == list(range(2, 2 + len(jobs)))
    assert state.number == 1 + len(jobs)
    return jobs


def acknowledged_in(told, happened):
    """Return the jobs that processes told of, by their numbers, and count what else happened."""
    pairs = [line.split(":") for line in told]
    happened.update(what for number, what in pairs if number == "-1")
    return {job_id: int(number) for number, job_id in pairs if number != "-1"}


@pytest.mark.soak
def test_every_commit_of_many_processes_is_there_once(workers, table):
    """STS-13: all write to one table at once, and each commit gets a number of its own."""
    happened: Counter[str] = Counter()
    begun = time.monotonic()

    started = [workers.start("commit", n, table, f"w{n}", 0, COMMITS) for n in range(WRITERS)]
    for process_id in started:
        workers.wait(process_id)
    took_s = time.monotonic() - begun
    acknowledged = {}
    for slot in range(WRITERS):
        acknowledged |= acknowledged_in(workers.told(slot), happened)

    assert len(acknowledged) == WRITERS * COMMITS
    assert check(table, acknowledged) == acknowledged
    print(f"{len(acknowledged)} commits in {took_s:.1f} s, {dict(happened)}")  # noqa: T201


@pytest.mark.soak
def test_no_commit_is_lost_or_doubled_by_kills(workers, table):
    """F1, STS-13: processes are killed anywhere in a commit, and others repeat their last job."""
    draw = random.Random(FIRST_SEED)
    happened: Counter[str] = Counter()
    acknowledged: dict[str, int] = {}
    kills = 0

    while kills < KILLS:
        started = []
        for slot in range(min(AT_ONCE, KILLS - kills)):
            first = sum(job_id.startswith(f"s{slot}-") for job_id in acknowledged)
            started.append(workers.start("commit", slot, table, f"s{slot}", first, 10_000))
        told = workers.wait_for_more(draw.randrange(len(started)))
        for process_id in draw.sample(started, len(started)):
            time.sleep(draw.uniform(0, 0.05))
            workers.kill(process_id)
            kills += 1
        for slot in range(len(started)):
            told += workers.told(slot)
        acknowledged |= acknowledged_in(told, happened)
        jobs = check(table, acknowledged)

    assert len(acknowledged) >= 1
    unheard = len(jobs) - len(acknowledged)
    print(  # noqa: T201 - pytest -s shows how much was tried
        f"{kills} kills, {len(acknowledged)} commits, {unheard} there without, {dict(happened)}"
    )
