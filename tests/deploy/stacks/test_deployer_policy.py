"""The policies of who deploys have what CloudFormation calls for the templates, and not much more.

What CloudFormation calls is in the schemas of its registry, which cfn-lint has. No emulator asks
for these permissions: its CloudFormation calls nothing. What the command itself calls is shown
under the policies in tests/deploy/flow/test_deployer_rights.py.
"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from importlib.resources import files

import pytest

from sleeper.deploy import deployer_policy
from sleeper.deploy.deployer_policy import (
    POLICIES_MAX,
    POLICY_CHARACTERS_MAX,
    TYPES,
    deployer_policies,
    policy_length,
)
from sleeper.deploy.names import PROPERTIES_TYPE, DeployedNames
from sleeper.errors import BadRequest
from tests.deploy.stacks.conftest import ACCOUNT, REGION
from tests.deploy.stacks.test_templates import ALL, deployed
from tests.unit.interfaces.command_line import json_of
from tests.unit.interfaces.command_line import sleeper as command

__all__ = ["deployed"]

NAMES = DeployedNames("demo", ACCOUNT, REGION)
UNUSED_OPTIONS = {
    "AWS::Budgets::Budget": {"BillingViewArn": ["billing:*"]},
    "AWS::DynamoDB::Table": {
        "ContributorInsightsSpecification": [
            "dynamodb:UpdateContributorInsights",
            "iam:CreateServiceLinkedRole",
        ],
        "ImportSourceSpecification": ["dynamodb:ImportTable", "logs:*", "s3:*"],
        "KinesisStreamSpecification": ["dynamodb:*Kinesis*", "kinesis:*"],
        "Replicas": ["dynamodb:*Replica"],
    },
    "AWS::ECS::Cluster": {
        "ServiceConnectDefaults": ["ecs:PutAccountSetting*"],
    },
    "AWS::EKS::Addon": {"PodIdentityAssociations": ["eks:*PodIdentityAssociation", "iam:*"]},
    "AWS::EKS::Cluster": {
        "ComputeConfig": ["iam:*InstanceProfile"],
        "RotateCertificates": ["eks:ActivateCertificateAuthority"],
    },
    "AWS::EMRServerless::Application": {
        "IdentityCenterConfiguration": ["sso:*"],
        "ImageConfiguration": ["ecr:*"],
        "NetworkConfiguration": ["ec2:CreateNetworkInterface"],
        "DiskEncryptionConfiguration": ["kms:*"],
    },
    "AWS::Events::Rule": {"RoleArn": ["iam:PassRole"]},
    "AWS::IAM::ManagedPolicy": {
        "Groups": ["iam:*GroupPolicy"],
        "Users": ["iam:*UserPolicy"],
        "Roles": ["iam:*RolePolicy"],
    },
    "AWS::Lambda::EventSourceMapping": {"KmsKeyArn": ["kms:*"]},
    "AWS::Lambda::Function": {
        "CapacityProviderConfig": ["lambda:PassCapacityProvider", "lambda:*ScalingConfig"],
        "CodeSigningConfigArn": ["lambda:*CodeSigningConfig"],
        "FileSystemConfigs": ["elasticfilesystem:*", "s3files:*"],
        "Layers": ["lambda:GetLayerVersion"],
        "RuntimeManagementConfig": ["lambda:AssociateRuntimeAlias"],
        "S3Bucket": ["s3:*"],
    },
    "AWS::Logs::LogGroup": {
        "DataProtectionPolicy": [
            "logs:*DataProtectionPolicy",
            "firehose:*",
            "logs:CreateLogDelivery",
            "s3:*",
        ],
        "FieldIndexPolicies": ["logs:*IndexPolicy"],
        "ResourcePolicyDocument": ["logs:*ResourcePolicy"],
        "BearerTokenAuthenticationEnabled": ["logs:PutBearerTokenAuthentication"],
    },
    "AWS::S3::Bucket": {
        "AbacStatus": ["s3:PutBucketAbac"],
        "AccelerateConfiguration": ["s3:PutAccelerateConfiguration"],
        "AccessControl": ["s3:PutBucketAcl", "s3:PutObjectAcl"],
        "AnalyticsConfigurations": ["s3:*AnalyticsConfiguration"],
        "CorsConfiguration": ["s3:*BucketC[oO][rR][sS]"],
        "IntelligentTieringConfigurations": ["s3:*IntelligentTieringConfiguration"],
        "InventoryConfigurations": ["s3:*InventoryConfiguration"],
        "MetadataTableConfiguration": ["s3:*Metadata*Configuration", "s3tables:*"],
        "MetricsConfigurations": ["s3:*MetricsConfiguration"],
        "NotificationConfiguration": ["s3:PutBucketNotification"],
        "ObjectLockConfiguration": ["s3:Put*ObjectLockConfiguration"],
        "ReplicationConfiguration": ["s3:*Replication*", "iam:PassRole"],
        "WebsiteConfiguration": ["s3:*BucketWebsite"],
    },
    "AWS::SNS::Subscription": {"SubscriptionRoleArn": ["iam:*"]},
    "AWS::SNS::Topic": {
        "DataProtectionPolicy": ["sns:PutDataProtectionPolicy"],
        "DeliveryStatusLogging": ["iam:*"],
    },
    "AWS::StepFunctions::StateMachine": {
        "DefinitionS3Location": ["s3:*"],
        "EncryptionConfiguration": ["kms:*"],
    },
}
"""Actions of the registry that are only for options which no template has, by that option."""

NOT_OF_THE_TYPE = {
    "AWS::S3::Bucket": {"s3:DeleteBucketEncryption", "s3:DeleteBucketLifecycle"},
    "AWS::EMRServerless::Application": {"kms:*"},
}
"""Actions that IAM does not know, or that the registry lists for what nobody asks here."""

OF_OTHER_ROWS = ("iam:GetRole", "iam:ListAttachedRolePolicies")
"""What is asked of roles, which templates have too: their own row has it."""


def listed(value):
    return value if isinstance(value, list) else [value]


def statements(policies):
    return [each for document in policies.values() for each in document["Statement"]]


def allows(policies, action):
    return any(fnmatchcase(action, each) for s in statements(policies) for each in s["Action"])


def registry():
    """The actions that handlers of each type call, but those that list all of an account."""
    found = {}
    for each in (files("cfnlint.data.schemas") / "resources").iterdir():
        if not each.name.endswith(".json"):
            continue
        schema = json.loads(each.read_text())
        if schema.get("typeName") in TYPES and "handlers" in schema:
            found[schema["typeName"]] = {
                action
                for name, handler in schema["handlers"].items()
                if name != "list"
                for action in handler.get("permissions", ())
            }
    return found


def template(kind, **properties):
    return {"Resources": {"R": {"Type": kind, "Properties": properties}}}


def of(kind, **properties):
    return deployer_policies([template(kind, **properties)], NAMES)


def test_all_that_the_registry_of_cloudformation_lists_is_allowed():
    """Given each type, then what its handlers call is allowed, but for options that are not used."""
    missing = {}
    known = registry()
    for kind, actions in known.items():
        policies = of(kind, **dict.fromkeys(TYPES[kind].passes or {}, "x"))
        unused = [each for patterns in UNUSED_OPTIONS.get(kind, {}).values() for each in patterns]
        unused += NOT_OF_THE_TYPE.get(kind, ())
        left = {
            action
            for action in actions
            if not allows(policies, action)
            and not (action.startswith("kms:") and "KMS" not in kind)  # for keys: see below
            and not any(fnmatchcase(action, each) for each in unused)
            and action not in OF_OTHER_ROWS
        }
        missing |= {kind: left} if left else {}

    assert missing == {}
    # Which the registry has not, and ours, for which CloudFormation calls a function.
    assert TYPES.keys() - known.keys() == {"AWS::EMR::Cluster", PROPERTIES_TYPE}
    assert allows(of(PROPERTIES_TYPE), "lambda:InvokeFunction")


def test_options_that_are_said_to_be_unused_are_unused(deployed):
    """Given the templates, then none has an option whose actions were left out."""
    used = {
        (each.type, name)
        for each in deployed.resources()
        for name in UNUSED_OPTIONS.get(each.type, ())
        if name in each.properties
    }

    assert used == set()


def test_policies_are_as_short_as_iam_wants_them(deployed):
    """6,144 characters each, and few enough for one role; all templates have rows."""
    policies = deployer_policies(deployed.templates.values(), deployed.settings.names)

    assert all(policy_length(each) <= POLICY_CHARACTERS_MAX for each in policies.values())
    assert len(policies) <= POLICIES_MAX
    total = sum(policy_length(each) for each in policies.values())
    assert len(policies) - 1 <= total // (POLICY_CHARACTERS_MAX // 2), "more than are needed"


def test_a_type_that_nothing_is_known_of_is_refused():
    """Given a resource without a row, then no policy is made, and the type is named."""
    with pytest.raises(BadRequest, match=r"AWS::Glue::Job: add a row"):
        of("AWS::Glue::Job")


def test_every_statement_names_resources_of_the_instance_or_only_looks(synthesised):
    """What changes something is on the instance's names, or by CloudFormation alone."""
    deployed = synthesised(ALL)
    names = deployed.settings.names
    looks = ("BatchGetImage", "Describe", "Get", "List", "Validate")
    wide = [
        each
        for each in statements(deployer_policies(deployed.templates.values(), names))
        if "Condition" not in each
        and any(names.prefix not in on and ":repository/" not in on for on in each["Resource"])
        and not all(action.partition(":")[2].startswith(looks) for action in each["Action"])
    ]

    assert wide == []


