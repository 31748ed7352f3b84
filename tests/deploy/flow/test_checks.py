"""Checks before a deployment: each says what stands in the way, and all are told at once."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError

import sleeper
from sleeper.deploy.flow import checks as account_checks
from sleeper.deploy.flow.checks import (
    CheckResult,
    Level,
    check_concurrency,
    check_hearers,
    check_network,
    check_resources,
    check_stacks,
    check_topic,
    check_vcpus,
    failure,
    ok,
    raise_failures,
    run_checks,
)
from sleeper.deploy.flow.deployed_stacks import DeployedStack
from sleeper.errors import BadRequest, PropertiesInvalid, StorageFailed
from sleeper.storage.aws.deployment.names import InstanceNames
from tests.contracts.s3_server import REGION
from tests.deploy.flow.emulator import ACCOUNT, account, cloud, s3_credentials
from tests.deploy.stacks.conftest import settings_of

__all__ = ["account", "cloud", "s3_credentials"]


def texts(findings, level):
    return [each.text for each in findings if each.level is level]


def denied(*_):
    raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "DescribeVpcs")


def no_answer():
    raise StorageFailed("cannot look: there is no answer")


def wrong():
    raise PropertiesInvalid({"a": "a is wrong", "b": "b is wrong"})


def test_all_failures_are_told_together_and_nothing_else_stops(caplog):
    """Given checks of which some fail and some may not ask, then one error has each failure."""
    checks = {
        "one": lambda: failure("no subnet"),
        "two": wrong,
        "the VPC": denied,
        "the stacks": no_answer,
        "three": lambda: ok("all well"),
    }

    found = run_checks(checks)

    assert texts(found, Level.FAILURE) == ["no subnet", "a is wrong", "b is wrong"]
    assert texts(found, Level.OK) == ["all well"]
    of_vpc, of_stacks = texts(found, Level.WARNING)
    assert of_vpc.startswith("the VPC: not checked, these credentials may not")
    assert of_stacks.startswith("the stacks: not checked")
    with pytest.raises(BadRequest, match=r"(?s)nothing was deployed.*no subnet.*a is.*b is wrong"):
        raise_failures(found)


def test_a_deployment_warns_when_nobody_hears_of_failures():
    """Given neither an address nor a topic, then both properties are named; with one, all is well."""
    topic = f"arn:aws:sns:{settings_of().names.region}:{ACCOUNT}:on-call"

    (unheard,) = check_hearers(settings_of())
    (by_email,) = check_hearers(settings_of({"sleeper.errors.email": "a@example.com"}))
    (by_topic,) = check_hearers(settings_of({"sleeper.alarms.topic.arn": topic}))

    assert unheard.level is Level.WARNING
    assert "sleeper.errors.email" in unheard.text
    assert "sleeper.alarms.topic.arn" in unheard.text
    assert by_email == CheckResult(Level.OK, "alarms and failures are sent to a@example.com")
    assert by_topic == CheckResult(Level.OK, f"alarms and failures are sent to {topic}")


def test_a_topic_of_another_region_is_refused():
    """Given a topic elsewhere, then nothing is deployed: alarms could not reach it."""
    topic = f"arn:aws:sns:ap-south-1:{ACCOUNT}:on-call"

    (found,) = check_hearers(settings_of({"sleeper.alarms.topic.arn": topic}))

    assert found.level is Level.FAILURE
    assert "can be sent only to a topic there" in found.text


def let_publish(sns, topic, *services):
    """Have services publish to a topic."""
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": services},
        "Action": "sns:Publish",
        "Resource": topic,
    }
    sns.set_topic_attributes(
        TopicArn=topic,
        AttributeName="Policy",
        AttributeValue=json.dumps({"Version": "2012-10-17", "Statement": [statement]}),
    )


def test_a_topic_takes_messages_of_a_budget_too_where_there_is_one(cloud):
    """Given a budget, then the topic's policy must name budgets as well; without one it need not."""
    sns = cloud.client("sns")
    topic = sns.create_topic(Name=cloud.instance_id)["TopicArn"]
    both = ("cloudwatch.amazonaws.com", "events.amazonaws.com")

    let_publish(sns, topic, *both)
    (without,) = check_topic(topic, REGION)
    (closed,) = check_topic(topic, REGION, has_budget=True)
    let_publish(sns, topic, *both, "budgets.amazonaws.com")
    (opened,) = check_topic(topic, REGION, has_budget=True)

    assert (without.level, closed.level, opened.level) == (Level.OK, Level.WARNING, Level.OK)
    assert "does not name budgets.amazonaws.com:" in closed.text
    assert "of the budget" in opened.text


