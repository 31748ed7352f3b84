"""A bulk import is asked for by a message, and runs where its queue and the properties say."""

from __future__ import annotations

import json

import pytest

import sleeper
from sleeper.model.jobs.messages import QueueName
from sleeper.model.jobs.states import JobState
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.services.job_kinds.bulk_import_place import where_jobs_run
from tests.stories.test_ingest_jobs import SCHEMA, instance, work, written

__all__ = ["instance"]


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
                "on Spark at local[2], by a driver beside a worker of bulk imports, as no queue leads "
                "to Kubernetes: use sleeper bulk-import --submit kubernetes"
            ),
        ),
        ("bulk-import-persistent-emr", {"persistent.emr.cluster.name": "c"}, "on persistent-emr"),
    ],
)
def test_where_jobs_of_a_queue_run_is_told(queue, properties, where):
    """By the queue and the instance's properties, as the batcher's report says it (BAT-6)."""
    values = {f"sleeper.bulk.import.{name}": value for name, value in properties.items()}

    assert where_jobs_run(QueueName(queue), InstanceProperties(values)) == where


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

        monkeypatch.setattr(
            "sleeper.services.job_kinds.bulk_import_place.sys.executable", str(program)
        )
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
