"""A job on its way to a cluster: checked, planned, saved, read back."""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import replace
from datetime import timedelta

import pytest

from sleeper.errors import BadRequest, JobInvalid, StorageFailed, SubmissionFailed
from sleeper.instance.instance import connect
from sleeper.model.formats.bulk_import_job import BulkImportJob, read_bulk_import_job
from sleeper.spark.submit.emr import Emr
from sleeper.spark.submit.emr_serverless import EmrServerless
from sleeper.spark.submit.request import CommandRequest
from sleeper.spark.submit.send import send
from sleeper.spark.submit.spark_submit import Kubernetes, SparkSubmit
from sleeper.spark.submit.submitted_jobs import SubmittedJobs
from tests.unit.interfaces.command_line import TRIPS

ROLE = "arn:aws:iam::123456789012:role/jobs"
ON_X86 = {"sleeper.table.bulk.import.emr.instance.architecture": "x86_64"}
SERVERLESS = EmrServerless(application_id="00abc", execution_role_arn=ROLE)


def command() -> SparkSubmit:
    """A Spark on this machine."""
    return SparkSubmit(
        program=sys.executable, master="local", deploy_mode="client", python="p", entry="e"
    )


@pytest.fixture
def instance(tmp_path):
    """An instance with the table trips."""
    opened = connect(tmp_path / "instance", create=True)
    opened.create_table("trips", TRIPS)
    return opened


@pytest.fixture
def jobs(instance):
    """Its submitted jobs, with ids that count."""
    kept = instance.submitted_jobs
    numbers = itertools.count(1)
    return SubmittedJobs(
        objects=kept.objects,
        index=kept.index,
        properties=kept.properties,
        url="s3://bucket/instance",
        new_id=lambda: f"id-{next(numbers)}",
        now=kept.now,
    )


def job(**changes) -> BulkImportJob:
    """A good job, but for `changes`."""
    return BulkImportJob(
        **{"id": "june", "table_name": "trips", "files": ("s3://b/june/",), **changes}
    )


def plan(jobs, given, cluster=SERVERLESS, **more):
    """What EMR Serverless would be told."""
    return jobs.plan(given, cluster, environment="s3://bucket/env", **more)


class TestPlan:
    """What is to be sent is a value; nothing has happened yet."""

    def test_a_driver_is_told_the_place_of_its_job(self, jobs):
        """One for each run, named by job and run (BLK-3); and where the instance is."""
        planned = plan(jobs, job(), options=("--json",))

        submit = planned.request.parameters["jobDriver"]["sparkSubmit"]
        assert planned.job_place == "bulk_import/june-id-1.json"
        assert planned.request.parameters["clientToken"] == "id-1"
        assert submit["entryPointArguments"] == [
            *("bulk_import/june-id-1.json", "--instance", "s3://bucket/instance", "--json")
        ]
        assert planned.started is None
        assert list(jobs.objects.listing("bulk_import/")) == []

    @pytest.mark.parametrize("blank", [None, "", "  "])
    def test_a_job_without_an_id_gets_one(self, jobs, blank):
        """A random one (ING-9)."""
        assert plan(jobs, job(id=blank)).job.id == "id-1"

    def test_names_are_cut_to_what_clusters_take(self, jobs):
        """64 characters."""
        name = plan(jobs, job(id="x" * 63)).request.parameters["name"]

        assert len(name) == 64
        assert name.startswith("sleeper-instance-trips-xxx")

    def test_a_table_is_found_by_its_id_first(self, jobs):
        """The id wins over the name (ING-9)."""
        table_id = jobs.index.by_name("trips").table_id

        assert plan(jobs, job(table_id=table_id, table_name="other")).job.table_id == table_id
        with pytest.raises(JobInvalid, match="Table not found: gone"):
            plan(jobs, job(table_id="gone"))

    def test_all_that_is_wrong_is_told_together(self, instance):
        """With the job and with the cluster; nothing is saved (BLK-2)."""
        with pytest.raises(JobInvalid) as caught:
            instance.submitted_jobs.plan(
                job(id="June", table_name="tripz", files=("no/such/file",)), SERVERLESS
            )

        assert len(caught.value.failures) == 6
        assert "Could not find one or more paths: no/such/file" in caught.value.failures
        assert "cannot reach the instance" in caught.value.failures[3]
        assert "cannot reach the input 'no/such/file'" in caught.value.failures[4]
        assert "sleeper spark-environment" in caught.value.failures[5]

    def test_paths_of_this_machine_become_absolute(self, instance, tmp_path, monkeypatch):
        """A driver has another working folder. URLs stay as they are, and are not looked for."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "june").mkdir()

        planned = instance.submitted_jobs.plan(
            job(files=("june", "s3://b/july/")), command(), environment="e"
        )

        assert planned.job.files == (str(tmp_path / "june"), "s3://b/july/")

    @pytest.mark.parametrize(
        ("cluster", "spec", "architecture"),
        [
            (SERVERLESS, {}, "x86_64"),
            (Emr(service_role="s", instance_profile="p"), {}, "arm64"),
            (Emr(service_role="s", instance_profile="p"), ON_X86, "x86_64"),
            (Emr(cluster_name="kept"), {}, "arm64"),
        ],
    )
    def test_packages_are_those_for_the_processors_of_the_cluster(
        self, jobs, cluster, spec, architecture
    ):
        """Given a folder for each, then a job is told the one that its machines can run."""
        planned = jobs.plan(
            job(platform_spec=spec), cluster, environment="s3://bucket/1.0/{architecture}"
        )

        sent = json.dumps(planned.request.parameters)
        assert f"s3://bucket/1.0/{architecture}/environment.tar.gz" in sent
        assert "{architecture}" not in sent

    def test_paths_without_a_scheme_stay_for_an_instance_elsewhere(self, jobs):
        """They are that place's to understand."""
        planned = plan(jobs, job(files=("bucket/june",)), command())

        assert planned.job.files == ("bucket/june",)

    @pytest.mark.parametrize(
        ("cluster", "platform"),
        [
            (command(), "spark-submit"),
            (Kubernetes(program="s", master="k8s://h", image="i"), "kubernetes"),
            (Emr(), "emr"),
            (SERVERLESS, "emr-serverless"),
        ],
    )
    def test_every_kind_of_cluster(self, jobs, cluster, platform):
        """Each gets the settings of its own family, and the job's."""
        planned = plan(jobs, job(spark_conf={"spark.mine": "yes"}), cluster)

        said = (
            planned.request.argv
            if isinstance(planned.request, CommandRequest)
            else json.dumps(planned.request.parameters)
        )
        assert planned.platform == platform
        assert "spark.mine=yes" in said

    def test_machines_are_the_jobs_then_the_tables(self, jobs):
        """`platformSpec` reaches the cluster that is made (BLK-4)."""
        spec = {"sleeper.table.bulk.import.emr.executor.arm.instance.types": "r8g.2xlarge"}

        fleets = plan(jobs, job(platform_spec=spec), Emr()).request.parameters["Instances"][
            "InstanceFleets"
        ]

        assert fleets[1]["InstanceTypeConfigs"] == [{"InstanceType": "r8g.2xlarge"}]


