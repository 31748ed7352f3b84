"""The stacks of bulk imports: what they make, what it may do, and what it costs while idle."""

from __future__ import annotations

import json
from typing import Any

import kubernetes_validate
import pytest
from cfnlint.api import lint

from sleeper.deploy.platforms import changed_platforms, platform_properties
from sleeper.errors import PropertiesInvalid
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.spark.submit.configured_clusters import configured_cluster
from tests.deploy.stacks.conftest import Deployed, settings_of

STACKS = {
    "EmrServerlessBulkImportStack": "emr-serverless",
    "EmrBulkImportStack": "emr",
    "PersistentEmrBulkImportStack": "persistent-emr",
    "EksBulkImportStack": "eks",
}
HOURLY = {"AWS::EMR::Cluster", "AWS::EKS::Cluster", "AWS::KMS::Key"}
"""Types of resources that cost while nothing is to do: the last one a dollar a month."""
EMR = "sleeper.bulk.import.emr."
PROPERTIES = {
    "sleeper.optional.stacks": ",".join(STACKS),
    "sleeper.ingest.source.bucket": "input-1, input-2",
    "sleeper.bulk.import.environment": "s3://jars/environment",
    f"{EMR}keypair.name": "ours",
    f"{EMR}master.additional.security.group": "sg-0a1b2c3d",
    "sleeper.bulk.import.persistent.emr.executor.arm.instance.types": "m7g.4xlarge,1,m7g.8xlarge,2",
    "sleeper.bulk.import.eks.cluster.admin.roles": "operators",
    "sleeper.bulk.import.eks.api.allowed.security.groups": "sg-0a1b2c3e",
}


@pytest.fixture(scope="session")
def deployed(synthesised):
    """All four stacks, with every property that counts."""
    return synthesised(PROPERTIES)


def statements(role: dict[str, Any]) -> list[dict[str, Any]]:
    """What the policies inside a role say."""
    return [each for policy in role["Policies"] for each in policy["PolicyDocument"]["Statement"]]


def listed(value: Any) -> list[Any]:
    """One or many as many."""
    return value if isinstance(value, list) else [value]


def test_no_template_of_a_platform_has_an_error(deployed):
    """Cfn-lint finds none, and each can be sent as it is."""
    found = {
        kind: [f"{each.rule.id} {each.message} {each.path}" for each in matches]
        for kind in STACKS
        if (matches := lint(deployed.stacks[kind].template.read_text(), regions=["eu-west-2"]))
    }

    assert found == {}
    assert max(deployed.stacks[kind].template.stat().st_size for kind in STACKS) < 51_200


@pytest.mark.parametrize("stack", STACKS)
def test_a_queue_has_its_starter(deployed, stack):
    """The function says by name which platform it starts. Nothing asks its queue: it is called."""
    (function,) = deployed.resources("AWS::Lambda::Function", stack=stack)

    queue = function.properties["Environment"]["Variables"]["SLEEPER_QUEUE"]
    assert queue == f"bulk-import-{STACKS[stack]}"
    assert function.properties["ImageConfig"]["Command"] == [
        "sleeper.interfaces.lambdas.handlers.start_bulk_imports"
    ]
    assert not deployed.resources("AWS::Lambda::EventSourceMapping", stack=stack)
    assert deployed.settings.called_functions[queue] == function.name


def test_emr_and_eks_alone_cost_while_nothing_is_to_do(deployed, default):
    """EMR Serverless, which is there by default, stops by itself and keeps no workers ready."""
    made = {
        stack: {each.type for each in deployed.resources(stack=stack)} & HOURLY for stack in STACKS
    }

    assert made == {
        "EmrServerlessBulkImportStack": set(),
        "EmrBulkImportStack": {"AWS::KMS::Key"},
        "PersistentEmrBulkImportStack": {"AWS::EMR::Cluster", "AWS::KMS::Key"},
        "EksBulkImportStack": {"AWS::EKS::Cluster"},
    }
    assert not {each.type for each in default.resources()} & HOURLY
    (application,) = default.resources("AWS::EMRServerless::Application")
    assert application.properties["AutoStopConfiguration"] == {
        "Enabled": True,
        "IdleTimeoutMinutes": 15,
    }
    assert application.properties["AutoStartConfiguration"] == {"Enabled": True}
    assert "InitialCapacity" not in application.properties