@pytest.mark.parametrize(
    ("kind", "properties", "expected"),
    [
        (
            "AWS::Lambda::Function",
            {"Code": {"ImageUri": f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/s/worker:1"}},
            ("ecr:SetRepositoryPolicy", f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/s/worker"),
        ),
        (
            "AWS::Lambda::Function",
            {"Code": {"ImageUri": f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/s@sha256:0a"}},
            ("ecr:GetRepositoryPolicy", f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/s"),
        ),
        (
            "AWS::SQS::Queue",
            {"KmsMasterKeyId": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/k"},
            ("kms:GenerateDataKey*", f"arn:aws:kms:{REGION}:{ACCOUNT}:key/k"),
        ),
        (
            "AWS::Lambda::Function",
            {"KmsKeyArn": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/k"},
            ("kms:CreateGrant", f"arn:aws:kms:{REGION}:{ACCOUNT}:key/k"),
        ),
        (
            "AWS::EKS::Cluster",
            {
                "EncryptionConfig": [
                    {"Provider": {"KeyArn": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/k"}}
                ]
            },
            ("kms:DescribeKey", f"arn:aws:kms:{REGION}:{ACCOUNT}:key/k"),
        ),
        (
            "AWS::DynamoDB::Table",
            {"SSESpecification": {"KMSMasterKeyId": {"Fn::GetAtt": ["key", "Arn"]}}},
            ("kms:CreateGrant", f"arn:aws:kms:{REGION}:{ACCOUNT}:key/*"),
        ),
        (
            "AWS::ECS::Cluster",
            {},
            (
                "iam:CreateServiceLinkedRole",
                f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/ecs.amazonaws.com/*",
            ),
        ),
        (
            "AWS::EMRServerless::Application",
            {"NetworkConfiguration": {"SubnetIds": ["subnet-1"]}},
            ("ec2:CreateNetworkInterface", "*"),
        ),
    ],
)
def test_options_of_a_resource_need_more(kind, properties, expected):
    """An image, a key, a network and a first cluster bring their actions, on themselves alone."""
    action, resource = expected
    found = [each for each in statements(of(kind, **properties)) if action in each["Action"]]

    assert [each["Resource"] for each in found] == [[resource]]
    assert not allows(of("AWS::IAM::Role"), action)


def test_numbers_beside_a_key_are_no_keys():
    """Given how long SQS uses a data key again, then no key is granted for it."""
    assert not allows(of("AWS::SQS::Queue", KmsDataKeyReusePeriodSeconds=300), "kms:Decrypt")


def test_a_role_is_passed_to_the_services_that_take_it_alone(default):
    """Given the default stacks, then roles are passed to tasks and functions, and to no machine."""
    policies = deployer_policies(default.templates.values(), default.settings.names)
    (passing,) = (each for each in statements(policies) if "iam:PassRole" in each["Action"])

    assert passing["Resource"] == [default.settings.names.role_arn("*")]
    assert passing["Condition"] == {
        "StringEquals": {"iam:PassedToService": ["ecs-tasks.amazonaws.com", "lambda.amazonaws.com"]}
    }


def test_the_command_prints_them_without_asking_anything(tmp_path, monkeypatch):
    """Given an account and a region, then policies are printed and written with no network."""

    def refuse(*_):
        raise AssertionError("asked AWS")

    monkeypatch.setattr("sleeper.deploy.flow.preparation.aws_identity", refuse)
    words = ("deploy", "policy", "demo", "--account", ACCOUNT, "--region", REGION)
    stacks = ("--set", "sleeper.optional.stacks=IngestStack")

    few = json_of(command(*words, *stacks))
    written = command(*words, *stacks, "--out", tmp_path / "policies")

    assert written.exit_code == 0, written.output
    for name, document in few.items():
        assert json.loads((tmp_path / "policies" / f"{name}.json").read_text()) == document
    assert allows(few, "ecr:SetRepositoryPolicy")
    assert not allows(few, "emr-serverless:CreateApplication")


def test_split_keeps_every_statement(monkeypatch, default):
    """Given a shorter limit, then there are more policies, with the same statements in all."""
    templates, names = [*default.templates.values()], default.settings.names
    whole = statements(deployer_policies(templates, names))
    longest = max(policy_length({"Version": "2012-10-17", "Statement": [each]}) for each in whole)

    monkeypatch.setattr(deployer_policy, "POLICY_CHARACTERS_MAX", longest)
    many = deployer_policies(templates, names)

    assert statements(many) == whole
    assert all(policy_length(each) <= longest for each in many.values())
    assert len(many) > 3


def test_stacks_that_are_nested_have_names_of_the_one_that_has_them():
    """Given the name of the stack around them, then it and its nested stacks may be changed too."""
    stacks = f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack"
    policies = deployer_policies([], NAMES, nested_in="platform")
    found = {
        action: each["Resource"]
        for each in statements(policies)
        for action in each["Action"]
        if any(":stack/platform" in on for on in each["Resource"])
    }

    assert found["cloudformation:CreateStack"] == [f"{stacks}/platform-*", f"{stacks}/platform/*"]
    assert found.keys() >= {f"cloudformation:{each}Stack" for each in ("Update", "Delete")}
    assert all(action.startswith("cloudformation:") for action in found)
