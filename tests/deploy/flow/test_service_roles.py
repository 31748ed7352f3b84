"""The role of ECS, which an account lacks before its first cluster."""

from __future__ import annotations

from botocore.exceptions import ClientError

from sleeper.deploy.flow import service_roles
from sleeper.deploy.flow.service_roles import make_ecs_role
from tests.contracts.s3_server import REGION
from tests.deploy.flow.emulator import account, cloud, s3_credentials

__all__ = ["account", "cloud", "s3_credentials"]


class Refusal:
    """IAM, which refuses to make a role."""

    def __init__(self, code):
        self._code = code

    def create_service_linked_role(self, AWSServiceName):  # noqa: N803 - boto3's names
        assert AWSServiceName == "ecs.amazonaws.com"
        raise ClientError({"Error": {"Code": self._code}}, "CreateServiceLinkedRole")


def refused(monkeypatch, code):
    """What is told, and how long is waited, where IAM refuses."""
    told, waits = [], []
    monkeypatch.setattr(service_roles, "aws_client", lambda *_: Refusal(code))
    make_ecs_role(REGION, waits.append, told.append)
    return told, waits


def roles_of_ecs(iam):
    roles = iam.list_roles(PathPrefix="/aws-service-role/ecs.amazonaws.com/")["Roles"]
    return [each["RoleName"] for each in roles]


def test_the_first_cluster_of_an_account_finds_its_role(cloud):
    """Given an account without it, then it is made and given time; the second time nothing is."""
    iam = cloud.client("iam")
    for name in roles_of_ecs(iam):  # another test of this run may have made it
        iam.delete_service_linked_role(RoleName=name)
    told, waits = [], []

    make_ecs_role(REGION, waits.append, told.append)
    make_ecs_role(REGION, waits.append, told.append)

    assert len(roles_of_ecs(iam)) == 1
    assert waits == [15]
    assert told == [
        "the account has a service-linked role of ECS now, which its first cluster needs"
    ]


def test_a_role_that_is_there_is_no_word_worth(monkeypatch):
    """Given Amazon's answer where the role is there, then it goes on at once."""
    assert refused(monkeypatch, "InvalidInput") == ([], [])


def test_who_may_not_make_it_is_told_what_to_type(monkeypatch):
    """Given no right to make it, then a warning has the command for somebody who may."""
    (told,), waits = refused(monkeypatch, "AccessDenied")

    assert told.startswith("WARNING")
    assert "aws iam create-service-linked-role --aws-service-name ecs.amazonaws.com" in told
    assert waits == []
