"""What clusters are told, as values: arguments of spark-submit and calls of AWS."""

from __future__ import annotations

import shlex
from itertools import pairwise

import pytest

from sleeper.errors import BadRequest
from sleeper.spark.submit.emr import STEP_CHARACTERS_MAX, Emr
from sleeper.spark.submit.emr_serverless import EmrServerless
from sleeper.spark.submit.request import DriverCall, conf_arguments
from sleeper.spark.submit.spark_submit import Kubernetes, SparkSubmit

PLACE = "bulk_import/june-run.json"
ARGUMENTS = (PLACE, "--instance", "s3://bucket/instance")
MACHINES = {
    "instance.architecture": "arm64",
    "master.x86.instance.types": "m7i.xlarge",
    "master.arm.instance.types": "m7g.xlarge",
    "executor.x86.instance.types": "m7i.4xlarge",
    "executor.arm.instance.types": "m7g.4xlarge",
    "executor.market.type": "SPOT",
    "executor.initial.capacity": "2",
    "executor.max.capacity": "10",
    "release.label": "emr-spark-8.0.0",
}


def call(environment: str | None = "s3://bucket/env/", **conf: str) -> DriverCall:
    """A driver of the job june."""
    return DriverCall(
        name="sleeper-i-trips-june",
        arguments=ARGUMENTS,
        spark_conf={"spark.a": "1", **conf},
        environment=environment,
    )


def settings_in(argv) -> dict[str, str]:
    """The settings among arguments of spark-submit."""
    return dict(value.split("=", 1) for flag, value in pairwise(argv) if flag == "--conf")


def spark_submit(**changes) -> SparkSubmit:
    """A local Spark, but for `changes`."""
    return SparkSubmit(
        **{
            "program": "spark-submit",
            "master": "local[2]",
            "deploy_mode": "client",
            "python": "/venv/python",
            "entry": "/sleeper/entry.py",
            **changes,
        }
    )


class TestSparkSubmit:
    """Local, standalone and YARN."""

    def test_a_local_driver(self):
        """This Python runs the driver and its workers; the entry script ends the options."""
        argv = spark_submit().request(call(environment=None)).argv

        assert argv[:7] == (
            *("spark-submit", "--master", "local[2]", "--deploy-mode", "client"),
            *("--name", "sleeper-i-trips-june"),
        )
        assert argv[-4:] == ("/sleeper/entry.py", *ARGUMENTS)
        assert settings_in(argv) == {
            "spark.a": "1",
            "spark.pyspark.driver.python": "/venv/python",
            "spark.pyspark.python": "/venv/python",
        }
        assert "--archives" not in argv

    def test_workers_elsewhere_take_the_archive(self):
        """A driver here keeps its own Python."""
        argv = spark_submit(master="spark://host:7077").request(call()).argv

        assert ("--archives", "s3://bucket/env/environment.tar.gz#environment") in pairwise(argv)
        assert settings_in(argv)["spark.pyspark.driver.python"] == "/venv/python"
        assert settings_in(argv)["spark.pyspark.python"] == "./environment/bin/python"

    def test_a_driver_on_yarn(self):
        """It runs the entry script that lies beside the archive."""
        argv = spark_submit(master="yarn", deploy_mode="cluster").request(call()).argv

        assert argv[-4:] == ("s3://bucket/env/sleeper_bulk_import.py", *ARGUMENTS)
        assert settings_in(argv)["spark.yarn.appMasterEnv.PYSPARK_PYTHON"] == (
            "./environment/bin/python"
        )

    def test_a_driver_on_a_cluster_needs_packages_there(self):
        """The message says how to make them."""
        with pytest.raises(BadRequest, match="sleeper spark-environment"):
            spark_submit(master="yarn", deploy_mode="cluster").request(call(environment=None))

    @pytest.mark.parametrize("master", ["spark://host:7077", "local[2]"])
    def test_a_standalone_cluster_takes_no_driver_in_python(self, master):
        """Spark itself says so, though later and in more words."""
        with pytest.raises(BadRequest, match="leave out --deploy-mode"):
            spark_submit(master=master, deploy_mode="cluster").request(call())