def test_workers_are_kept_ready_where_properties_say_so(synthesised):
    """Both kinds, in the sizes that were given."""
    ready = "sleeper.bulk.import.emr.serverless.initial.capacity."
    deployed = synthesised(
        {
            "sleeper.optional.stacks": "EmrServerlessBulkImportStack",
            f"{ready}enabled": "true",
            f"{ready}executor.count": "3",
            f"{ready}driver.memory": "16GB",
            "sleeper.bulk.import.emr.serverless.autostop.timeout": "5",
        }
    )

    (application,) = deployed.resources("AWS::EMRServerless::Application")
    capacity = {each["Key"]: each["Value"] for each in application.properties["InitialCapacity"]}
    assert capacity["EXECUTOR"]["WorkerCount"] == 3
    assert capacity["DRIVER"] == {
        "WorkerCount": 5,
        "WorkerConfiguration": {"Cpu": "4vCPU", "Memory": "16GB", "Disk": "20GB"},
    }
    assert application.properties["AutoStopConfiguration"]["IdleTimeoutMinutes"] == 5


@pytest.mark.parametrize(
    ("role", "service"),
    [
        ("bulk-import-emr-serverless", "emr-serverless.amazonaws.com"),
        ("bulk-import-emr-machines", "ec2.amazonaws.com"),
        ("bulk-import-persistent-emr-machines", "ec2.amazonaws.com"),
        ("bulk-import-eks-jobs", None),
    ],
)
def test_a_job_reads_its_input_and_writes_tables(deployed, role, service):
    """It reads the buckets of input and of packages, and writes those of the instance alone."""
    found = deployed.resource("AWS::IAM::Role", f"-{role}").properties
    names = deployed.settings.names

    read, written = set(), set()
    for each in statements(found):
        assert "*" not in listed(each["Resource"])
        assert not any(action.endswith(":*") for action in listed(each["Action"]))
        buckets = {
            arn.split(":::")[1].split("/")[0]
            for arn in listed(each["Resource"])
            if isinstance(arn, str) and ":s3:::" in arn
        }
        read |= buckets if "s3:GetObject" in listed(each["Action"]) else set()
        written |= buckets if "s3:PutObject" in listed(each["Action"]) else set()
    ours = {names.buckets.data_bucket, names.buckets.bulk_import_bucket}
    assert written == ours
    assert read == ours | {names.buckets.config_bucket, "input-1", "input-2", "jars"}
    if service:
        (trust,) = found["AssumeRolePolicyDocument"]["Statement"]
        assert trust["Principal"] == {"Service": service}


@pytest.mark.parametrize(
    ("stack", "actions"),
    [
        ("EmrServerlessBulkImportStack", {"emr-serverless:StartJobRun", "iam:PassRole"}),
        (
            "EmrBulkImportStack",
            {"elasticmapreduce:RunJobFlow", "elasticmapreduce:AddTags", "iam:PassRole"},
        ),
        (
            "PersistentEmrBulkImportStack",
            {
                "elasticmapreduce:AddJobFlowSteps",
                "elasticmapreduce:ListClusters",
                "elasticmapreduce:ListSteps",
            },
        ),
        ("EksBulkImportStack", {"states:StartExecution", "states:DescribeExecution"}),
    ],
)
def test_a_starter_asks_its_own_platform_alone(deployed, stack, actions):
    """And gives no role away but those of the platform, to the service that they are for."""
    (function,) = deployed.resources("AWS::Lambda::Function", stack=stack)
    role = next(
        each
        for each in deployed.resources("AWS::IAM::Role", stack=stack)
        if each.name == function.name
    )
    usual = ("s3:", "dynamodb:", "sqs:", "logs:")

    own = [
        each
        for each in statements(role.properties)
        if not listed(each["Action"])[0].startswith(usual)
    ]
    assert {action for each in own for action in listed(each["Action"])} == actions
    for each in own:
        if "iam:PassRole" in listed(each["Action"]):
            assert "iam:PassedToService" in each["Condition"]["StringEquals"]
        if listed(each["Resource"]) == ["*"]:
            assert each["Action"] == "elasticmapreduce:ListClusters" or "Condition" in each


