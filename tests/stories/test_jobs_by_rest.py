"""Jobs of an instance by its server: the command line and Python tell what they tell locally."""

from __future__ import annotations

import json
from inspect import signature
from itertools import islice

import httpx
import pytest

import sleeper
from sleeper.errors import BadRequest
from sleeper.interfaces.remote import remote_jobs
from sleeper.interfaces.remote.remote_jobs import RemoteJobs
from sleeper.interfaces.rest.app import make_app
from sleeper.jobs.instance_jobs import InstanceJobs
from sleeper.model.jobs.events import TaskEvent
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.model.jobs.statuses import JobState
from sleeper.model.jobs.submitted_files import FileState
from sleeper.workers.kinds.batcher import run_batcher
from tests.patience import PATIENCE_S
from tests.stories.test_ingest_jobs import SCHEMA, instance, work, written
from tests.unit.interfaces.command_line import sleeper as command
from tests.unit.interfaces.rest.running_server import running_server

__all__ = ["instance"]


@pytest.fixture
def folder(tmp_path):
    """The folder from which jobs may read."""
    made = tmp_path / "in"
    made.mkdir()
    return made


@pytest.fixture
def url(instance, folder):
    with running_server(make_app(instance, input_folder=folder)) as url:
        yield url


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """An instance with jobs of all kinds, which nobody changes, and the URL of its server."""
    folder = tmp_path_factory.mktemp("served")
    with sleeper.connect(folder / "instance", create=True) as opened:
        opened.create_table("numbers", SCHEMA, row_keys=["id"])
        run_jobs(opened, folder)
        with running_server(make_app(opened)) as url:
            yield opened, url


def run_jobs(instance, folder):
    """Have jobs done, refused, waiting, and delivered no more, and a worker killed."""
    jobs, table = instance.jobs, instance.table("numbers")
    jobs.submit_ingest("numbers", written(folder / "a.parquet", 1, 2), "done")
    gone = {"id": "refused", "tableName": "numbers", "files": [str(folder / "gone.parquet")]}
    jobs.send("ingest", json.dumps(gone))
    work(instance)
    jobs.submit_query("numbers", key="0001", query_id="q")
    jobs.submit_export("numbers", "e")
    for kind in ("query", "export"):
        work(instance, kind)
    table.set_properties({"sleeper.table.ingest.batcher.job.min.size": 0})
    jobs.submit_files("numbers", written(folder / "b.parquet", 3))
    work(instance, "batcher")
    lost = TaskEvent(
        kind=JobKind.INGEST,
        task_id="killed",
        at=jobs.recorder.now(),
        host="far",
        pid=7,
        is_finished=False,
    )
    jobs.recorder.record(lost)
    jobs.send("ingest", "{}")
    queue = jobs.stores.queue(QueueName.INGEST)
    (message,) = queue.receive()
    queue.bury(message.receipt, "nobody knows what it wants")
    jobs.submit_ingest("numbers", folder / "a.parquet", "waits")
    instance.pause_switch.pause()


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize(
    "asked",
    [
        "jobs list",
        "jobs list --unfinished",
        "jobs list --state REJECTED --limit 1",
        "jobs list --limit 2",
        "jobs list --task killed",
        "jobs list --table numbers --since 2026-01-01 --until 2999-01-01",
        "jobs list --kind compaction",
        "jobs show done",
        "jobs show refused --table numbers",
        "jobs show none",
        "jobs queries",
        "jobs queries --exports --state COMPLETED",
        "jobs wait done",
        "jobs wait done refused",
        "jobs wait waits --timeout 0.5",
        "batcher report",
        "batcher report --pending",
        "queue dead-letters ingest",
        "queue dead-letters query",
        "report",
        "report tasks",
        "report tasks --kind ingest --unfinished --limit 1",
        "report dead-letters",
    ],
)
def test_a_command_tells_by_the_server_what_it_tells_of_the_folder(served, asked, more):
    """Given jobs of all kinds, then output and exit code are those of the instance (TRK-10)."""
    instance, url = served
    here, there = (
        command(*asked.split(), *more, "--instance", place) for place in (instance.url, url)
    )

    assert there.exit_code == here.exit_code, there.output
    assert there.stdout == here.stdout
    assert there.stderr == here.stderr


def test_queues_are_told_by_the_server(served):
    """As of the folder; only the oldest message is older at the next look."""
    here, there = (
        json.loads(command("queue", "list", "--json", "--instance", place).stdout)
        for place in (served[0].url, served[1])
    )

    assert there["ingest"].pop("oldest_s") >= here["ingest"].pop("oldest_s") >= 0
    assert there == here
    assert (there["ingest"]["ready"], there["ingest"]["dead"]) == (1, 1)