class TestKubernetes:
    """EKS too."""

    def test_pods_run_an_image(self):
        """Nothing is shipped: packages and entry script are in it."""
        cluster = Kubernetes(
            program="spark-submit",
            master="k8s://https://host:6443",
            image="registry/sleeper:1",
            namespace="bulk",
            service_account="importer",
        )

        argv = cluster.request(call(environment=None)).argv

        assert argv[1:5] == ("--master", "k8s://https://host:6443", "--deploy-mode", "cluster")
        assert argv[-4:] == ("local:///sleeper/sleeper_bulk_import.py", *ARGUMENTS)
        assert settings_in(argv) == {
            "spark.a": "1",
            "spark.kubernetes.authenticate.driver.serviceAccountName": "importer",
            "spark.kubernetes.authenticate.executor.serviceAccountName": "importer",
            "spark.kubernetes.container.image": "registry/sleeper:1",
            "spark.kubernetes.namespace": "bulk",
            "spark.kubernetes.submission.waitAppCompletion": "true",
        }

    def test_a_master_of_another_kind_is_refused(self):
        """spark-submit would go ahead, and look for the image in vain."""
        cluster = Kubernetes(program="spark-submit", master="local[2]", image="i")

        with pytest.raises(BadRequest, match="k8s://"):
            cluster.request(call())


class TestEmrServerless:
    """StartJobRun."""

    ROLE = "arn:aws:iam::123456789012:role/jobs"

    def test_the_call(self):
        """The job's run is its token, so a call that is sent twice starts one job."""
        cluster = EmrServerless(
            application_id="00abc",
            execution_role_arn=self.ROLE,
            log_uri="s3://bucket/logs/",
            region="eu-west-2",
        )

        request = cluster.request(call(), "run")

        submit = request.parameters["jobDriver"]["sparkSubmit"]
        assert (request.service, request.operation) == ("emr-serverless", "start_job_run")
        assert request.region == "eu-west-2"
        assert {name: request.parameters[name] for name in ("applicationId", "clientToken")} == {
            "applicationId": "00abc",
            "clientToken": "run",
        }
        assert submit["entryPoint"] == "s3://bucket/env/sleeper_bulk_import.py"
        assert submit["entryPointArguments"] == [*ARGUMENTS]
        assert settings_in(shlex.split(submit["sparkSubmitParameters"])) == {
            "spark.a": "1",
            "spark.archives": "s3://bucket/env/environment.tar.gz#environment",
            "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": "./environment/bin/python",
            "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": "./environment/bin/python",
            "spark.executorEnv.PYSPARK_PYTHON": "./environment/bin/python",
        }
        assert request.parameters["configurationOverrides"] == {
            "monitoringConfiguration": {
                "s3MonitoringConfiguration": {"logUri": "s3://bucket/logs/"}
            }
        }

    def test_settings_with_spaces_stay_whole(self):
        """They are one text there, which the service takes apart like a shell."""
        cluster = EmrServerless(application_id="a", execution_role_arn=self.ROLE)

        request = cluster.request(call(**{"spark.options": "-Da='b c' -Dd"}), "run")

        text = request.parameters["jobDriver"]["sparkSubmit"]["sparkSubmitParameters"]
        assert settings_in(shlex.split(text))["spark.options"] == "-Da='b c' -Dd"
        assert "configurationOverrides" not in request.parameters

    def test_packages_are_needed(self):
        """There is nothing of Sleeper in the service's own image."""
        cluster = EmrServerless(application_id="a", execution_role_arn=self.ROLE)

        with pytest.raises(BadRequest, match="--environment"):
            cluster.request(call(environment=None), "run")