def test_the_kept_cluster_takes_two_jobs_and_scales(deployed):
    """With the machines, disks, key, security group and encryption that properties say (F10)."""
    (cluster,) = deployed.resources("AWS::EMR::Cluster")

    found, instances = cluster.properties, cluster.properties["Instances"]
    assert found["Name"] == "sleeper-demo-bulk-import-persistent-emr"
    assert found["StepConcurrencyLevel"] == 2
    assert found["ReleaseLabel"] == "emr-spark-8.0.0"
    assert found["SecurityConfiguration"] == found["Name"]
    assert found["LogUri"] == "s3://sleeper-demo-bulk-import-123456789012/logs/"
    assert found["ManagedScalingPolicy"]["ComputeLimits"] == {
        "UnitType": "InstanceFleetUnits",
        "MinimumCapacityUnits": 1,
        "MaximumCapacityUnits": 10,
        "MaximumCoreCapacityUnits": 3,
    }
    assert instances["Ec2SubnetIds"] == ["subnet-0a1b2c3d", "subnet-0a1b2c3e"]
    assert instances["Ec2KeyName"] == "ours"
    assert instances["AdditionalMasterSecurityGroups"] == ["sg-0a1b2c3d"]
    executors = instances["CoreInstanceFleet"]["InstanceTypeConfigs"]
    assert [(each["InstanceType"], each["WeightedCapacity"]) for each in executors] == [
        ("m7g.4xlarge", 1),
        ("m7g.8xlarge", 2),
    ]
    assert executors[0]["EbsConfiguration"]["EbsBlockDeviceConfigs"][0] == {
        "VolumeSpecification": {"SizeInGB": 256, "VolumeType": "gp2"},
        "VolumesPerInstance": 4,
    }


@pytest.mark.parametrize("stack", ["EmrBulkImportStack", "PersistentEmrBulkImportStack"])
def test_disks_of_emr_are_encrypted(deployed, stack):
    """By a key that rotates, and machines tell their role by tokens alone."""
    (found,) = deployed.resources("AWS::EMR::SecurityConfiguration", stack=stack)
    (key,) = deployed.resources("AWS::KMS::Key", stack=stack)

    said = found.properties["SecurityConfiguration"]
    disks = said["EncryptionConfiguration"]["AtRestEncryptionConfiguration"]
    assert disks["LocalDiskEncryptionConfiguration"]["EnableEbsEncryption"] is True
    assert said["InstanceMetadataServiceConfiguration"] == {
        "MinimumInstanceMetadataServiceVersion": 2,
        "HttpPutResponseHopLimit": 1,
    }
    assert key.properties["EnableKeyRotation"] is True


def test_a_key_of_the_users_own_is_taken(synthesised):
    """No other is made."""
    arn = "arn:aws:kms:eu-west-2:123456789012:key/1234"
    deployed = synthesised(
        {
            "sleeper.optional.stacks": "EmrBulkImportStack",
            "sleeper.bulk.import.emr.ebs.encryption.key.arn": arn,
        }
    )

    (found,) = deployed.resources("AWS::EMR::SecurityConfiguration")
    assert deployed.resources("AWS::KMS::Key") == []
    assert arn in json.dumps(found.properties)


