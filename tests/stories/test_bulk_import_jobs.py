"""A bulk import is asked for by a message, and runs where its queue and the properties say."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import sleeper
from sleeper.errors import SubmissionFailed
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.statuses import JobState
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.spark.submit.driver_process import run_driver
from sleeper.spark.submit.request import CommandRequest
from sleeper.spark.submit.submitted_jobs import SubmittedJobs
from sleeper.workers.driver_run import reported_run
from sleeper.workers.job import JobOutcome, RunContext
from sleeper.workers.kinds.bulk_import import BulkImportWork, where_jobs_run
from sleeper.workers.stop_signal import Interrupted
from tests.patience import becomes_true
from tests.stories.test_ingest_jobs import SCHEMA, instance, work, written

__all__ = ["instance"]


def is_running(process: int) -> bool:
    """Return whether a process runs; one that has ended and waits for its parent does not."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_a_job_runs_on_the_worker_s_machine(instance, tmp_path):
    """Given a job of the plain queue, when a worker runs, then the rows are in the table."""
    path = written(tmp_path / "one.parquet", 1, 2, 3)
    job_id = instance.jobs.submit_bulk_import("numbers", path)

    assert work(instance, "bulk-import") == 1

    status = instance.jobs.job(job_id)
    assert status.state is JobState.FINISHED
    assert status.platform == "local, local"
    assert instance.table("numbers").query().to_arrow().num_rows == 3


def test_a_platform_that_is_not_set_up_is_the_worker_s_machine(instance, tmp_path, caplog):
    """Given the queue of EMR Serverless and no application, then the job runs here, as is logged."""
    caplog.set_level("INFO", "sleeper")
    path = written(tmp_path / "one.parquet", 1)
    instance.jobs.submit_bulk_import("numbers", path, "june", queue="bulk-import-emr-serverless")

    assert work(instance, "bulk-import") == 1

    assert instance.jobs.job("june").state is JobState.FINISHED
    assert (
        "job june of the bulk-import-emr-serverless queue runs in a worker of bulk imports, as "
        "emr-serverless is not set up" in caplog.text
    )
    assert "sleeper.bulk.import.emr.serverless.application.id" in caplog.text


@pytest.mark.parametrize(
    ("queue", "properties", "where"),
    [
        ("ingest", {}, "in a worker of ingest jobs"),
        ("bulk-import", {}, "in a worker of bulk imports"),
        (
            "bulk-import-eks",
            {"local.spark.master": "local[2]"},
            (
                "on Spark at local[2], by a driver beside a worker of bulk imports, as eks is not set "
                "up: sleeper.bulk.import.eks.statemachine.arn is not set"
            ),
        ),
        ("bulk-import-persistent-emr", {"persistent.emr.cluster.name": "c"}, "on persistent-emr"),
    ],
)
def test_where_jobs_of_a_queue_run_is_told(queue, properties, where):
    """By the queue and the instance's properties, as the batcher's report says it (BAT-6)."""
    values = {f"sleeper.bulk.import.{name}": value for name, value in properties.items()}

    assert where_jobs_run(QueueName(queue), InstanceProperties(values)) == where


def test_a_driver_that_leaves_its_commit_to_the_committer_is_logged_with_its_figures(
    instance, tmp_path, monkeypatch, caplog
):
    """Given a driver's run of three rows, then the log and the task have them, and so has the job."""
    caplog.set_level(logging.INFO)
    instance.table("numbers").set_properties(
        {"sleeper.table.statestore.commit.async.enabled": True}
    )

    def driver(work_: BulkImportWork, run: RunContext) -> JobOutcome:
        table, place = instance.table("numbers"), f"bulk_import/{work_.job_id}-{run.run_id}.json"
        send = partial(instance.jobs.send_commit, table, task_id=run.run_id, run_id=run.run_id)
        with reported_run(instance, table.table_id, work_.job, place, has_worker=True) as reported:
            reported(table.bulk_import(work_.job.paths, work_.job_id, send_commit=send))
        return JobOutcome(is_finished=False)

    monkeypatch.setattr(BulkImportWork, "run", driver)
    instance.jobs.submit_bulk_import("numbers", written(tmp_path / "a.parquet", 1, 2, 3), "a")
    work(instance, "bulk-import")

    assert "3 rows read, 3 written, transaction of the committer" in caplog.text
    status = instance.jobs.job("a")
    assert (status.state, len(status.runs)) == (JobState.UNCOMMITTED, 1)
    (task,) = instance.jobs.tasks("ingest")
    assert (task.jobs, task.rows_read, task.rows_written) == (1, 3, 3)
    work(instance, "commit")
    assert instance.jobs.job("a").state is JobState.FINISHED


