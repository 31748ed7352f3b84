"""An instance is embedded in an app of the CDK, as stacks of its own or nested in one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from sleeper.deploy.deployer_policy import deployer_policies
from sleeper.errors import BadRequest, PropertiesInvalid
from tests.deploy.stacks.conftest import ACCOUNT, NETWORK, REGION
from tests.deploy.stacks.test_templates import ALL, KEY

PAGE = Path(__file__).parents[3] / "docs" / "deploy" / "embedding.md"


class Cdk:
    """The CDK, which takes seconds to import, and an app of a user with it."""

    def __init__(self, folder):
        self.core = import_module("aws_cdk")
        self.iam = import_module("aws_cdk.aws_iam")
        self.instance = import_module("sleeper.deploy.cdk").SleeperInstance
        self.folder = folder
        self.app = self.core.App(outdir=str(folder), analytics_reporting=False)
        self.env = self.core.Environment(account=ACCOUNT, region=REGION)

    def role(self, stack):
        principal = self.iam.ServicePrincipal("lambda.amazonaws.com")
        return self.iam.Role(stack, "reader", assumed_by=principal)

    def templates(self):
        """The templates by the name of their file."""
        self.app.synth()
        paths = self.folder.rglob("*.template.json")
        return {each.name.partition(".")[0]: json.loads(each.read_text()) for each in paths}


@pytest.fixture
def cdk(default, tmp_path):
    """An app of a user, in the Node.js that templates of our own were made in."""
    return Cdk(tmp_path / "out")


def of_kind(templates, kind):
    """The resources of the one template whose name has a kind of stack."""
    (found,) = (
        each for name, each in templates.items() if re.search(rf"Sleeper{kind}[0-9A-F]{{8}}", name)
    )
    return found["Resources"]


def is_policy_of_role(resource):
    return resource["Type"] == "AWS::IAM::Policy"


@pytest.mark.parametrize("properties", [NETWORK, NETWORK | ALL | {"sleeper.kms.key.arn": KEY}])
@pytest.mark.parametrize("is_nested", [False, True])
def test_its_stacks_are_those_of_the_command(cdk, synthesised, properties, is_nested):
    """Given an app, or a stack in which it is nested, then all parts are what the command deploys."""
    scope = cdk.core.Stack(cdk.app, "Mine", env=cdk.env) if is_nested else cdk.app
    made = cdk.instance(scope, "Sleeper", instance_id="demo", properties=properties, env=cdk.env)
    by_command = synthesised({k: v for k, v in properties.items() if k not in NETWORK})

    templates = cdk.templates()

    assert [*made.stacks] == [*by_command.stacks]
    for kind, theirs in by_command.templates.items():
        ours = of_kind(templates, kind)
        if kind == "PropertiesStack":
            without_defaults(ours)
        assert ours == theirs["Resources"], kind


def without_defaults(resources):
    """Take away what a deployment sets if nobody does, which the other templates here have not."""
    (values,) = (
        each["Properties"]["Properties"]
        for each in resources.values()
        if each["Type"] == "Custom::SleeperProperties"
    )
    for name in (
        "sleeper.version",
        "sleeper.retain.infra.after.destroy",
        "sleeper.default.table.statestore.classname",
    ):
        assert values.pop(name)


def test_stacks_of_an_app_have_the_names_that_the_command_knows(cdk):
    """Given an app, then `sleeper destroy` and `sleeper deploy aws` find its stacks and their tags."""
    made = cdk.instance(cdk.app, "Sleeper", instance_id="demo", properties=NETWORK, env=cdk.env)

    for kind, stack in made.stacks.items():
        assert stack.stack_name == f"sleeper-demo-{kind}"
        assert stack.tags.tag_values()["sleeper.instance.url"] == "aws://demo"


def test_nested_stacks_have_the_tags_and_the_boundary(cdk):
    """Given tags and a boundary, then each nested stack has the tags, and each role the boundary."""
    boundary = f"arn:aws:iam::{ACCOUNT}:policy/limits"
    given = {"sleeper.deploy.permissions.boundary": boundary, "sleeper.tags": "team,data"}
    stack = cdk.core.Stack(cdk.app, "Mine", env=cdk.env)
    cdk.instance(stack, "Sleeper", instance_id="demo", properties=NETWORK | given)

    templates = cdk.templates()

    nested = [
        each["Properties"]["Tags"]
        for each in templates["Mine"]["Resources"].values()
        if each["Type"] == "AWS::CloudFormation::Stack"
    ]
    assert len(nested) == len(templates) - 1
    for tags in nested:
        assert {"Key": "team", "Value": "data"} in tags
        assert {"Key": "sleeper.instance.url", "Value": "aws://demo"} in tags
    roles = [
        each["Properties"]
        for template in templates.values()
        for each in template["Resources"].values()
        if each["Type"] == "AWS::IAM::Role"
    ]
    assert {each.get("PermissionsBoundary") for each in roles} == {boundary}


@pytest.mark.parametrize("is_nested", [False, True])
def test_nothing_is_exported(cdk, is_nested):
    """Given a role of another stack that uses all that is known, then no value passes between stacks."""
    mine = cdk.core.Stack(cdk.app, "Mine", env=cdk.env)
    made = cdk.instance(
        mine if is_nested else cdk.app,
        "Sleeper",
        instance_id="demo",
        properties=NETWORK | {"sleeper.kms.key.arn": KEY},
        env=cdk.env,
    )
    other = cdk.core.Stack(cdk.app, "Other", env=cdk.env)
    role = cdk.role(other)
    made.grant_query(role)
    made.table_bucket.grant_read(role)
    made.query_queue.grant_send_messages(role)
    made.ingest_queue.grant_send_messages(role)
    role.add_managed_policy(made.policies["admin"])

    templates = cdk.templates()

    assert "Fn::ImportValue" not in json.dumps(templates)
    assert all("Outputs" not in each for each in templates.values())
    (role,) = (
        each["Properties"]
        for each in templates["Other"]["Resources"].values()
        if each["Type"] == "AWS::IAM::Role"
    )
    assert role["ManagedPolicyArns"] == [f"arn:aws:iam::{ACCOUNT}:policy/sleeper-demo-admin"]


@pytest.mark.parametrize(
    ("grant", "policy"),
    [
        ("grant_query", "query"),
        ("grant_ingest", "ingest-by-queue"),
        ("grant_ingest_direct", "ingest-direct"),
        ("grant_admin", "admin"),
    ],
)
def test_a_grant_gives_what_the_policy_for_users_has(cdk, synthesised, grant, policy):
    """Given a role of the user's, then it may do what the policy of that name allows, with the key."""
    properties = {"sleeper.kms.key.arn": KEY}
    made = cdk.instance(
        cdk.app, "Sleeper", instance_id="demo", properties=NETWORK | properties, env=cdk.env
    )
    mine = cdk.core.Stack(cdk.app, "Mine", env=cdk.env)
    getattr(made, grant)(cdk.role(mine))

    templates = cdk.templates()

    (given,) = filter(is_policy_of_role, templates["Mine"]["Resources"].values())
    named = synthesised(properties).resource("AWS::IAM::ManagedPolicy", f"-demo-{policy}")
    assert given["Properties"]["PolicyDocument"] == named.properties["PolicyDocument"]