def test_jobs_are_submitted_and_waited_for_by_the_server(instance, url, folder, monkeypatch):
    """Given a path in the folder of whoever types, when a worker ran, then its rows are there."""
    written(folder / "a.parquet", 1, 2)
    monkeypatch.chdir(folder)
    asked = ("jobs", "submit", "numbers", "a.parquet", "--instance", url)

    named = command(*asked, "--id", "mine")
    other = json.loads(command(*asked, "--json").stdout)["job_id"]

    assert named.stdout == "submitted job mine; sleeper jobs show mine tells what becomes of it\n"
    assert instance.jobs.job(other).state is JobState.ACCEPTED
    work(instance)
    waited = command("jobs", "wait", "mine", other, "--instance", url)
    assert waited.exit_code == 0
    assert waited.stdout == f"job mine is FINISHED\njob {other} is FINISHED\n"
    again = command(*asked, "--id", "mine", "--wait")
    assert (again.exit_code, again.stdout) == (0, "job mine is FINISHED\n")
    assert len(instance.table("numbers")) == 4


def test_what_failed_is_tried_again_by_the_server(instance, url, folder):
    """Given a file that vanished and a dead letter, then both are sent again, and the rest goes."""
    table = instance.table("numbers")
    table.set_properties(
        {
            "sleeper.table.ingest.batcher.job.min.size": 0,
            "sleeper.table.ingest.batcher.ingest.queue": "standard_ingest",
        }
    )
    paths = [written(folder / f"{number}.parquet", number) for number in (1, 2)]
    sent = command("batcher", "submit", "numbers", *paths, "--instance", url)
    assert sent.stdout == "submitted 2 paths for numbers\n"
    work(instance, "batcher")
    paths[0].unlink()
    run_batcher(instance.jobs, instance.jobs.recorder.now())
    work(instance)
    assert {file.state for file in instance.jobs.submitted_files()} == {FileState.REJECTED}

    retried = command("batcher", "retry", "--instance", url)

    assert retried.stdout == (
        f"1 job of 1 file will be sent again\nleft out, as it is not there: {paths[0]}\n"
    )
    instance.jobs.send("ingest", "{}")
    queue = instance.jobs.stores.queue(QueueName.INGEST)
    (message,) = queue.receive()
    queue.bury(message.receipt, "no worker lived")
    redriven = command("queue", "redrive", "ingest", "--instance", url)
    assert redriven.stdout == "put 1 message back into the ingest queue\n"
    assert instance.jobs.queue_depths()[QueueName.INGEST].ready == 1


@pytest.mark.parametrize(
    "asked",
    [
        f"jobs send ingest {__file__}",
        "queue purge ingest",
        "batcher run",
        "worker ingest",
        "report full",
    ],
)
def test_what_no_server_does_is_refused_with_what_to_do(url, asked):
    """Nothing is asked before, and the message names the folder or bucket."""
    done = command(*asked.split(), "--instance", url)

    assert done.exit_code == 1
    assert done.stdout == ""
    assert done.stderr == (
        f"sleeper: '{url}' is a server, and this needs the instance itself: its folder, or "
        "s3://bucket/folder\n"
    )


def test_files_that_the_server_may_not_read_are_refused_with_what_to_do(url, tmp_path):
    """Workers read files by their own rights, so the path of a client is mostly none of theirs."""
    done = command("jobs", "submit", "numbers", tmp_path / "a.parquet", "--instance", url)

    assert done.exit_code == 1
    assert "files of jobs must be in buckets, or below" in done.stderr


def test_workers_are_told_as_locally(served):
    """Given workers that ended and one that was killed, then each is told, or those chosen (TRK-6)."""
    here, jobs = served[0].jobs, sleeper.connect(served[1], token=None).jobs

    assert [*jobs.tasks()] == [*here.tasks()]
    assert {task.kind for task in jobs.tasks()} == {"ingest", "query", "export"}
    assert [*jobs.tasks("query")] == [*here.tasks("query")]
    assert [task.task_id for task in jobs.tasks(unfinished=True)] == ["killed"]
    assert [*here.tasks(unfinished=True)] == [*jobs.tasks("ingest", unfinished=True)]
    (worker,) = {run.task_id for run in here.job("done").runs}
    assert [job.job_id for job in jobs.list(task_id=worker)] == ["done"]
    assert [*jobs.list(task_id="killed")] == []


