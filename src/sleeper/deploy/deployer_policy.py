"""The policies of who deploys: what the command and CloudFormation call, for the templates at hand.

CloudFormation makes, changes and deletes resources with the credentials of who deploys. What it
calls for a type of resource is a row of `TYPES`; some options of a resource need more: an image in
ECR, a role that is passed on, a role that a service makes for itself, a key. A type without a row
is refused, so that no stack can come without its permissions.

Resources are those with the instance's names, wherever a service lets them be named. Where ids
are not known before (keys, security groups, clusters of EMR), only CloudFormation may change them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sleeper.deploy.image_addresses import EcrAddress, ecr_images_in
from sleeper.deploy.names import (
    PROPERTIES_TYPE,
    PROPERTIES_WRITER,
    DeployedNames,
    service_principals,
)
from sleeper.errors import BadRequest
from sleeper.model.jobs.kinds import URGENT, QueueName

POLICY_CHARACTERS_MAX: Final = 6_144
"""The longest managed policy of IAM, white space not counted."""

POLICIES_MAX: Final = 10
"""How many managed policies a role or a user can have, unless the account asked for more."""

Template = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TypeRights:
    """What CloudFormation calls for a type of resource.

    Attributes:
        actions: What it calls on the resource.
        on: The resource's ARN, with fields of `_fields`.
        unnamed: Whether its id is not known before, so that only CloudFormation may call this.
        everywhere: What it calls for which the service knows no resource.
        passes: By property that has a role, the service that the role is passed to.
        linked: The services that make a role for themselves, where the account has none.
    """

    actions: tuple[str, ...]
    on: str
    unnamed: bool = False
    everywhere: tuple[str, ...] = ()
    passes: Mapping[str, str] | None = None
    linked: tuple[str, ...] = ()


def _of(service: str, actions: str) -> tuple[str, ...]:
    return tuple(f"{service}:{each}" for each in actions.split())


_LAMBDA: Final = "arn:{partition}:lambda:{region}:{account}"
_EKS: Final = "arn:{partition}:eks:{region}:{account}"
_IAM: Final = "arn:{partition}:iam::{account}"
_EC2: Final = "arn:{partition}:ec2:{region}:{account}"
_KMS: Final = "arn:{partition}:kms:{region}:{account}"
_CLOUDWATCH: Final = "arn:{partition}:cloudwatch:{region}:{account}"
_SQS: Final = "arn:{partition}:sqs:{region}:{account}:{prefix}*"
_SNS: Final = "arn:{partition}:sns:{region}:{account}:{prefix}*"
_BUCKETS: Final = "arn:{partition}:s3:::{prefix}*"
_TABLES: Final = "arn:{partition}:dynamodb:{region}:{account}:table/{prefix}*"
_STACKS: Final = "arn:{partition}:cloudformation:{region}:{account}:stack/{prefix}*"
_ECS: Final = "arn:{partition}:ecs:{region}:{account}"
_ALARM_ACTIONS: Final = "DeleteAlarms ListTagsForResource TagResource UntagResource"
_TAGS: Final = "ListTagsForResource TagResource UntagResource"
_SEE_NETWORK: Final = _of(
    "ec2",
    "DescribeInstances DescribeNetworkInterfaces DescribeRouteTables DescribeSecurityGroupRules "
    "DescribeSecurityGroups DescribeSubnets DescribeVpcEndpoints DescribeVpcs",
)

TYPES: Final[Mapping[str, TypeRights]] = {
    "AWS::Budgets::Budget": TypeRights(
        _of("budgets", f"ModifyBudget ViewBudget {_TAGS}"),
        "arn:{partition}:budgets::{account}:budget/{prefix}*",
    ),
    "AWS::CloudWatch::Alarm": TypeRights(
        _of("cloudwatch", f"PutMetricAlarm {_ALARM_ACTIONS}"),
        f"{_CLOUDWATCH}:alarm:{{prefix}}*",
        everywhere=("cloudwatch:DescribeAlarms",),
    ),
    "AWS::CloudWatch::CompositeAlarm": TypeRights(
        _of("cloudwatch", f"PutCompositeAlarm {_ALARM_ACTIONS}"),
        f"{_CLOUDWATCH}:alarm:{{prefix}}*",
        everywhere=("cloudwatch:DescribeAlarms",),
    ),
    "AWS::CloudWatch::Dashboard": TypeRights(
        _of("cloudwatch", f"DeleteDashboards GetDashboard PutDashboard {_TAGS}"),
        "arn:{partition}:cloudwatch::{account}:dashboard/{prefix}*",
    ),
    "AWS::DynamoDB::Table": TypeRights(
        _of(
            "dynamodb",
            "CreateTable DeleteResourcePolicy DeleteTable Describe* GetResourcePolicy "
            "ListTagsOfResource PutResourcePolicy TagResource UntagResource "
            "UpdateContinuousBackups UpdateTable UpdateTimeToLive",
        ),
        _TABLES,
    ),
    "AWS::EC2::SecurityGroup": TypeRights(
        _of(
            "ec2",
            "AuthorizeSecurityGroupEgress AuthorizeSecurityGroupIngress CreateTags "
            "DeleteSecurityGroup DeleteTags RevokeSecurityGroupEgress RevokeSecurityGroupIngress "
            "UpdateSecurityGroupRuleDescriptionsEgress UpdateSecurityGroupRuleDescriptionsIngress",
        ),
        f"{_EC2}:security-group/*",
        unnamed=True,
        everywhere=_SEE_NETWORK,
    ),
    "AWS::EC2::SecurityGroupIngress": TypeRights(
        _of(
            "ec2",
            "AuthorizeSecurityGroupIngress RevokeSecurityGroupIngress "
            "UpdateSecurityGroupRuleDescriptionsIngress",
        ),
        f"{_EC2}:security-group/*",
        unnamed=True,
        everywhere=_SEE_NETWORK,
    ),
    "AWS::ECS::Cluster": TypeRights(
        _of(
            "ecs",
            "CreateCluster DeleteCluster DescribeClusters PutClusterCapacityProviders "
            f"UpdateCluster UpdateClusterSettings {_TAGS}",
        ),
        f"{_ECS}:cluster/{{prefix}}*",
        everywhere=("ecs:CreateCluster",),
        linked=("ecs",),
    ),
    "AWS::ECS::TaskDefinition": TypeRights(
        _of("ecs", _TAGS),
        f"{_ECS}:task-definition/{{prefix}}*",
        everywhere=_of(
            "ecs", "DeregisterTaskDefinition DescribeTaskDefinition RegisterTaskDefinition"
        ),
        passes={"TaskRoleArn": "ecs-tasks", "ExecutionRoleArn": "ecs-tasks"},
    ),
    "AWS::EKS::AccessEntry": TypeRights(
        _of(
            "eks",
            "AssociateAccessPolicy CreateAccessEntry DeleteAccessEntry DescribeAccessEntry "
            "DisassociateAccessPolicy ListAssociatedAccessPolicies TagResource UntagResource "
            "UpdateAccessEntry",
        ),
        f"{_EKS}:*/{{prefix}}*",
    ),
    "AWS::EKS::Addon": TypeRights(
        _of(
            "eks",
            "CreateAddon DeleteAddon DescribeAddon DescribeUpdate TagResource UntagResource "
            "UpdateAddon",
        ),
        f"{_EKS}:*/{{prefix}}*",
    ),
    "AWS::EKS::Cluster": TypeRights(
        _of(
            "eks",
            "CreateAccessEntry CreateCluster DeleteCluster DescribeCluster DescribeUpdate "
            "TagResource UntagResource UpdateClusterConfig UpdateClusterVersion",
        ),
        f"{_EKS}:*/{{prefix}}*",
        everywhere=_SEE_NETWORK,
        passes={"RoleArn": "eks"},
        linked=("eks",),
    ),
    "AWS::EKS::FargateProfile": TypeRights(
        _of(
            "eks",
            "CreateFargateProfile DeleteFargateProfile DescribeFargateProfile TagResource "
            "UntagResource",
        ),
        f"{_EKS}:*/{{prefix}}*",
        passes={"PodExecutionRoleArn": "eks-fargate-pods"},
        linked=("eks-fargate",),
    ),
    "AWS::EMR::Cluster": TypeRights(
        _of(
            "elasticmapreduce",
            "AddTags DescribeCluster ListBootstrapActions ListInstanceFleets ListInstances "
            "ListSteps ModifyCluster ModifyInstanceFleet PutAutoTerminationPolicy "
            "PutManagedScalingPolicy GetManagedScalingPolicy RemoveManagedScalingPolicy "
            "RemoveTags SetTerminationProtection SetVisibleToAllUsers TerminateJobFlows",
        ),
        "arn:{partition}:elasticmapreduce:{region}:{account}:cluster/*",
        unnamed=True,
        everywhere=("elasticmapreduce:RunJobFlow",),
        passes={"ServiceRole": "elasticmapreduce", "JobFlowRole": "ec2"},
        linked=("elasticmapreduce",),
    ),
    "AWS::EMR::SecurityConfiguration": TypeRights(
        (),
        "",
        everywhere=_of(
            "elasticmapreduce",
            "CreateSecurityConfiguration DeleteSecurityConfiguration DescribeSecurityConfiguration",
        ),
    ),
    "AWS::EMRServerless::Application": TypeRights(
        _of(
            "emr-serverless",
            "CreateApplication DeleteApplication GetApplication StopApplication TagResource "
            "UntagResource UpdateApplication",
        ),
        "arn:{partition}:emr-serverless:{region}:{account}:/*",
        unnamed=True,
        linked=("ops.emr-serverless",),
    ),
    "AWS::Events::Rule": TypeRights(
        _of(
            "events",
            f"DeleteRule DescribeRule ListTargetsByRule PutRule PutTargets RemoveTargets {_TAGS}",
        ),
        "arn:{partition}:events:{region}:{account}:rule/{prefix}*",
    ),
    "AWS::IAM::InstanceProfile": TypeRights(
        _of(
            "iam",
            "AddRoleToInstanceProfile CreateInstanceProfile DeleteInstanceProfile "
            "GetInstanceProfile RemoveRoleFromInstanceProfile",
        ),
        f"{_IAM}:instance-profile/{{prefix}}*",
        passes={"Roles": "ec2"},
    ),
    "AWS::IAM::ManagedPolicy": TypeRights(
        _of(
            "iam",
            "CreatePolicy CreatePolicyVersion DeletePolicy DeletePolicyVersion GetPolicy "
            "GetPolicyVersion ListEntitiesForPolicy ListPolicyVersions",
        ),
        f"{_IAM}:policy/{{prefix}}*",
    ),
    "AWS::IAM::OIDCProvider": TypeRights(
        _of(
            "iam",
            "AddClientIDToOpenIDConnectProvider CreateOpenIDConnectProvider "
            "DeleteOpenIDConnectProvider GetOpenIDConnectProvider ListOpenIDConnectProviderTags "
            "RemoveClientIDFromOpenIDConnectProvider TagOpenIDConnectProvider "
            "UntagOpenIDConnectProvider UpdateOpenIDConnectProviderThumbprint",
        ),
        f"{_IAM}:oidc-provider/oidc.eks.{{region}}.{{domain}}/*",
        unnamed=True,
    ),
    "AWS::IAM::Role": TypeRights(
        _of(
            "iam",
            "AttachRolePolicy CreateRole DeleteRole DeleteRolePermissionsBoundary "
            "DeleteRolePolicy DetachRolePolicy GetRole GetRolePolicy ListAttachedRolePolicies "
            "ListRolePolicies PutRolePermissionsBoundary PutRolePolicy TagRole UntagRole "
            "UpdateAssumeRolePolicy UpdateRole UpdateRoleDescription",
        ),
        f"{_IAM}:role/{{prefix}}*",
    ),
    "AWS::KMS::Alias": TypeRights(
        _of("kms", "CreateAlias DeleteAlias UpdateAlias"),
        f"{_KMS}:*",
        unnamed=True,
        everywhere=("kms:ListAliases",),
    ),
    "AWS::KMS::Key": TypeRights(
        _of(
            "kms",
            "DescribeKey DisableKey DisableKeyRotation EnableKey EnableKeyRotation GetKeyPolicy "
            "GetKeyRotationStatus ListResourceTags PutKeyPolicy ScheduleKeyDeletion TagResource "
            "UntagResource UpdateKeyDescription",
        ),
        f"{_KMS}:*",
        unnamed=True,
        everywhere=("kms:CreateKey",),
    ),
    "AWS::Lambda::EventSourceMapping": TypeRights(
        _of(
            "lambda",
            "CreateEventSourceMapping DeleteEventSourceMapping GetEventSourceMapping ListTags "
            "TagResource UntagResource UpdateEventSourceMapping",
        ),
        f"{_LAMBDA}:event-source-mapping:*",
        unnamed=True,
        everywhere=_of("lambda", "CreateEventSourceMapping GetEventSourceMapping"),
    ),
    "AWS::Lambda::Function": TypeRights(
        _of(
            "lambda",
            "CreateFunction DeleteFunction DeleteFunctionConcurrency GetFunction* GetPolicy "
            "GetRuntimeManagementConfig ListTags ListVersionsByFunction PublishVersion "
            "PutFunctionConcurrency PutFunctionRecursionConfig PutRuntimeManagementConfig "
            "TagResource UntagResource UpdateFunctionCode UpdateFunctionConfiguration",
        ),
        f"{_LAMBDA}:function:{{prefix}}*",
        everywhere=_SEE_NETWORK,
        passes={"Role": "lambda"},
    ),
    "AWS::Lambda::Permission": TypeRights(
        _of("lambda", "AddPermission GetPolicy RemovePermission"),
        f"{_LAMBDA}:function:{{prefix}}*",
    ),
    "AWS::Logs::LogGroup": TypeRights(
        _of(
            "logs",
            "AssociateKmsKey CreateLogGroup DeleteLogGroup DeleteRetentionPolicy "
            "DescribeIndexPolicies DisassociateKmsKey GetDataProtectionPolicy "
            f"PutLogGroupDeletionProtection PutRetentionPolicy {_TAGS}",
        ),
        "arn:{partition}:logs:{region}:{account}:log-group:{prefix}*",
        everywhere=_of("logs", "DescribeLogGroups DescribeResourcePolicies"),
    ),
    "AWS::Logs::MetricFilter": TypeRights(
        _of("logs", "DeleteMetricFilter DescribeMetricFilters PutMetricFilter"),
        "arn:{partition}:logs:{region}:{account}:log-group:{prefix}*",
    ),
    "AWS::S3::Bucket": TypeRights(
        _of(
            "s3",
            "CreateBucket DeleteBucket Get*Configuration GetBucket* ListBucket* "
            "ListTagsForResource PutBucketLogging PutBucketOwnershipControls "
            "PutBucketPublicAccessBlock PutBucketTagging PutBucketVersioning "
            "PutEncryptionConfiguration PutLifecycleConfiguration TagResource UntagResource",
        ),
        _BUCKETS,
    ),
    "AWS::S3::BucketPolicy": TypeRights(
        _of("s3", "DeleteBucketPolicy GetBucketPolicy PutBucketPolicy"), _BUCKETS
    ),
    "AWS::SNS::Subscription": TypeRights(
        _of("sns", "GetSubscriptionAttributes SetSubscriptionAttributes Subscribe Unsubscribe"),
        _SNS,
    ),
    "AWS::SNS::Topic": TypeRights(
        _of(
            "sns",
            "CreateTopic DeleteTopic GetDataProtectionPolicy GetTopicAttributes "
            f"ListSubscriptionsByTopic SetTopicAttributes Subscribe Unsubscribe {_TAGS}",
        ),
        _SNS,
    ),
    "AWS::SNS::TopicPolicy": TypeRights(("sns:SetTopicAttributes",), _SNS),
    "AWS::SQS::Queue": TypeRights(
        _of(
            "sqs",
            "CreateQueue DeleteQueue GetQueueAttributes GetQueueUrl ListQueueTags "
            "SetQueueAttributes TagQueue UntagQueue",
        ),
        _SQS,
    ),
    "AWS::SQS::QueuePolicy": TypeRights(("sqs:SetQueueAttributes",), _SQS),
    "AWS::StepFunctions::StateMachine": TypeRights(
        _of(
            "states",
            "CreateStateMachine DeleteStateMachine DescribeStateMachine UpdateStateMachine "
            f"{_TAGS}",
        ),
        "arn:{partition}:states:{region}:{account}:stateMachine:{prefix}*",
        passes={"RoleArn": "states"},
    ),
    PROPERTIES_TYPE: TypeRights(
        ("lambda:InvokeFunction",), f"{_LAMBDA}:function:{{prefix}}{PROPERTIES_WRITER}"
    ),
}
"""What CloudFormation calls, by type. A test compares it with the registry of AWS."""

_CHANGE_STACKS: Final = _of(
    "cloudformation",
    "ContinueUpdateRollback CreateChangeSet DeleteChangeSet DeleteStack DescribeChangeSet "
    "DescribeEvents DescribeStackEvents DescribeStackResources DescribeStacks "
    "ExecuteChangeSet GetTemplate ListStackResources RollbackStack TagResource "
    "UntagResource",
)
_CHANGE_NESTED: Final = _of("cloudformation", "CreateStack UpdateStack")

_OWN: Final = (
    (_CHANGE_STACKS, _STACKS),
    (
        (
            *_of("cloudformation", "DescribeStacks GetTemplateSummary ValidateTemplate"),
            *("dynamodb:ListTables", "lambda:GetAccountSettings", "servicequotas:GetServiceQuota"),
            "sqs:ListQueues",
            *_SEE_NETWORK,
        ),
        "*",
    ),
    (
        _of(
            "s3",
            "AbortMultipartUpload DeleteObject DeleteObjectVersion GetObject "
            "ListMultipartUploadParts PutObject",
        ),
        _BUCKETS,
    ),
    (
        _of(
            "dynamodb",
            "BatchGetItem BatchWriteItem ConditionCheckItem DeleteItem GetItem PutItem Query Scan "
            "UpdateItem",
        ),
        _TABLES,
    ),
    (
        _of("sqs", "ChangeMessageVisibility DeleteMessage PurgeQueue ReceiveMessage SendMessage"),
        _SQS,
    ),
    (
        ("lambda:InvokeFunction",),
        f"{_LAMBDA}:function:{{prefix}}{URGENT[QueueName.QUERY]}",
    ),
)
"""What the command and the CDK's command line call by themselves, and on what: checks, change sets,
the properties, the smoke job, and the removal of data."""

_TASKS: Final = _of("ecs", "DescribeTasks ListTasks StopTask")
_ECS_CLUSTER: Final = "AWS::ECS::Cluster"
_SEE_IMAGE: Final = _of("ecr", "BatchGetImage DescribeImages GetDownloadUrlForLayer")
_LET_LAMBDA_PULL: Final = _of("ecr", "GetRepositoryPolicy SetRepositoryPolicy")
_FUNCTION: Final = "AWS::Lambda::Function"
_KEY_USE: Final = _of("kms", "CreateGrant Decrypt DescribeKey Encrypt GenerateDataKey*")


@dataclass(frozen=True, slots=True, order=True)
class _Condition:
    """When something is allowed: `StringEquals`, `iam:PassedToService`, `lambda.amazonaws.com`."""

    operator: str
    key: str
    value: str


_BY_STACKS: Final = _Condition(
    "ForAnyValue:StringEquals", "aws:CalledVia", "cloudformation.amazonaws.com"
)


@dataclass(frozen=True, slots=True)
class _Right:
    action: str
    resource: str
    condition: _Condition | None = None


def deployer_policies(
    templates: Iterable[Template], names: DeployedNames, *, nested_in: str | None = None
) -> dict[str, dict[str, Any]]:
    """Return the policies that let somebody deploy templates, change, upgrade and remove them.

    Args:
        templates: The templates of all stacks.
        names: Names of the instance.
        nested_in: The name of the stack that its stacks are nested in; None where they are of their
            own.

    Returns:
        Each policy by its name, no longer than a managed policy of IAM may be.

    Raises:
        BadRequest: nothing is known of a type of resource; names it.
    """
    found = list(templates)
    rights = {*_own_rights(names)}
    if nested_in is not None:
        rights |= {*_nesting_rights(names, nested_in)}
    for template in found:
        for resource in template.get("Resources", {}).values():
            rights |= {*_resource_rights(resource, names)}
    groups = _split(_statements(rights))
    return {
        names.named(f"deployer-{number}"): {"Version": "2012-10-17", "Statement": statements}
        for number, statements in enumerate(groups, 1)
    }


def policy_length(document: Mapping[str, Any]) -> int:
    """Return how long IAM takes a policy to be: without white space."""
    return len(json.dumps(document, separators=(",", ":")))


def _fields(names: DeployedNames) -> dict[str, str]:
    return {
        "partition": names.partition,
        "region": names.region,
        "account": names.account,
        "domain": names.domain,
        "prefix": names.prefix,
    }


def _rights(
    actions: Iterable[str], resource: str, condition: _Condition | None = None
) -> Iterator[_Right]:
    return (_Right(action, resource, condition) for action in actions)


def _own_rights(names: DeployedNames) -> Iterator[_Right]:
    for actions, on in _OWN:
        yield from _rights(actions, on.format(**_fields(names)))


def _nesting_rights(names: DeployedNames, parent: str) -> Iterator[_Right]:
    """Yield what it takes to deploy a stack, and those in it: their names begin with its name."""
    for stacks in (f"{parent}/*", f"{parent}-*"):
        on = names.arn("cloudformation", f"stack/{stacks}")
        yield from _rights((*_CHANGE_STACKS, *_CHANGE_NESTED), on)


def _resource_rights(resource: Mapping[str, Any], names: DeployedNames) -> Iterator[_Right]:
    kind, properties = str(resource["Type"]), resource.get("Properties", {})
    row = TYPES.get(kind)
    if row is None:
        raise BadRequest(
            f"nothing is known of what CloudFormation calls for {kind}: add a row for it to TYPES "
            "of sleeper.deploy.deployer_policy, from the permissions in its schema in the registry "
            "of CloudFormation (aws cloudformation describe-type)"
        )
    fields = _fields(names)
    condition = _BY_STACKS if row.unnamed else None
    yield from _rights(row.actions, row.on.format(**fields), condition)
    yield from _rights(row.everywhere, "*", _changing(row.everywhere))
    roles, domain = names.role_arn("*"), names.domain
    for name, service in (row.passes or {}).items():
        if name in properties:
            for principal in service_principals(service, domain):
                to = _Condition("StringEquals", "iam:PassedToService", principal)
                yield _Right("iam:PassRole", roles, to)
    for service in row.linked:
        (principal, *_) = service_principals(service, domain)
        linked = f"{_IAM}:role/aws-service-role/{{principal}}/*".format(
            principal=principal, **fields
        )
        made_by = _Condition("StringEquals", "iam:AWSServiceName", principal)
        yield _Right("iam:CreateServiceLinkedRole", linked, made_by)
    yield from _option_rights(kind, properties, names)


def _option_rights(
    kind: str, properties: Mapping[str, Any], names: DeployedNames
) -> Iterator[_Right]:
    """Yield what options of a resource need: images, keys, a VPC, tasks that run."""
    fields = _fields(names)
    for image in filter(None, map(EcrAddress.of, ecr_images_in(json.dumps(properties)))):
        on = image.repository_arn(names.partition)
        yield from _rights(_SEE_IMAGE, on)
        if kind == _FUNCTION:
            yield from _rights(_LET_LAMBDA_PULL, on)
    # A configuration of EMR names the key that its machines use, and nobody else.
    for key in () if kind == "AWS::EMR::SecurityConfiguration" else _keys(properties):
        if isinstance(key, str) and key.startswith("arn:"):
            yield from _rights(_KEY_USE, key)
        else:  # one of the stacks, whose id is not known before
            services = f"*.{names.region}.{names.domain}"
            through = _Condition("StringLike", "kms:ViaService", services)
            yield from _rights(_KEY_USE, f"{_KMS}:key/*".format(**fields), through)
    if kind == "AWS::EC2::SecurityGroup":
        for on in ("vpc/*", "security-group/*"):
            yield _Right("ec2:CreateSecurityGroup", f"{_EC2}:{on}".format(**fields), _BY_STACKS)
    if kind == "AWS::EMRServerless::Application" and "NetworkConfiguration" in properties:
        yield _Right("ec2:CreateNetworkInterface", "*", _BY_STACKS)
    if kind == _ECS_CLUSTER:
        here = f"{_ECS}:cluster/{{prefix}}*".format(**fields)
        yield from _rights(_TASKS, "*", _Condition("ArnLike", "ecs:cluster", here))


def _keys(value: Any, name: str = "") -> Iterator[Any]:
    """Yield the values of properties that name a key of KMS, at any depth."""
    is_key = name == "KeyArn" or ("kms" in name.lower() and "key" in name.lower())
    if is_key and isinstance(value, str | Mapping):
        yield value
    elif isinstance(value, Mapping):
        for inner, each in value.items():
            yield from _keys(each, inner)
    elif isinstance(value, list):
        for each in value:
            yield from _keys(each)


def _changing(actions: Sequence[str]) -> _Condition | None:
    """Return who alone may call actions on anything: CloudFormation, unless they only look."""
    looks = ("Describe", "Get", "List")
    only_look = all(each.partition(":")[2].startswith(looks) for each in actions)
    return None if only_look else _BY_STACKS


def _statements(rights: Iterable[_Right]) -> list[dict[str, Any]]:
    """Group rights into statements: those of the same actions under the same condition."""
    by_resource: dict[tuple[tuple[_Condition, ...], str], set[str]] = {}
    for each in rights:
        when: tuple[_Condition, ...] = () if each.condition is None else (each.condition,)
        by_resource.setdefault((when, each.resource), set()).add(each.action)
    alike: dict[tuple[str, str, tuple[str, ...]], list[tuple[str, str]]] = {}
    for (when, resource), found in sorted(by_resource.items()):
        operator, key, value = (
            (when[0].operator, when[0].key, when[0].value) if when else ("", "", "")
        )
        alike.setdefault((operator, key, tuple(sorted(found))), []).append((resource, value))
    return [
        {
            "Effect": "Allow",
            "Action": list(actions),
            "Resource": list(dict.fromkeys(resource for resource, _ in pairs)),
            **(
                {"Condition": {operator: {key: list(dict.fromkeys(value for _, value in pairs))}}}
                if operator
                else {}
            ),
        }
        for (operator, key, actions), pairs in alike.items()
    ]


def _split(statements: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Spread statements over as few policies as their order allows."""
    groups: list[list[dict[str, Any]]] = [[]]
    for each in statements:
        longer = {"Version": "2012-10-17", "Statement": [*groups[-1], each]}
        if groups[-1] and policy_length(longer) > POLICY_CHARACTERS_MAX:
            groups.append([])
        groups[-1].append(each)
    return groups