def test_buckets_queues_and_url_are_those_of_the_instance(cdk):
    """Given the construct, then what programs need is known by its name."""
    made = cdk.instance(cdk.app, "Sleeper", instance_id="demo", properties=NETWORK, env=cdk.env)

    assert made.url == "aws://demo"
    assert made.instance_id == "demo"
    assert made.config_bucket.bucket_name == f"sleeper-demo-config-{ACCOUNT}"
    assert made.table_bucket.bucket_name == f"sleeper-demo-table-data-{ACCOUNT}"
    assert made.query_queue.queue_url == (
        f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/sleeper-demo-QueryQueue"
    )
    assert made.ingest_queue.queue_arn == made.ingest_queue.queue_arn, "it is known once"
    assert made.policies.keys() == {"query", "ingest-by-queue", "ingest-direct", "admin"}


def test_two_instances_are_in_one_stack(cdk):
    """Given two in one stack of the user's, then neither is in the other's way."""
    stack = cdk.core.Stack(cdk.app, "Mine", env=cdk.env)
    for name in ("one", "two"):
        cdk.instance(stack, name, instance_id=name, properties=NETWORK)

    templates = cdk.templates()

    assert len({name for name in templates if "QueuesStack" in name}) == 2


def test_account_and_region_must_be_known(cdk):
    """Given a stack for any account, then the message says where they are to be given."""
    stack = cdk.core.Stack(cdk.app, "Anywhere")

    with pytest.raises(BadRequest, match="env=Environment"):
        cdk.instance(stack, "Sleeper", instance_id="demo", properties=NETWORK)


def test_wrong_properties_are_refused_while_templates_are_made(cdk):
    """Given a misspelt name and no network, then all is told at once, and before AWS is asked."""
    with pytest.raises(PropertiesInvalid, match=r"Did you mean sleeper\.gc\.batch\.size"):
        cdk.instance(
            cdk.app,
            "A",
            instance_id="demo",
            properties={"sleeper.gc.batch.siez": 5},
            env=cdk.env,
        )
    with pytest.raises(PropertiesInvalid) as refused:
        cdk.instance(cdk.app, "B", instance_id="_", properties={}, env=cdk.env)
    assert {"sleeper.id", "sleeper.vpc", "sleeper.subnets"} <= refused.value.failures.keys()


def test_who_deploys_it_needs_the_policies_of_the_command(cdk, synthesised):
    """Given its stacks, then their types are those that policies are made for."""
    made = cdk.instance(cdk.app, "Sleeper", instance_id="demo", properties=NETWORK, env=cdk.env)
    names = synthesised().settings.names

    templates = cdk.templates()

    assert made.stacks
    assert deployer_policies(templates.values(), names) == deployer_policies(
        synthesised().templates.values(), names
    )


def test_the_example_of_the_page_is_synthesised(cdk, tmp_path):
    """Given the app on the page, when it runs as it stands there, then it has an instance and a role."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (program,) = (each for each in blocks if "app.synth()" in each)
    (tmp_path / "app.py").write_text(program.replace("App()", f"App(outdir={str(tmp_path)!r})"))

    subprocess.run([sys.executable, "app.py"], cwd=tmp_path, check=True, capture_output=True)

    templates = {each.name: each.read_text() for each in tmp_path.glob("*.template.json")}
    assert any("QueryStack" in name for name in templates)
    assert "sleeper-demo-QueryQueue" in templates["Reports.template.json"]