def test_all_reasons_are_named_at_once(instance):
    """Given an id that upstream would not take, no table and no files, then all are named."""
    instance.jobs.send(QueueName.BULK_IMPORT, '{"id": "No_Good", "tableName": "x", "files": []}')

    assert work(instance, "bulk-import") == 0

    status = instance.jobs.job("No_Good")
    assert status.state is JobState.REJECTED
    assert status.reasons == (
        "Table not found: x",
        "Job Ids must only contain lowercase alphanumerics and dashes.",
        "The input files must be set to a non-null and non-empty value.",
    )


@pytest.mark.parametrize("name", ["com.example.Driver", "BulkImportJobRDDDriver2"])
def test_a_class_that_is_not_here_is_refused(instance, tmp_path, name):
    """Given a class that upstream does not have, then the job is rejected with it (BLK-1)."""
    path = written(tmp_path / "one.parquet", 1)
    job = {"id": "june", "tableName": "numbers", "files": [str(path)], "className": name}
    instance.jobs.send(QueueName.BULK_IMPORT, json.dumps(job))

    assert work(instance, "bulk-import") == 0

    status = instance.jobs.job("june")
    assert status.state is JobState.REJECTED
    assert status.reasons[0].startswith(f"className is {name!r}, which cannot run here")


def test_what_a_job_asks_for_in_vain_is_logged(instance, tmp_path, caplog):
    """Given upstream's class and settings of Spark, when no Spark runs, then both are logged."""
    caplog.set_level("INFO", "sleeper")
    path = written(tmp_path / "one.parquet", 1)
    job = {
        "id": "june",
        "tableName": "numbers",
        "files": [str(path)],
        "className": "sleeper.bulkimport.runner.rdd.BulkImportJobRDDDriver",
        "sparkConf": {"spark.executor.memory": "3g"},
    }
    instance.jobs.send(QueueName.BULK_IMPORT, json.dumps(job))

    assert work(instance, "bulk-import") == 1

    assert instance.jobs.job("june").state is JobState.FINISHED
    assert "there is one algorithm here" in caplog.text
    assert "job june ran without Spark: its sparkConf was not used" in caplog.text


def test_settings_that_spark_does_not_have_are_rejected(instance, tmp_path):
    """Given a misspelt setting and no size, then a worker without a cluster names both (BLK-2)."""
    path = written(tmp_path / "one.parquet", 1)
    conf = {"spark.executor.memroy": "3g", "spark.driver.memory": "big"}
    instance.jobs.submit_bulk_import("numbers", path, "june", spark_conf=conf)

    assert work(instance, "bulk-import") == 0

    status = instance.jobs.job("june")
    assert status.state is JobState.REJECTED
    assert status.reasons == (
        "spark.executor.memroy is no setting of Spark; did you mean spark.executor.memory?",
        "spark.driver.memory is 'big', but it must be a size, such as 6g",
    )