EMR = "sleeper.table.bulk.import.emr."


class TestWhatACluster:
    """What a cluster could not do is refused before anything is saved."""

    @pytest.mark.parametrize(
        ("cluster", "changes", "environment", "message"),
        [
            (Emr(), {"files": ("2013/",)}, "s3://b/e", "EMR's machines cannot reach the input"),
            (Emr(), {}, "./env", "--environment './env' is a place of this machine"),
            (Emr(log_uri="logs"), {}, "s3://b/e", "--log-uri 'logs' is a place of this machine"),
            (
                Emr(),
                {"platform_spec": {f"{EMR}release.label": "emr-7.12.0"}},
                "s3://b/e",
                "emr-7.12.0, whose Spark is too old: .* emr-spark-8.0.0",
            ),
            (
                Emr(),
                {"platform_spec": {f"{EMR}release.label": "latest"}},
                "s3://b/e",
                "'latest', which is no release of EMR",
            ),
            (
                Emr(),
                {"platform_spec": {f"{EMR}instance.architecture": "x86_64,arm64"}},
                "s3://b/e",
                "for one architecture",
            ),
            (
                Emr(),
                {"platform_spec": {f"{EMR}executor.market.type": "FOO"}},
                "s3://b/e",
                "'FOO': say SPOT or ON_DEMAND",
            ),
            (
                Emr(),
                {"platform_spec": {f"{EMR}executor.initial.capacity": "20"}},
                "s3://b/e",
                "initial.capacity is 20, more than executor.max.capacity, 10",
            ),
            (
                Emr(),
                {"platform_spec": {f"{EMR}executor.arm.instance.types": "large"}},
                "s3://b/e",
                "executor.arm.instance.types: 'large' is no machine type",
            ),
            (
                Emr(),
                {"platform_spec": {f"{EMR}release.lable": "x"}},
                "s3://b/e",
                f"unknown name '{EMR}release.lable'; did you mean '{EMR}release.label'",
            ),
            (
                SERVERLESS,
                {"spark_conf": {"spark.executor.cores": "3"}},
                "s3://b/e",
                "spark.executor.cores is 3, but workers .* have 1, 2, 4, 8, 16 vCPU",
            ),
            (
                SERVERLESS,
                {"spark_conf": {"spark.executor.memory": "28g"}},
                "s3://b/e",
                "are 38.0 GB together, but a worker of 4 vCPU .* has 8 to 30 GB",
            ),
            (
                SERVERLESS,
                {"spark_conf": {"spark.driver.memory": "lots"}},
                "s3://b/e",
                "spark.driver.memory is 'lots', but it must be a size, such as 6g",
            ),
            (
                Kubernetes(program="s", master="k8s://h", image="i"),
                {"files": ("/data/2013",)},
                None,
                "a Kubernetes cluster's pods cannot reach the input '/data/2013'",
            ),
            (replace(command(), master="sc://h:1"), {}, None, "is Spark Connect, which takes no"),
            (replace(command(), master="nonsense"), {}, None, "'nonsense' is no master of Spark"),
        ],
    )
    def test_cannot_do_is_refused(self, jobs, cluster, changes, environment, message):
        """By schemes and values alone; no cloud is asked."""
        with pytest.raises(JobInvalid, match=message):
            jobs.plan(job(**changes), cluster, environment=environment)

        assert list(jobs.objects.listing("bulk_import/")) == []

    @pytest.mark.parametrize(
        "master",
        ["local", "local[*]", "local[4,3]", "spark://a:7077,b:7077", "yarn", "k8s://https://h:1"],
    )
    def test_masters_of_spark_are_planned(self, jobs, master):
        """Every form that spark-submit knows."""
        assert jobs.plan(job(), replace(command(), master=master)).platform == "spark-submit"

    def test_a_kept_cluster_has_its_machines(self, jobs):
        """Settings of a new cluster do not matter for one that runs."""
        spec = {f"{EMR}executor.market.type": "FOO"}

        planned = plan(jobs, job(platform_spec=spec), Emr(cluster_name="kept"))

        assert planned.request.cluster_name == "kept"
        assert "JobFlowId" not in planned.request.parameters