def test_a_topic_of_the_users_must_be_there_and_take_messages(cloud):
    """Given a topic, then its policy is read: EventBridge needs a statement of its own."""
    sns = cloud.client("sns")
    topic = sns.create_topic(Name=cloud.instance_id)["TopicArn"]

    (missing,) = check_topic(f"{topic}-of-nobody", REGION)
    (closed,) = check_topic(topic, REGION)
    let_publish(sns, topic, "cloudwatch.amazonaws.com", "events.amazonaws.com")
    (opened,) = check_topic(topic, REGION)

    assert missing.level is Level.FAILURE
    assert "there is no such topic" in missing.text
    assert closed.level is Level.WARNING
    assert "events.amazonaws.com" in closed.text
    assert opened.level is Level.OK


def test_the_vpc_and_its_subnets_belong_together(cloud):
    """Given VPCs and subnets, then what is missing, elsewhere or without a way out is told."""
    ec2 = cloud.client("ec2")
    vpc, other = (ec2.create_vpc(CidrBlock=f"10.{n}.0.0/16")["Vpc"]["VpcId"] for n in (71, 72))
    mine = ec2.create_subnet(VpcId=vpc, CidrBlock="10.71.1.0/24")["Subnet"]["SubnetId"]
    theirs = ec2.create_subnet(VpcId=other, CidrBlock="10.72.1.0/24")["Subnet"]["SubnetId"]
    missing = "subnet-0123456789abcdef0"

    closed = check_network(vpc, [mine], REGION)
    refused = check_network(vpc, [mine, theirs, missing], REGION)
    nowhere = check_network("vpc-0123456789abcdef0", [mine], REGION)

    assert "no route to the internet" in texts(closed, Level.WARNING)[0]
    assert not texts(closed, Level.FAILURE)
    told = " ".join(texts(refused, Level.FAILURE))
    assert f"{theirs}, which is in {other}, not in {vpc}" in told
    assert missing in told
    assert "no such VPC" in texts(nowhere, Level.FAILURE)[0]
    assert "deploy/aws/vpc.yaml makes one" in texts(nowhere, Level.FAILURE)[0]

    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    ec2.associate_route_table(RouteTableId=table, SubnetId=mine)
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    assert not texts(check_network(vpc, [mine], REGION), Level.WARNING)


def test_rows_do_not_go_through_a_nat(cloud):
    """Given subnets that lead out by a NAT, then gateways that are missing are told, and how."""
    ec2 = cloud.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.73.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.73.1.0/24")["Subnet"]["SubnetId"]
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)
    ec2.create_route(
        RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", NatGatewayId="nat-0a1b2c3d4e5f60718"
    )

    told = texts(check_network(vpc, [subnet], REGION, for_functions=True), Level.WARNING)
    for service in ("s3", "dynamodb"):
        ec2.create_vpc_endpoint(
            VpcId=vpc, ServiceName=f"com.amazonaws.{REGION}.{service}", RouteTableIds=[table]
        )
    then = check_network(vpc, [subnet], REGION, for_functions=True)

    assert [
        f"com.amazonaws.{REGION}.{each}" in text
        for each, text in zip(("s3", "dynamodb"), told, strict=True)
    ] == [True, True]
    assert all(f"--route-table-ids {table}" in each for each in told)
    assert [each.level for each in then] == [Level.OK]


def test_more_processors_than_the_quota_are_a_warning(monkeypatch):
    """Given a quota of Fargate, then more than it is told, and does not stand in the way."""

    class Quotas:
        def get_service_quota(self, ServiceCode, QuotaCode):  # noqa: N803 - boto3's names
            return {"Quota": {"Value": 6.0 if QuotaCode == "L-3032A538" else 100.0}}

    monkeypatch.setattr(account_checks, "aws_client", lambda *_: Quotas())

    (told,) = check_vcpus(8, REGION, is_spot=False)
    assert told.level is Level.WARNING
    assert "quota of 6" in told.text
    assert check_vcpus(8, REGION, is_spot=True)[0].level is Level.OK


class Functions:
    """The functions of an account whose limit is small; `mine` reserves 3, another one 5."""

    limit = 200

    def get_account_settings(self):
        limits = {
            "ConcurrentExecutions": self.limit,
            "UnreservedConcurrentExecutions": self.limit - 8,
        }
        return {"AccountLimit": limits}

    def get_function_concurrency(self, FunctionName):  # noqa: N803 - boto3's names
        if FunctionName == "new":
            raise ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "GetFunction")
        return {"ReservedConcurrentExecutions": 3}