class TestAFullCluster:
    """The kept cluster of EMR takes two jobs at once; others wait in their queue."""

    QUEUE = "bulk-import-persistent-emr"

    @pytest.fixture
    def instance(self, tmp_path, monkeypatch):
        """An instance with a kept cluster, which takes what it is sent; jobs wait 0 s."""
        url = tmp_path / "kept"
        sleeper.create_instance(
            url,
            {
                "sleeper.bulk.import.persistent.emr.cluster.name": "kept",
                "sleeper.bulk.import.persistent.emr.cluster.full.requeue.delay": "600",
                "sleeper.bulk.import.environment": "s3://jars/environment",
                "sleeper.jobs.receives.max": 1,
            },
        ).close()
        # A cluster reaches buckets alone; here it is none that has to.
        monkeypatch.setattr(SubmittedJobs, "failures", lambda *_, **__: [])
        opened = sleeper.connect(url)
        opened.create_table("numbers", SCHEMA, row_keys=["id"])
        return opened

    @pytest.fixture
    def emr(self, monkeypatch):
        """The steps of the cluster, and what becomes of the next one."""
        cluster = Cluster()
        monkeypatch.setattr(SubmittedJobs, "steps_under_way", cluster.count)
        monkeypatch.setattr(SubmittedJobs, "submit", cluster.add)
        return cluster

    def submitted(self, instance, tmp_path) -> None:
        """Send a job for the cluster, and let a worker look."""
        path = written(tmp_path / "one.parquet", 1)
        instance.jobs.submit_bulk_import("numbers", path, "june", queue=self.QUEUE)
        work(instance, "bulk-import")

    def test_a_job_waits_in_the_queue(self, instance, emr, tmp_path, caplog):
        """Given two steps that wait or run, then the job comes again, and nothing failed (BLK-12)."""
        caplog.set_level("INFO", "sleeper")
        emr.steps = 2

        self.submitted(instance, tmp_path)

        depth = instance.jobs.queue_depths()[QueueName(self.QUEUE)]
        assert (depth.ready + depth.hidden, depth.dead) == (1, 0)
        assert emr.taken == []
        assert "waits for 600 s: kept is full: 2 steps wait or run" in caplog.text
        assert instance.jobs.job("june").runs == ()

    def test_a_job_that_has_waited_is_given_to_the_cluster(self, instance, emr, tmp_path):
        """Given room after a while, then the job is taken, though it may be received only once."""
        delay = "sleeper.bulk.import.persistent.emr.cluster.full.requeue.delay"
        instance.set_properties({delay: "1"})
        emr.steps = 2
        self.submitted(instance, tmp_path)
        emr.steps = 0

        assert becomes_true(lambda: work(instance, "bulk-import") == 1)

        assert emr.taken == ["june"]
        assert instance.jobs.dead_letters(self.QUEUE) == []

    def test_a_cluster_with_room_is_given_the_job(self, instance, emr, tmp_path):
        """Given one step, then another one is added."""
        emr.steps = 1

        self.submitted(instance, tmp_path)

        assert emr.taken == ["june"]
        assert instance.jobs.job("june").state is JobState.ACCEPTED

    def test_what_a_job_asks_for_is_logged(self, instance, emr, tmp_path, caplog):
        """Given a small file, then the log has executors, processors and bytes (BLK-4)."""
        caplog.set_level("INFO", "sleeper")

        self.submitted(instance, tmp_path)

        size_bytes = (tmp_path / "one.parquet").stat().st_size
        assert (
            "job june: the job asks for at most 1 executor of 5 vCPU and a driver of 5, 10 vCPU "
            f"together, for input of {size_bytes:,} bytes"
        ) in caplog.text

    def test_a_cluster_that_is_full_by_its_own_limit_has_the_job_wait_too(
        self, instance, emr, tmp_path
    ):
        """Given a refusal, then the run failed, and the job comes again, uncounted."""
        emr.refusal = SubmissionFailed("Maximum number of active steps", is_full=True)

        self.submitted(instance, tmp_path)

        depth = instance.jobs.queue_depths()[QueueName(self.QUEUE)]
        assert (depth.ready + depth.hidden, depth.dead) == (1, 0)
        assert not instance.jobs.job("june").is_over

    def test_a_cluster_that_cannot_be_asked_is_given_the_job(self, instance, emr, tmp_path, caplog):
        """Given no answer, then the run reports what is wrong."""
        caplog.set_level("INFO", "sleeper")
        emr.unasked = SubmissionFailed("no running cluster of EMR is named 'kept'")

        self.submitted(instance, tmp_path)

        assert emr.taken == ["june"]
        assert "the steps of persistent-emr cannot be counted: no running" in caplog.text