class TestEks:
    """The cluster, and the state machine that runs jobs there."""

    def test_pods_of_one_namespace_run_on_fargate(self, deployed):
        """With the name service that they need; nobody is an administrator by chance."""
        (profile,) = deployed.resources("AWS::EKS::FargateProfile")
        (cluster,) = deployed.resources("AWS::EKS::Cluster")
        (addon,) = deployed.resources("AWS::EKS::Addon")

        namespaces = [each["Namespace"] for each in profile.properties["Selectors"]]
        assert namespaces == ["default", "kube-system"]
        assert cluster.properties["AccessConfig"] == {
            "AuthenticationMode": "API",
            "BootstrapClusterCreatorAdminPermissions": False,
        }
        assert json.loads(addon.properties["ConfigurationValues"]) == {"computeType": "Fargate"}
        assert deployed.resources("AWS::EKS::Nodegroup") == []
        assert deployed.resources("AWS::CloudFormation::CustomResource") == []

    def test_the_state_machine_works_in_that_namespace_alone(self, deployed):
        """The entries of people are those that properties name."""
        entries = {
            str(each.properties["PrincipalArn"]): each.properties["AccessPolicies"]
            for each in deployed.resources("AWS::EKS::AccessEntry")
        }

        ours = next(policies for arn, policies in entries.items() if "runs" in arn)
        theirs = next(policies for arn, policies in entries.items() if "role/operators" in arn)
        assert len(entries) == 2
        assert ours[0]["AccessScope"] == {"Type": "namespace", "Namespaces": ["default"]}
        assert "/AmazonEKSAdminPolicy" in json.dumps(ours)
        assert "/AmazonEKSClusterAdminPolicy" in json.dumps(theirs)
        assert theirs[0]["AccessScope"] == {"Type": "cluster"}
        (ingress,) = deployed.resources("AWS::EC2::SecurityGroupIngress")
        assert ingress.properties["SourceSecurityGroupId"] == "sg-0a1b2c3e"

    def test_the_definition_has_manifests_that_kubernetes_takes(self, deployed):
        """The account of pods has the role that trusts it, and nobody else."""
        (machine,) = deployed.resources("AWS::StepFunctions::StateMachine")
        role = deployed.resource("AWS::IAM::Role", "-bulk-import-eks-jobs").properties
        states = json.loads(machine.properties["DefinitionString"])["States"]

        account = states["MakeAccount"]["Parameters"]["RequestBody"]
        assert kubernetes_validate.validate(account, "1.35", strict=True) == "1.35"
        arn = account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"]
        assert arn.endswith(f":role/{role['RoleName']}")
        text, values = role["AssumeRolePolicyDocument"]["Fn::Sub"]
        trust = json.loads(text)["Statement"][0]
        assert trust["Condition"]["StringEquals"]["${Issuer}:sub"] == (
            "system:serviceaccount:${Namespace}:${Account}"
        )
        assert values["Account"] == account["metadata"]["name"]
        assert set(machine.properties["DefinitionSubstitutions"]) == {"Endpoint", "Certificate"}


def test_properties_tell_the_instance_of_every_platform(deployed):
    """What the stacks made is what the instance's jobs are sent to."""
    names = deployed.settings.names
    application = ("AWS::EMRServerless::Application", "application", "00abc")

    found = platform_properties(names, STACKS, lambda _: [application])

    properties = InstanceProperties({**PROPERTIES, **found})
    assert all(configured_cluster(each, properties) for each in STACKS.values())
    roles = {each.name for each in deployed.resources("AWS::IAM::Role")}
    (profile,) = deployed.resources("AWS::IAM::InstanceProfile", stack="EmrBulkImportStack")
    assert found[f"{EMR}role.name"] in roles
    assert found[f"{EMR}ec2.role.name"] == profile.properties["InstanceProfileName"]
    assert found[f"{EMR}serverless.role.arn"].rpartition("/")[2] in roles
    assert found[f"{EMR}serverless.application.id"] == "00abc"
    (machine,) = deployed.resources("AWS::StepFunctions::StateMachine")
    name = machine.properties["StateMachineName"]
    assert found["sleeper.bulk.import.eks.statemachine.arn"].endswith(f":stateMachine:{name}")