class TestEmr:
    """RunJobFlow and AddJobFlowSteps."""

    def test_a_cluster_for_one_job(self):
        """It ends when its step ends, in failure too."""
        cluster = Emr(subnet_ids=("subnet-1",), log_uri="s3://bucket/logs/")

        request = cluster.request(call(), MACHINES.__getitem__)

        asked = request.parameters
        assert (request.operation, asked["ReleaseLabel"]) == ("run_job_flow", "emr-spark-8.0.0")
        assert asked["Instances"]["KeepJobFlowAliveWhenNoSteps"] is False
        assert asked["Instances"]["Ec2SubnetIds"] == ["subnet-1"]
        assert asked["Instances"]["InstanceFleets"] == [
            {
                "Name": "Driver",
                "InstanceFleetType": "MASTER",
                "TargetOnDemandCapacity": 1,
                "InstanceTypeConfigs": [{"InstanceType": "m7g.xlarge"}],
            },
            {
                "Name": "Executors",
                "InstanceFleetType": "CORE",
                "TargetSpotCapacity": 2,
                "InstanceTypeConfigs": [{"InstanceType": "m7g.4xlarge"}],
            },
        ]
        assert asked["ManagedScalingPolicy"]["ComputeLimits"]["MaximumCapacityUnits"] == 10
        assert asked["LogUri"] == "s3://bucket/logs/"
        assert asked["Tags"] == [
            {"Key": "for-use-with-amazon-emr-managed-policies", "Value": "true"}
        ]
        (step,) = asked["Steps"]
        assert step["ActionOnFailure"] == "TERMINATE_CLUSTER"

    def test_a_step_on_a_cluster_that_is_kept(self):
        """Its failure leaves the cluster to others."""
        request = Emr(cluster_id="j-1").request(call(), MACHINES.__getitem__)

        (step,) = request.parameters["Steps"]
        argv = step["HadoopJarStep"]["Args"]
        assert (request.operation, request.parameters["JobFlowId"]) == ("add_job_flow_steps", "j-1")
        assert step["ActionOnFailure"] == "CONTINUE"
        assert step["HadoopJarStep"]["Jar"] == "command-runner.jar"
        assert argv[:5] == ["spark-submit", "--master", "yarn", "--deploy-mode", "cluster"]
        assert argv[-4:] == ["s3://bucket/env/sleeper_bulk_import.py", *ARGUMENTS]
        assert settings_in(argv)["spark.pyspark.python"] == "./environment/bin/python"

    def test_types_have_weights_and_architectures(self):
        """A number is the weight of the type before it; a driver's machine has none."""
        machines = {
            **MACHINES,
            "instance.architecture": "x86_64, arm64",
            "executor.x86.instance.types": "m7i.4xlarge,1, m7i.8xlarge ,2",
            "master.x86.instance.types": "m7i.xlarge,4",
            "executor.market.type": "on_demand",
        }

        request = Emr().request(call(), machines.__getitem__)

        driver, executors = request.parameters["Instances"]["InstanceFleets"]
        assert driver["InstanceTypeConfigs"] == [
            {"InstanceType": "m7i.xlarge"},
            {"InstanceType": "m7g.xlarge"},
        ]
        assert executors["TargetOnDemandCapacity"] == 2
        assert executors["InstanceTypeConfigs"] == [
            {"InstanceType": "m7i.4xlarge", "WeightedCapacity": 1},
            {"InstanceType": "m7i.8xlarge", "WeightedCapacity": 2},
            {"InstanceType": "m7g.4xlarge"},
        ]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"instance.architecture": "sparc"}, "'sparc' is no architecture"),
            ({"executor.arm.instance.types": "4,m7g.4xlarge"}, "follows no machine type"),
            ({"executor.arm.instance.types": "m7g.4xlarge,1,2"}, "follows no machine type"),
            ({"executor.initial.capacity": "0"}, "executor.initial.capacity is '0'"),
            ({"executor.max.capacity": "many"}, "executor.max.capacity is 'many'"),
        ],
    )
    def test_machines_that_cannot_be_are_refused(self, changes, message):
        """They may come from a job, so no one has checked them before."""
        with pytest.raises(BadRequest, match=message):
            Emr().request(call(), {**MACHINES, **changes}.__getitem__)

    def test_a_step_has_a_longest_length(self):
        """EMR's own limit is told before the call."""
        long = call(**{"spark.long": "x" * STEP_CHARACTERS_MAX})

        with pytest.raises(BadRequest, match="10,240"):
            Emr(cluster_id="j-1").request(long, MACHINES.__getitem__)


def test_settings_become_arguments():
    """In the order given."""
    assert conf_arguments({"b": "1", "a": "x=y"}) == ["--conf", "b=1", "--conf", "a=x=y"]