class Cluster:
    """A kept cluster of EMR."""

    def __init__(self) -> None:
        self.steps = 0
        self.taken: list[str] = []
        self.refusal: SubmissionFailed | None = None
        self.unasked: SubmissionFailed | None = None

    def count(self, _) -> int:
        """Return how many steps wait or run."""
        if self.unasked:
            raise self.unasked
        return self.steps

    def add(self, submission):
        """Take a job."""
        if self.refusal:
            raise self.refusal
        self.taken.append(submission.job.id)
        return replace(submission, started="s-1")


def test_what_a_cluster_could_not_do_is_rejected_with_the_rest(tmp_path):
    """Given a job that names files of this machine for EMR, then it is rejected, all told (F1)."""
    sleeper.create_instance(
        tmp_path / "one",
        {
            "sleeper.bulk.import.emr.serverless.application.id": "00abc",
            "sleeper.bulk.import.emr.serverless.role.arn": "arn:aws:iam::1:role/jobs",
        },
    ).close()
    instance = sleeper.connect(tmp_path / "one")
    instance.create_table("numbers", SCHEMA, row_keys=["id"])
    job = {
        "id": "june",
        "tableName": "numbers",
        "files": ["none"],
        "sparkConf": {"spark.driver.cores": "3"},
    }
    instance.jobs.send(QueueName.BULK_IMPORT_EMR_SERVERLESS, json.dumps(job))

    assert work(instance, "bulk-import") == 0

    status = instance.jobs.job("june")
    told = "\n".join(status.reasons)
    assert status.state is JobState.REJECTED
    for reason in (
        "Could not find one or more paths: none",
        "cannot reach the instance",
        "cannot reach the input 'none'",
        "sleeper.bulk.import.environment",
        "spark.driver.cores is 3",
    ):
        assert reason in told
    assert not [*(tmp_path / "one" / "bulk_import").glob("*")]