class TestSubmit:
    """First the job is saved, then the cluster is asked."""

    def planned(self, jobs, code: str, given=None):
        """A plan whose command is a line of Python."""
        planned = jobs.plan(given or job(), command())
        argv = (sys.executable, "-c", code)
        return type(planned)(
            platform=planned.platform,
            job=planned.job,
            job_place=planned.job_place,
            request=CommandRequest(argv),
        )

    def test_a_saved_job_reads_back(self, jobs):
        """With all that came with it, in upstream's form (BLK-3)."""
        algorithm = "BulkImportJobRDDDriver"
        given = job(others={"later": 1}, spark_conf={"spark.a": "b"}, class_name=algorithm)
        planned = self.planned(jobs, "", given)

        sent = jobs.submit(planned)

        body = jobs.objects.read("bulk_import/june-id-1.json").decode()
        assert read_bulk_import_job(body) == jobs.read(sent.job_place) == given
        assert json.loads(body)["sparkConf"] == {"spark.a": "b"}

    def test_a_job_that_has_ended_is_deleted(self, jobs):
        """Nobody reads it again."""
        sent = jobs.submit(self.planned(jobs, ""))

        jobs.delete(sent.job_place)

        assert list(jobs.objects.listing("bulk_import/")) == []

    def test_a_job_that_is_a_month_old_is_deleted_by_the_next_one(self, jobs):
        """Drivers that failed or never started leave theirs."""
        old = jobs.submit(self.planned(jobs, ""))
        later = replace(jobs, now=lambda: jobs.now() + timedelta(days=31))

        new = later.submit(self.planned(jobs, ""))

        assert old.job_place != new.job_place
        assert [each.key for each in jobs.objects.listing("bulk_import/")] == [new.job_place]

    def test_a_failure_leaves_the_saved_job_alone(self, jobs):
        """The command's end is told; what it printed is on the terminal."""
        before = {each.key for each in jobs.objects.listing()}

        with pytest.raises(SubmissionFailed, match="ended with code 3") as caught:
            jobs.submit(self.planned(jobs, "raise SystemExit(3)"))

        assert not caught.value.retryable
        assert {each.key for each in jobs.objects.listing()} - before == {
            "bulk_import/june-id-1.json"
        }

    def test_a_driver_that_may_try_again_says_so(self, jobs):
        """Its code 75 is passed on."""
        with pytest.raises(SubmissionFailed) as caught:
            jobs.submit(self.planned(jobs, "raise SystemExit(75)"))

        assert caught.value.retryable

    def test_a_program_that_is_not_there_is_told(self):
        """With how to get one."""
        with pytest.raises(SubmissionFailed, match=r"pip install 'sleeper-store\[spark\]'"):
            send(CommandRequest(("no-such-spark-submit", "x")))

    def test_an_id_that_repeats_overwrites_nothing(self, jobs):
        """The cluster is not asked either."""
        planned = self.planned(jobs, "raise SystemExit(3)")
        jobs.objects.create(planned.job_place, b"another")

        with pytest.raises(StorageFailed, match="exists already"):
            jobs.submit(planned)

        assert jobs.objects.read(planned.job_place) == b"another"

    def test_a_place_without_a_job(self, jobs):
        """Is told with the instance."""
        with pytest.raises(BadRequest, match=r"'bulk_import/x.json' in s3://bucket/instance"):
            jobs.read("bulk_import/x.json")


def test_disks_of_a_job_run_are_encrypted_by_the_key_that_is_given(jobs):
    """Given a key of KMS, then each run on EMR Serverless names it; without one, none is named."""
    key = "arn:aws:kms:eu-west-2:123456789012:key/0a1b"

    mine = plan(jobs, job(), replace(SERVERLESS, disk_key_arn=key)).request.parameters
    own = plan(jobs, job()).request.parameters

    overrides = {"diskEncryptionConfiguration": {"encryptionKeyArn": key}}
    assert mine["configurationOverrides"] == overrides
    assert "configurationOverrides" not in own