def test_platforms_that_are_not_deployed_any_more_are_taken_away(deployed):
    """Those of the user's own stay, and so does what has not changed."""
    names = deployed.settings.names
    own = {"sleeper.bulk.import.emr.role.name": "mine"}
    before = platform_properties(names, STACKS, lambda _: ())
    now = InstanceProperties({**before, **own})
    kept = ("PersistentEmrBulkImportStack",)

    changes = changed_platforms(names, kept, lambda _: (), now)

    assert changes == {
        name: None
        for name in before
        if name not in own and name != "sleeper.bulk.import.persistent.emr.cluster.name"
    }
    assert changed_platforms(names, STACKS, lambda _: (), InstanceProperties(before)) == {}


@pytest.mark.parametrize(
    ("stack", "name", "value", "message"),
    [
        ("EmrServerless", "emr.serverless.release", "emr-7.12.0", "whose Spark is too old"),
        ("EmrServerless", "emr.serverless.spark.executor.cores", "3", "spark.executor.cores is 3"),
        ("Emr", "emr.ebs.volume.type", "io1", "'io1', which EMR does not have"),
        ("PersistentEmr", "persistent.emr.release.label", "emr-7.12.0", "Spark is too old"),
        (
            "PersistentEmr",
            "persistent.emr.executor.arm.instance.types",
            "large",
            "'large' is no machine type",
        ),
        ("Eks", "eks.cluster.type", "AUTOMODE", "with Fargate alone"),
        ("Eks", "eks.spark.executor.ephemeral.storage", "1Gi", "20Gi to 175Gi"),
    ],
)
def test_platforms_that_could_run_no_job_are_refused(stack, name, value, message):
    """Before anything is made, with all else that is wrong (F1)."""
    given = {
        "sleeper.optional.stacks": f"{stack}BulkImportStack",
        f"sleeper.bulk.import.{name}": value,
        "sleeper.tags": "no value",
    }

    with pytest.raises(PropertiesInvalid) as caught:
        settings_of(given)

    told = "\n".join(caught.value.failures.values())
    assert message in told
    assert "sleeper.tags" in told


def test_workers_that_cannot_be_kept_ready_are_refused():
    """By their sizes, both roles at once."""
    ready = "sleeper.bulk.import.emr.serverless.initial.capacity."

    with pytest.raises(PropertiesInvalid) as caught:
        settings_of(
            {
                "sleeper.optional.stacks": "EmrServerlessBulkImportStack",
                f"{ready}enabled": "true",
                f"{ready}driver.memory": "100GB",
                f"{ready}executor.disk": "500GB",
            }
        )

    (told,) = caught.value.failures.values()
    assert f"{ready}driver" in told
    assert f"{ready}executor" in told


def passes(settings, tmp_path):
    """To which services a starter may pass the role of machines, by a template of EmrBulkImportStack."""
    found = Deployed(settings, tmp_path)
    starter = found.resource("AWS::IAM::Role", "bulk-import-emr-starter")
    statements = starter.properties["Policies"][0]["PolicyDocument"]["Statement"]
    return [
        each["Condition"]["StringEquals"]["iam:PassedToService"]
        for each in statements
        if each["Action"] == "iam:PassRole"
    ]


def test_roles_are_passed_in_china_by_old_and_new_names_of_services(tmp_path):
    """Given a region in China, then EC2 and EMR have two names there; elsewhere they have one."""
    emr = {"sleeper.optional.stacks": "EmrBulkImportStack"}

    china = passes(settings_of(emr, region="cn-north-1"), tmp_path / "china")
    london = passes(settings_of(emr), tmp_path / "london")

    assert london == ["elasticmapreduce.amazonaws.com", "ec2.amazonaws.com"]
    assert china == [[each, f"{each}.cn"] for each in london]
