"""Jobs that a platform could not run are refused before anything is saved, with every reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sleeper.errors import JobInvalid
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.spark.submit.driver_process import DriverProcess
from sleeper.spark.submit.eks import Eks
from sleeper.spark.submit.emr import Emr
from sleeper.spark.submit.emr_serverless import EmrServerless
from sleeper.spark.submit.spark_submit import Kubernetes
from tests.unit.spark.submit.test_submitted_jobs import command, instance, job, jobs

__all__ = ["instance", "jobs"]

TABLES = "sleeper.table.bulk.import.emr."
CLUSTERS = {
    "emr": Emr(),
    "emr-serverless": EmrServerless(
        application_id="00abc", execution_role_arn="arn:aws:iam::123456789012:role/jobs"
    ),
    "eks": Eks(state_machine_arn="arn:aws:states:eu-west-2:123456789012:stateMachine:eks"),
}
NO_FIT = {
    "emr": "but m7g.4xlarge has 16 vCPU",
    "emr-serverless": "but workers of EMR Serverless have 1, 2, 4, 8, 16 vCPU",
    "eks": "but Fargate has 16 vCPU",
}

TOO_LARGE = {
    "emr": "3083.7 GB together, but of the 64 GB of m7g.4xlarge EMR leaves 56.0 to Spark",
    "emr-serverless": "3082.0 GB together, but a worker of 4 vCPU of EMR Serverless has 8 to 30",
    "eks": "a pod of 4 vCPU and 3082.0 GB, but Fargate has 16 vCPU and 119.8 GB at most",
}


def reasons(jobs, cluster, conf=None, spec=None, **changes) -> list[str]:
    """Why a cluster could not run a job with settings; none if it could."""
    named = {f"{TABLES}{name}": value for name, value in (spec or {}).items()}
    wanted = job(spark_conf=conf or {}, platform_spec=named, **changes)
    return jobs.failures(wanted, cluster, environment="s3://bucket/env")


def told(jobs, cluster, conf=None, spec=None) -> str:
    """The reasons as one text."""
    return "\n".join(reasons(jobs, cluster, conf, spec))


@pytest.mark.parametrize("platform", CLUSTERS)
class TestEveryPlatform:
    """EMR, EMR Serverless and EKS on Fargate, with all else as by default."""

    @pytest.mark.parametrize(
        ("conf", "reason"),
        [
            ({"spark.executor.memory": "much"}, "memory is 'much', but it must be a size"),
            ({"spark.executor.memory": "6 g"}, "memory is '6 g', but it must be a size"),
            ({"spark.executor.memory": "1.5g"}, "memory is '1.5g', but it must be a size"),
            ({"spark.driver.memory": "256m"}, "does not start with less than 450m"),
            ({"spark.executor.instances": "-3"}, "instances is -3, but it must be 1 or more"),
            ({"spark.executor.instances": "0"}, "instances is 0, but it must be 1 or more"),
            ({"spark.executor.instances": "ten"}, "'ten', but it must be a whole number"),
            ({"spark.executor.cores": "0"}, "spark.executor.cores is 0, but it must be"),
            ({"spark.executor.cores": "4.0"}, "'4.0', but it must be a whole number"),
            ({"spark.task.cpus": "6"}, "an executor has"),
            ({"spark.executor.memoryOverhead": "100m"}, "100m, but rows pass through Python"),
            ({"spark.memory.fraction": "1.5"}, "is 1.5, but it is a share, from 0 to 1"),
            ({"spark.speculation": "maybe"}, "'maybe', but it must be true or false"),
            ({"spark.network.timeout": "soon"}, "'soon', but it must be a time, such as 60s"),
            ({"spark.network.timeout": "30s"}, "must be shorter than spark.network.timeout, 30s"),
            ({"spark.sql.shuffle.partitions": "0"}, "must be a whole number, 1 or more"),
            ({"spark.executer.memory": "4g"}, "did you mean spark.executor.memory?"),
            ({"spark.executor.memory.overhead": "4g"}, "you mean spark.executor.memoryOverhead?"),
            ({"spark.dynamicallocation.enabled": "true"}, "mean spark.dynamicAllocation.enabled?"),
            ({"executor.memory": "4g"}, "is no setting of Spark: their names begin with spark."),
            ({"spark.master": "local[2]"}, "spark.master cannot be set: --submit and --master"),
            ({"spark.submit.deployMode": "client"}, "spark.submit.deployMode cannot be set"),
            ({"spark.api.mode": "connect"}, "classic mode, not in Spark Connect. Leave it out"),
            ({"spark.remote": "sc://host"}, "spark.remote cannot be set"),
            ({"spark.app.id": "june"}, "spark.app.id cannot be set: Spark itself sets it"),
            ({"spark.app.name": "june"}, "spark.app.name cannot be set: the job is named by"),
            ({"spark.pyspark.python": "python3.12"}, "spark.pyspark.python cannot be set"),
            (
                {
                    "spark.dynamicAllocation.enabled": "true",
                    "spark.dynamicAllocation.minExecutors": "9",
                    "spark.dynamicAllocation.maxExecutors": "4",
                },
                "minExecutors is 9, more than spark.dynamicAllocation.maxExecutors, 4",
            ),
            (
                {
                    "spark.dynamicAllocation.enabled": "true",
                    "spark.dynamicAllocation.maxExecutors": "0",
                },
                "maxExecutors is 0, but it must be 1 or more",
            ),
        ],
        ids=str,
    )
    def test_a_setting_that_cannot_be_is_told(self, jobs, platform, conf, reason):
        """Given one, then it is named, with what it must be; without it the job is planned."""
        assert reason in told(jobs, CLUSTERS[platform], conf)
        assert reasons(jobs, CLUSTERS[platform]) == []

    def test_more_memory_than_the_platform_has(self, jobs, platform):
        """Given a heap of 3 TB, then it is told with what is outside the heap."""
        assert TOO_LARGE[platform] in told(
            jobs, CLUSTERS[platform], {"spark.executor.memory": "3t"}
        )

    @pytest.mark.parametrize("role", ["driver", "executor"])
    def test_more_cores_than_the_platform_has(self, jobs, platform, role):
        """Given 96 processors in one worker, then what there is at most is told."""
        found = told(jobs, CLUSTERS[platform], {f"spark.{role}.cores": "96"})

        assert f"spark.{role}.cores" in found
        assert NO_FIT[platform] in found

    @pytest.mark.parametrize(
        ("spec", "reason"),
        [
            ({"executor.market.type": "CHEAP"}, "executor.market.type is 'CHEAP': say SPOT"),
            ({"executor.arm.instance.types": "m77g.xlarge"}, "did you mean m7g.xlarge"),
            ({"executor.arm.instance.types": "q"}, "'q' is no machine type of EMR"),
            ({"instance.architecture": "mips"}, "'mips' is no architecture of EMR"),
            ({"release.label": "emr-7.1.0"}, "emr-7.1.0, whose Spark is too old"),
            ({"executor.initial.capacity": "11"}, "is 11, more than executor.max.capacity, 10"),
            ({"executor.arm.instance.types": "m7g.2xlarge,0"}, "a weight must be above 0"),
        ],
        ids=str,
    )
    def test_machines_that_cannot_be_are_told(self, jobs, platform, spec, reason):
        """Given a platformSpec, then its values are checked, even where they are not used."""
        assert reason in told(jobs, CLUSTERS[platform], spec=spec)

    def test_all_reasons_come_at_once_and_nothing_is_saved(self, jobs, platform):
        """Given four kinds of mistakes, then one refusal names each of them (BLK-2)."""
        wrong = job(
            spark_conf={
                "spark.executor.memory": "some",
                "spark.executer.instances": "3",
                "spark.master": "yarn",
                "spark.driver.cores": "0",
            }
        )

        with pytest.raises(JobInvalid) as caught:
            jobs.plan(wrong, CLUSTERS[platform], environment="s3://bucket/env")

        assert len(caught.value.failures) >= 4
        for name in wrong.spark_conf:
            assert any(name in each for each in caught.value.failures), name
        assert list(jobs.objects.listing("bulk_import/")) == []

    def test_a_setting_of_the_instance_is_told_with_its_property(self, jobs, platform):
        """Given a property for all platforms, then its name leads to where it is set."""
        name = "sleeper.bulk.import.spark.speculation"
        given = replace(jobs, properties=InstanceProperties({name: "often"}))

        (reason,) = reasons(given, CLUSTERS[platform])

        assert reason.startswith(f"spark.speculation (set by {name}) is 'often'")

    @pytest.mark.parametrize(
        "conf",
        [
            {"spark.hadoop.fs.s3a.endpoint": "https://host"},
            {"spark.sql.catalog.mine": "org.example.Catalog"},
            {"spark.executorEnv.TZ": "UTC"},
            {"spark.rapids.sql.enabled": "true"},
            {"spark.executor.memory": "5120m", "spark.executor.memoryOverhead": "5GB"},
            {"spark.network.timeout": "20min", "spark.executor.heartbeatInterval": "45000"},
            {"spark.api.mode": "classic"},
            {"spark.dynamicAllocation.enabled": "true", "spark.executor.instances": "3"},
            {"spark.memory.fraction": ".5", "spark.task.cpus": "2"},
        ],
        ids=str,
    )
    def test_settings_that_can_be_are_planned(self, jobs, platform, conf):
        """Given other namespaces, other units, and what is so anyway, then nothing is refused."""
        assert reasons(jobs, CLUSTERS[platform], conf) == []


class TestOnePlatform:
    """What one platform alone has, or has not."""

    @pytest.mark.parametrize(
        ("platform", "conf", "spec", "reason"),
        [
            (
                "emr",
                {"spark.executor.memory": "40g", "spark.executor.memoryOverhead": "20g"},
                {"executor.arm.instance.types": "m7g.4xlarge,r8g.4xlarge"},
                "are 60.0 GB together, but of the 64 GB of m7g.4xlarge EMR leaves 56.0 to Spark",
            ),
            (
                "emr",
                {},
                {"executor.arm.instance.types": "m7g.xlarge"},
                "spark.driver.cores is 5, but m7g.xlarge has 4 vCPU",
            ),
            (
                "emr",
                {},
                {"executor.arm.instance.types": "m7i.4xlarge"},
                "m7i.4xlarge is x86_64, but instance.architecture is arm64",
            ),
            (
                "emr",
                {},
                {"executor.arm.instance.types": "m7g.4xlarge,m7g.4xlarge"},
                "m7g.4xlarge is there 2 times",
            ),
            (
                "emr",
                {"spark.yarn.submit.waitAppCompletion": "false"},
                {},
                "a step of EMR waits for the end of its job",
            ),
            (
                "emr",
                {"spark.emr-serverless.executor.disk": "100G"},
                {},
                "is a setting of EMR Serverless, and does nothing on emr",
            ),
            (
                "emr-serverless",
                {"spark.emr-serverless.driver.disk": "300G"},
                {},
                "300G, but a standard disk of EMR Serverless has 20 to 200 GB",
            ),
            (
                "emr-serverless",
                {"spark.emr-serverless.driver.disks": "30G"},
                {},
                "did you mean spark.emr-serverless.driver.disk?",
            ),
            ("emr-serverless", {"spark.archives": "s3://b/a"}, {}, "spark.archives cannot be set"),
            (
                "emr-serverless",
                {"spark.yarn.queue": "default"},
                {},
                "is a setting of YARN, and does nothing on emr-serverless",
            ),
            (
                "emr-serverless",
                {"spark.executor.cores": "2", "spark.executor.memoryOverhead": "12G"},
                {},
                "are 18.0 GB together, but a worker of 2 vCPU of EMR Serverless has 4 to 16 GB",
            ),
            (
                "eks",
                {"spark.executor.memory": "30g", "spark.executor.memoryOverhead": "5g"},
                {},
                "a pod of 4 vCPU and 35.0 GB, but Fargate has 29.8 GB at most with 4 vCPU",
            ),
            (
                "eks",
                {"spark.executor.pyspark.memory": "20g"},
                {},
                "a pod of 4 vCPU and 36.0 GB",
            ),
            (
                "eks",
                {"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": "25g"},
                {},
                "a pod of 4 vCPU and 41.0 GB",
            ),
            ("eks", {"spark.driver.host": "10.0.0.9"}, {}, "spark.driver.host cannot be set"),
            (
                "eks",
                {"spark.kubernetes.executor.podNamePrefix": "mine"},
                {},
                "the state machine that starts the driver sets it",
            ),
        ],
    )
    def test_has_its_own_reasons(self, jobs, platform, conf, spec, reason):
        """Given sizes, families of settings and machines, then each is checked where it counts."""
        assert reason in told(jobs, CLUSTERS[platform], conf, spec)

    @pytest.mark.parametrize("job_id", ["-june", "june-"])
    def test_pods_take_no_id_with_a_dash_at_an_end(self, jobs, job_id):
        """Given such an id, then Kubernetes and EKS refuse it, and EMR takes it."""
        pods = (CLUSTERS["eks"], Kubernetes(program="s", master="k8s://h", image="i"))

        for cluster in pods:
            assert "leave the dash out" in "\n".join(reasons(jobs, cluster, id=job_id))
        assert reasons(jobs, CLUSTERS["emr"], id=job_id) == []

    def test_a_kept_cluster_checks_settings_but_no_machines(self, jobs):
        """Given a cluster that runs, then its machines are not known, and Spark's settings are."""
        kept = Emr(cluster_id="j-1")
        conf = {"spark.executor.cores": "64", "spark.executer.cores": "4"}

        (reason,) = reasons(jobs, kept, {**conf, "spark.executor.memoryOverhead": "32g"})

        assert "did you mean spark.executor.cores?" in reason

    def test_nodes_of_ones_own_may_be_of_any_size(self, jobs):
        """Given EKS without Fargate, then 200 GB are planned."""
        nodes = replace(CLUSTERS["eks"], is_fargate=False)

        assert reasons(jobs, nodes, {"spark.executor.memory": "200g"}) == []

    def test_spark_submit_keeps_what_it_is_told_by_options(self, jobs):
        """Given settings that --master, --name and this Python win over, then they are refused."""
        for name in ("spark.master", "spark.app.name", "spark.pyspark.driver.python"):
            assert f"{name} cannot be set" in told(jobs, command(), {name: "x"})

    def test_a_driver_beside_a_worker_may_choose_its_python(self, jobs):
        """Given a standalone cluster, then its workers' Python may lie elsewhere."""
        here = DriverProcess(master="spark://h:7077", python="python", parent_id=1)

        assert reasons(jobs, here, {"spark.pyspark.python": "python3.12"}) == []
        assert "spark.master cannot be set" in told(jobs, here, {"spark.master": "local"})
