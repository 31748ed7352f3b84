"""Every request to AWS has the parameters that the service's own model allows."""

from __future__ import annotations

from dataclasses import replace

import botocore.session
import pytest
from botocore.validate import ParamValidator

from sleeper.model.jobs.platforms import PLATFORMS
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.spark.submit.configured_clusters import configured_cluster
from sleeper.spark.submit.request import AwsRequest
from sleeper.spark.submit.submitted_jobs import SubmittedJobs
from tests.unit.spark.submit.test_submitted_jobs import instance, job, jobs

NEEDED = {each.name: each.described_by for each in PLATFORMS}
"""The properties that describe each platform."""

__all__ = ["instance", "jobs"]

VALUES = {
    "sleeper.region": "eu-west-2",
    "sleeper.subnets": "subnet-0a1b2c3d, subnet-1b2c3d4e",
    "sleeper.bulk.import.bucket": "sleeper-i-bulk-import",
    "sleeper.bulk.import.environment": "s3://jars/environment",
    "sleeper.bulk.import.emr.role.name": "emr",
    "sleeper.bulk.import.emr.ec2.role.name": "machines",
    "sleeper.bulk.import.emr.keypair.name": "ours",
    "sleeper.bulk.import.emr.master.additional.security.group": "sg-1",
    "sleeper.bulk.import.emr.security.conf.name": "encrypted",
    "sleeper.bulk.import.persistent.emr.cluster.name": "kept",
    "sleeper.bulk.import.emr.serverless.application.id": "00abc",
    "sleeper.bulk.import.emr.serverless.role.arn": "arn:aws:iam::123456789012:role/jobs",
    "sleeper.bulk.import.eks.statemachine.arn": (
        "arn:aws:states:eu-west-2:123456789012:stateMachine:eks"
    ),
}


@pytest.fixture
def in_aws(jobs):
    """The jobs of an instance in AWS that has every platform."""
    return replace(jobs, url="aws://i", properties=InstanceProperties(VALUES))


def planned(jobs: SubmittedJobs, platform: str, **changes) -> AwsRequest:
    """What a platform's service is asked for."""
    cluster = configured_cluster(platform, jobs.properties)
    environment = jobs.properties.jobs.environment
    request = jobs.plan(job(**changes), cluster, environment=environment).request
    assert isinstance(request, AwsRequest)
    return request


def complaints(request: AwsRequest, **more) -> str:
    """What botocore's model of the service says against a request."""
    model = botocore.session.get_session().get_service_model(request.service)
    name = "".join(map(str.capitalize, request.operation.split("_")))
    shape = model.operation_model(name).input_shape
    parameters = {**request.parameters, **more}
    unknown = [each for each in parameters if each not in shape.members]
    found = ParamValidator().validate(parameters, shape)
    return found.generate_report() + "".join(unknown)


@pytest.mark.parametrize("platform", NEEDED)
def test_the_service_takes_every_parameter(in_aws, platform):
    """Names, types and lengths, with every property that counts set."""
    request = planned(in_aws, platform, spark_conf={"spark.mine": "a b"})
    found_later = {"JobFlowId": "j-1"} if request.cluster_name else {}

    assert complaints(request, **found_later) == ""


@pytest.mark.parametrize("platform", NEEDED)
def test_a_driver_is_told_region_and_instance(in_aws, platform):
    """Machines of a cluster know neither; a job's own setting wins."""
    said = str(planned(in_aws, platform).parameters)

    assert "spark.executorEnv.AWS_REGION=eu-west-2" in said
    assert "aws://i" in said
    own = {"spark.executorEnv.AWS_REGION": "us-east-1"}
    assert "AWS_REGION=us-east-1" in str(planned(in_aws, platform, spark_conf=own).parameters)


def test_a_new_cluster_is_made_where_the_instance_says(in_aws):
    """Subnets, logs, disks, key, security group and encryption come from properties (F10)."""
    asked = planned(in_aws, "emr").parameters

    instances = asked["Instances"]
    (executors,) = instances["InstanceFleets"][1]["InstanceTypeConfigs"]
    assert instances["Ec2SubnetIds"] == ["subnet-0a1b2c3d", "subnet-1b2c3d4e"]
    assert instances["Ec2KeyName"] == "ours"
    assert instances["AdditionalMasterSecurityGroups"] == ["sg-1"]
    assert asked["SecurityConfiguration"] == "encrypted"
    assert asked["LogUri"] == "s3://sleeper-i-bulk-import/logs/"
    assert executors["EbsConfiguration"]["EbsBlockDeviceConfigs"] == [
        {
            "VolumeSpecification": {"SizeInGB": 256, "VolumeType": "gp2"},
            "VolumesPerInstance": 4,
        }
    ]


@pytest.mark.parametrize(
    ("platform", "name", "value", "message"),
    [
        ("emr", "emr.ebs.volume.type", "io2", "'io2', which EMR does not have"),
        ("emr-serverless", "emr.serverless.release", "emr-7.12.0", "whose Spark is too old"),
        ("emr-serverless", "emr.serverless.release", "newest", "which is no release of EMR"),
        (
            "emr-serverless",
            "emr.serverless.spark.emr-serverless.executor.disk",
            "500G",
            "500G, but a standard disk of EMR Serverless has 20 to 200 GB",
        ),
        ("eks", "eks.spark.executor.memory", "200g", "but Fargate has 16 vCPU"),
        ("eks", "eks.spark.executor.ephemeral.storage", "1Gi", "Fargate has 20Gi to 175Gi"),
    ],
)
def test_properties_that_a_platform_cannot_have_are_told(in_aws, platform, name, value, message):
    """By name, before anything is saved (F1)."""
    properties = InstanceProperties({**VALUES, f"sleeper.bulk.import.{name}": value})
    cluster = configured_cluster(platform, properties)

    failures = replace(in_aws, properties=properties).failures(
        job(), cluster, environment="s3://jars/environment"
    )

    assert len(failures) == 1
    assert message in failures[0]


@pytest.mark.parametrize("platform", NEEDED)
def test_all_that_is_wrong_is_told_at_once(in_aws, platform):
    """Local paths, unknown settings and packages that are not there, on every platform (F1)."""
    cluster = configured_cluster(platform, in_aws.properties)
    wrong = job(files=("/data/2013",), platform_spec={"sleeper.table.bulk.import.emr.x": "1"})

    failures = in_aws.failures(wrong, cluster, environment=None)

    told = "\n".join(failures)
    assert "cannot reach the input '/data/2013'" in told
    assert "unknown name 'sleeper.table.bulk.import.emr.x'" in told
    if platform != "eks":
        assert "sleeper.bulk.import.environment" in told


@pytest.mark.parametrize("platform", NEEDED)
def test_a_platform_without_its_properties_is_not_there(platform):
    """Each of them is needed."""
    for name in NEEDED[platform]:
        values = {each: value for each, value in VALUES.items() if each != name}
        assert configured_cluster(platform, InstanceProperties(values)) is None