def test_functions_reserve_no_more_than_the_account_lets_them(monkeypatch):
    """Given a limit of 200, of which others reserve 5 and 100 stay free, then 95 can be reserved."""
    monkeypatch.setattr(account_checks, "aws_client", lambda *_: Functions())

    (enough,) = check_concurrency({"mine": 10, "new": 85}, REGION)
    (told,) = check_concurrency({"mine": 10, "new": 86}, REGION)

    assert enough.level is Level.OK
    assert told.level is Level.FAILURE
    assert "reserve 96 concurrent executions (mine 10, new 86)" in told.text
    assert "lets them reserve 95" in told.text
    assert "other functions reserve 5" in told.text
    assert "aws service-quotas request-service-quota-increase --service-code lambda" in told.text
    assert "--set sleeper.lambda.reserves.concurrency=false" in told.text


def test_a_new_account_lets_no_function_reserve_anything(monkeypatch):
    """Given a limit of 10, as new accounts have, then one execution is too many."""
    monkeypatch.setattr(Functions, "limit", 10)
    monkeypatch.setattr(account_checks, "aws_client", lambda *_: Functions())

    (told,) = check_concurrency({"new": 1}, REGION)

    assert told.level is Level.FAILURE
    assert "lets them reserve 0" in told.text


def test_an_account_without_functions_lets_them_reserve_what_they_want(cloud):
    """Given Lambda's answer to a function that is not there, then it reserves nothing yet."""
    (told,) = check_concurrency({f"sleeper-{cloud.instance_id}-committer": 10}, REGION)

    assert told.level is Level.OK
    assert told.text.startswith("functions reserve 10 of ")


def test_stacks_of_others_and_stuck_stacks_stand_in_the_way(cloud):
    """Given stacks with the instance's names, then what cannot be gone on from is told."""
    found = {
        each.name: each
        for each in (
            DeployedStack("mine", "CREATE_COMPLETE", cloud.url),
            DeployedStack("theirs", "CREATE_COMPLETE", "aws://other"),
            DeployedStack("stuck", "UPDATE_ROLLBACK_FAILED", cloud.url, "a role is gone"),
        )
    }

    told = texts(check_stacks(cloud.stacks(), found), Level.FAILURE)

    assert "theirs is there already, and belongs to aws://other" in told[0]
    assert "continue-update-rollback --stack-name stuck" in told[1]
    assert "a role is gone" in told[1]


def test_an_instance_of_init_is_refused_while_it_has_queues(cloud):
    """Given an instance without stacks, then its queues stand in the way, its data does not."""
    sleeper.create_instance(cloud.url).close()
    names = InstanceNames(cloud.instance_id, ACCOUNT)
    machine = cloud.machine()

    def check(*, keeps):
        return check_resources(names, REGION, cloud.endpoint, machine.pause, keeps=keeps)

    (queues,) = texts(check(keeps=True), Level.FAILURE)
    assert "made by `sleeper init`" in queues
    assert "IngestJobQ" in queues

    sqs = cloud.client("sqs")
    for url in sqs.list_queues(QueueNamePrefix=f"sleeper-{cloud.instance_id}-")["QueueUrls"]:
        sqs.delete_queue(QueueUrl=url)
    (taken_over,) = texts(check(keeps=True), Level.OK)
    assert names.config_bucket in taken_over
    (refused,) = texts(check(keeps=False), Level.FAILURE)
    assert "sleeper.retain.infra.after.destroy" in refused


def test_buckets_of_others_stand_in_the_way(cloud):
    """Given a bucket with the instance's name and another's tag, or none, then it is told."""
    names = InstanceNames(cloud.instance_id, ACCOUNT)
    s3 = cloud.client("s3")
    for bucket in (names.config_bucket, names.data_bucket):
        s3.create_bucket(Bucket=bucket)
    tag = {"Key": "sleeper.instance.url", "Value": "aws://other"}
    s3.put_bucket_tagging(Bucket=names.data_bucket, Tagging={"TagSet": [tag]})

    found = check_resources(names, REGION, cloud.endpoint, cloud.machine().pause, keeps=True)

    told = " ".join(texts(found, Level.FAILURE))
    assert f"{names.data_bucket} exists already" in told
    assert f"{names.config_bucket} is there already, without a tag" in told