def test_what_is_no_kind_no_state_and_no_time_is_refused_as_locally(served):
    """By the same words."""
    here, jobs = served[0].jobs, sleeper.connect(served[1], token=None).jobs
    wrong = ({"kind": "none"}, {"state": "DONE"}, {"since": "today"})
    for asked in wrong:
        with pytest.raises(BadRequest) as locally:
            here.list(**asked)
        with pytest.raises(BadRequest) as remotely:
            jobs.list(**asked)
        assert str(remotely.value) == str(locally.value)
    for files in ([], [""], b"a"):
        with pytest.raises(BadRequest, match="files"):
            jobs.submit_ingest("numbers", files)
    with pytest.raises(BadRequest, match="kind is 'none'"):
        jobs.tasks("none")


def test_a_list_never_ends_early_in_silence(served, monkeypatch):
    """Given more than a server lists, then what it lists is told, and after it that there is more."""
    url = served[1]
    jobs = sleeper.connect(url, token=None).jobs
    monkeypatch.setattr(remote_jobs, "_LISTED_MAX", 2)

    assert len([*islice(jobs.list(), 2)]) == 2
    for listed in (jobs.list, jobs.tasks):
        with pytest.raises(BadRequest, match="lists 2 at most, and there are more"):
            [*listed()]
    assert len([*jobs.queries()]) == 1
    few = command("jobs", "list", "--limit", 1, "--instance", url)
    assert "there are more than 1: --limit shows more" in few.stdout
    many = command("jobs", "list", "--limit", 5000, "--instance", url)
    assert (many.exit_code, many.stdout) == (1, "")
    assert "take fewer of them, choose by table, state or time" in many.stderr


@pytest.mark.parametrize("name", ["list", "tasks", "queries", "submitted_files"])
def test_a_list_of_just_as_many_as_a_server_lists_is_whole(served, monkeypatch, name):
    """Given as many as are listed at once, and no more, then the list ends without an error."""
    here = [*getattr(served[0].jobs, name)()]
    monkeypatch.setattr(remote_jobs, "_LISTED_MAX", len(here))

    assert here
    assert [*getattr(sleeper.connect(served[1], token=None).jobs, name)()] == here


def test_a_bulk_import_names_its_platform_and_settings(instance, url, folder):
    """Given a queue and settings of Spark, then the message has them, as it has locally."""
    there, file = sleeper.connect(url, token=None).jobs, written(folder / "a.parquet", 1)
    asked = {"queue": "bulk-import-eks", "spark_conf": {"spark.executor.instances": "4"}}
    sent = []
    for jobs in (instance.jobs, there):
        assert jobs.submit_bulk_import("numbers", file, "june", **asked) == "june"
        queue = instance.jobs.stores.queue(QueueName.BULK_IMPORT_EKS)
        (message,) = queue.receive()
        queue.delete([message.receipt])
        sent.append(json.loads(message.body))

    assert sent[0]["sparkConf"] == {"spark.executor.instances": "4"}
    assert sent[1] == sent[0]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"queue": "query"}, "query is no queue for bulk imports"),
        ({"queue": "emr"}, "there is no queue 'emr'"),
        ({"spark_conf": {"spark.executor.instances": 4}}, "spark_conf is .* must map names to"),
        ({"job_id": ""}, "job_id is blank"),
    ],
    ids=lambda each: str(each)[:30],
)
def test_a_bulk_import_is_checked_as_locally(instance, url, folder, asked, message):
    """By the same words."""
    there, file = sleeper.connect(url, token=None).jobs, written(folder / "a.parquet", 1)

    for jobs in (instance.jobs, there):
        with pytest.raises(BadRequest, match=message):
            jobs.submit_bulk_import("numbers", file, **asked)


def test_an_ingest_has_no_platform_and_no_settings(instance, url, folder):
    """By a request of one's own: what would be left out in silence is refused."""
    body = {"files": [str(written(folder / "a.parquet", 1))]}

    for more in ({"queue": "bulk-import-eks"}, {"spark_conf": {"spark.task.cpus": "1"}}):
        answer = httpx.post(
            f"{url}/sleeper/tables/numbers/jobs", json=body | more, timeout=PATIENCE_S
        )

        assert answer.status_code == 400
        assert (
            "queue and spark_conf are for jobs of the kind bulk-import" in answer.json()["detail"]
        )


@pytest.mark.parametrize(
    "name", sorted(each for each in vars(RemoteJobs) if not each.startswith("_"))
)
def test_a_method_takes_what_it_takes_locally(name):
    """Code that submits and follows jobs can use either."""
    here, there = getattr(InstanceJobs, name), getattr(RemoteJobs, name)

    assert [*signature(there).parameters] == [*signature(here).parameters]