class TestDrivers:
    """A driver beside the worker, whose program is a script here: Spark's are in tests/spark."""

    @pytest.fixture
    def instance(self, tmp_path):
        """An instance that tries a job twice, on a Spark of its own."""
        return self.instance_of(tmp_path, "local[2]")

    def instance_of(self, tmp_path, master: str):
        """An instance with a table, and drivers for a master of Spark."""
        url = tmp_path / "on spark"
        sleeper.create_instance(
            url,
            {
                "sleeper.bulk.import.local.spark.master": master,
                "sleeper.jobs.receives.max": 2,
                "sleeper.jobs.retry.first.seconds": 0,
            },
        ).close()
        opened = sleeper.connect(url)
        opened.create_table("numbers", SCHEMA, row_keys=["id"])
        return opened

    @pytest.fixture
    def driver(self, tmp_path, monkeypatch):
        """Let drivers run a script."""
        program = tmp_path / "driver"

        def runs(script: str) -> None:
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)

        monkeypatch.setattr("sleeper.workers.kinds.bulk_import.sys.executable", str(program))
        return runs

    def test_a_job_whose_drivers_are_killed_ends_among_the_dead_letters(
        self, instance, driver, tmp_path
    ):
        """Given drivers that are killed each time, then the job is tried as often as allowed."""
        driver("kill -9 $$")
        path = written(tmp_path / "one.parquet", 1)
        instance.jobs.submit_bulk_import("numbers", path, "june")

        assert work(instance, "bulk-import") == 2

        status = instance.jobs.job("june")
        assert [run.state for run in status.runs] == [JobState.FAILED, JobState.FAILED]
        assert "was killed by signal 9" in status.reasons[0]
        assert status.is_over
        (letter,) = instance.jobs.dead_letters("bulk-import")
        assert "failed 2 times, at last: the Spark driver" in letter.reason

    def test_what_a_killed_driver_leaves_is_killed(self, instance, driver, tmp_path, monkeypatch):
        """Given a killed driver whose Java does not end, then Java is killed, and the job fails."""
        monkeypatch.setattr("sleeper.spark.submit.driver_process._JAVA_PATIENCE_S", 0.4)
        driver(f"sleep 600 & echo $! >> {tmp_path}/java; kill -9 $$")
        path = written(tmp_path / "one.parquet", 1)
        instance.jobs.submit_bulk_import("numbers", path, "june")

        assert work(instance, "bulk-import") == 2

        assert "was killed by signal 9" in instance.jobs.job("june").reasons[0]
        left = (tmp_path / "java").read_text().split()
        assert len(left) == 2
        assert becomes_true(lambda: not any(is_running(int(process)) for process in left))

    def test_what_a_driver_started_ends_with_it(self, instance, driver, tmp_path, monkeypatch):
        """Given a driver that is asked to end and does not, then its Java is killed with it."""
        monkeypatch.setattr("sleeper.spark.submit.driver_process._PATIENCE_S", 0.4)
        java = tmp_path / "java"
        driver(f"trap '' TERM; sleep 600 & echo $! > {java}; wait; sleep 600")
        call = CommandRequest((str(tmp_path / "driver"),))

        def check() -> None:
            if java.exists() and java.read_text():
                raise Interrupted

        with pytest.raises(Interrupted):
            run_driver(call, check)

        assert becomes_true(lambda: not is_running(int(java.read_text())))

    def test_what_a_driver_started_ends_with_its_parent(self, tmp_path):
        """Given a driver whose worker has been killed, then it ends with all that it started."""
        script = (
            "import subprocess, sys\n"
            "from sleeper.interfaces.cli import signals\n"
            "from sleeper.workers.stop_signal import StopSignal\n"
            "signals._ORPHAN_PATIENCE_S = 0.1\n"
            "java = subprocess.Popen(['sleep', '600'])\n"
            "print(java.pid, flush=True)\n"
            "signals.stop_with_parent(StopSignal(), -1, with_children=True)\n"
            "java.wait()\n"
        )

        driver = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
            check=False,
        )

        assert driver.returncode == -signal.SIGKILL
        assert becomes_true(lambda: not is_running(int(driver.stdout)))

    def test_a_driver_says_whether_the_job_may_run_again(self, instance, driver, tmp_path):
        """Given a driver that says that it cannot help, then its job is not tried again."""
        driver("""echo '{"reasons": ["no rows", "no file"], "mayPass": false}'; exit 1""")
        path = written(tmp_path / "one.parquet", 1)
        instance.jobs.submit_bulk_import("numbers", path, "june")

        assert work(instance, "bulk-import") == 1

        status = instance.jobs.job("june")
        assert status.reasons[0].endswith("ended with code 1")
        assert status.reasons[1:] == ("no rows", "no file")
        assert status.is_over

    @pytest.mark.parametrize(
        ("script", "reason"),
        [
            ("echo '[1]'; exit 3", "ended with code 3; its log says why"),
            ("echo 'no JSON'; exit 3", "ended with code 3; its log says why"),
        ],
    )
    def test_a_driver_that_says_nothing_is_tried_again(
        self, instance, driver, tmp_path, script, reason
    ):
        """Given a driver that ends by itself without a word, then nobody knows, and it is tried."""
        driver(script)
        path = written(tmp_path / "one.parquet", 1)
        instance.jobs.submit_bulk_import("numbers", path, "june")

        assert work(instance, "bulk-import") == 2

        assert instance.jobs.job("june").reasons[0].endswith(reason)

    def test_a_python_that_is_not_there_is_told(self, instance, driver, tmp_path):
        """Given no program, then that is why the job failed."""
        path = written(tmp_path / "one.parquet", 1)
        instance.jobs.submit_bulk_import("numbers", path, "june")

        assert work(instance, "bulk-import") == 2

        assert "cannot start the Spark driver" in instance.jobs.job("june").reasons[0]

    def test_a_master_that_is_none_is_refused(self, tmp_path):
        """Given a property that names no Spark, then the job fails with the property's name."""
        instance = self.instance_of(tmp_path, "sc://localhost")
        path = written(tmp_path / "one.parquet", 1)
        instance.jobs.submit_bulk_import("numbers", path, "june")

        assert work(instance, "bulk-import") == 1

        (reason,) = instance.jobs.job("june").reasons
        assert "sleeper.bulk.import.local.spark.master is sc://localhost" in reason
