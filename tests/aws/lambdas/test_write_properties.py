"""CloudFormation has the properties of an instance written, and is answered whatever happens."""

from __future__ import annotations

import json
import logging
import uuid
from contextlib import contextmanager

import boto3
import pytest

import sleeper
from sleeper.deploy.settings import DeploymentSettings
from sleeper.errors import BadRequest, StorageFailed
from sleeper.interfaces.lambdas import handlers
from tests.aws.lambdas.functions import Context, aws_endpoint, s3_credentials, s3_server
from tests.aws.lambdas.waiting_stack import request, stack
from tests.contracts.s3_server import REGION

__all__ = ["aws_endpoint", "s3_credentials", "s3_server", "stack"]

BATCH = "sleeper.gc.batch.size"
FILES = "sleeper.default.table.compaction.files.batch.size"


@pytest.fixture
def settings(aws_endpoint, monkeypatch):
    """The settings of an instance whose buckets there are, and nothing else."""
    instance_id = f"cf-{uuid.uuid4().hex[:8]}"
    account = boto3.client("sts", region_name=REGION, endpoint_url=aws_endpoint)
    number = account.get_caller_identity()["Account"]
    given = {"sleeper.id": instance_id, "sleeper.optional.stacks": "QueryStack"}
    made = DeploymentSettings.of(given, account=number, region=REGION)
    s3 = boto3.client("s3", region_name=REGION, endpoint_url=aws_endpoint)
    for bucket in made.names.buckets.buckets:
        s3.create_bucket(Bucket=bucket)
    monkeypatch.setenv("SLEEPER_INSTANCE", made.names.url)
    return made


@pytest.fixture
def deploy(settings, stack):
    """Does what CloudFormation asks for, and returns its answer."""

    def deployed(kind, after, before=None, *, context=None):
        event = request(stack, kind, after, before)
        sent = len(stack.answers)
        handlers.write_properties(event, context or Context())
        (answer,) = stack.answers[sent:]
        return answer[2]

    return deployed


def stored(settings):
    with sleeper.connect(settings.names.url) as instance:
        return dict(instance.properties.values)


def test_the_first_template_makes_the_instance(settings, deploy, stack):
    """Given buckets without properties, when a stack is made, then the instance opens by its URL."""
    template = settings.template_properties()

    answer = deploy("Create", {**template, BATCH: "7"})

    values = stored(settings)
    assert answer["Status"] == "SUCCESS"
    assert {**values, **template, BATCH: "7"} == values
    added = values.keys() - template.keys() - {BATCH}
    assert added == {
        "sleeper.format.version",
        "sleeper.default.table.statestore.classname",
    }
    path, kind, body = stack.answers[0]
    assert path == "/answer?signature=a%2Fb", "the address is signed as it is"
    assert not kind
    assert {each: body[each] for each in ("StackId", "RequestId", "LogicalResourceId")} == {
        "StackId": "arn:aws:cloudformation:x",
        "RequestId": "r-1",
        "LogicalResourceId": "properties",
    }
    assert body["PhysicalResourceId"] == "properties"


def test_the_same_request_again_changes_nothing(settings, deploy):
    """Given Lambda that calls a second time, then the answer is the same, and no version is new."""
    template = settings.template_properties()
    deploy("Create", template)
    before = stored(settings)

    again = deploy("Create", template)

    assert again["Status"] == "SUCCESS"
    assert stored(settings) == before


def test_what_was_set_since_stays_unless_the_template_changes_it(settings, deploy):
    """Given two properties set by hand, when a template changes one, then the other stays."""
    template = settings.template_properties() | {BATCH: "7", FILES: "5"}
    deploy("Create", template)
    with sleeper.connect(settings.names.url) as instance:
        instance.set_properties({BATCH: 70, FILES: 50})

    deploy("Update", {**template, BATCH: "8", "sleeper.gc.period.minutes": "9"}, template)

    values = stored(settings)
    assert (values[BATCH], values[FILES], values["sleeper.gc.period.minutes"]) == ("8", "50", "9")


@pytest.mark.parametrize(("set_since", "left"), [(None, None), ("70", "70")])
def test_what_a_template_has_no_more_is_taken_away_unless_it_was_set_since(
    settings, deploy, set_since, left
):
    """Given a property that leaves the template, then its default is in force again, or the user's."""
    template = settings.template_properties()
    deploy("Create", {**template, BATCH: "7"})
    if set_since is not None:
        with sleeper.connect(settings.names.url) as instance:
            instance.set_properties({BATCH: set_since})

    deploy("Update", template, {**template, BATCH: "7"})

    assert stored(settings).get(BATCH) == left


def test_a_new_stack_takes_over_an_instance_that_is_there(settings, deploy):
    """Given data that was kept, when stacks are made again, then their properties are in force."""
    template = settings.template_properties()
    deploy("Create", {**template, FILES: "5"})

    deploy("Create", {**template, BATCH: "9"})

    values = stored(settings)
    assert (values[BATCH], values[FILES]) == ("9", "5")


def test_properties_stay_when_the_stack_is_deleted(settings, deploy):
    """Given a request to delete them, then it is answered, and they are what they were."""
    template = settings.template_properties()
    deploy("Create", template)
    before = stored(settings)

    answer = deploy("Delete", template)

    assert answer["Status"] == "SUCCESS"
    assert stored(settings) == before


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"sleeper.gc.batch.siez": "7"}, "Did you mean sleeper.gc.batch.size?"),
        ({BATCH: "many"}, BATCH),
        ({"sleeper.id": "another"}, "sleeper.id"),
        ({"sleeper.config.bucket": "another"}, "sleeper.config.bucket"),
        ({"sleeper.region": "eu-west-1"}, "sleeper.region"),
    ],
)
@pytest.mark.parametrize("is_there", [False, True])
def test_a_wrong_property_fails_the_stack_with_the_reason(
    settings, deploy, caplog, wrong, told, is_there
):
    """Given a property that is not known or not allowed, then the stack fails, and nothing is written."""
    caplog.set_level(logging.CRITICAL)
    template = settings.template_properties()
    before = None
    if is_there:
        deploy("Create", template)
        before = stored(settings)

    answer = deploy("Update" if is_there else "Create", {**template, **wrong}, before and template)

    assert answer["Status"] == "FAILED"
    assert told in answer["Reason"]
    if is_there:
        assert stored(settings) == before
    else:
        with pytest.raises(sleeper.NotFound):
            sleeper.connect(settings.names.url)


def test_an_unknown_property_that_somebody_stored_is_left_alone(settings, deploy):
    """Given a name of another version in the storage and in the template, then it is no failure."""
    template = settings.template_properties()
    deploy("Create", template)
    with sleeper.connect(settings.names.url) as instance:
        instance.set_properties({"sleeper.of.another.version": "1"})

    answer = deploy("Create", {**template, "sleeper.of.another.version": "1"})

    assert answer["Status"] == "SUCCESS"


def test_the_id_of_a_platform_alone_makes_no_instance(settings, deploy, caplog):
    """Given no instance, when the stack of a platform comes first, then it fails and says why."""
    caplog.set_level(logging.CRITICAL)
    name = "sleeper.bulk.import.emr.serverless.application.id"

    answer = deploy("Create", {name: "00f1"})

    assert answer["Status"] == "FAILED"
    assert name in answer["Reason"]
    settings_made = deploy("Create", settings.template_properties())
    assert settings_made["Status"] == "SUCCESS"
    assert deploy("Create", {name: "00f1"})["Status"] == "SUCCESS"
    assert stored(settings)[name] == "00f1"


@contextmanager
def failing(monkeypatch, error, times):
    """Storage that fails so many times before it writes."""
    real, left = handlers.write_deployed_properties, [error] * times

    def write(*given):
        if left:
            raise left.pop()
        return real(*given)

    monkeypatch.setattr(handlers, "write_deployed_properties", write)
    monkeypatch.setattr(handlers, "_AGAIN_S", 0.01)
    yield


def test_a_role_that_s3_does_not_know_yet_is_waited_for(settings, deploy, monkeypatch):
    """Given two refusals, then the properties are written by the same call."""
    with failing(monkeypatch, StorageFailed("access denied"), 2):
        answer = deploy("Create", settings.template_properties())

    assert answer["Status"] == "SUCCESS"


@pytest.mark.parametrize("error", [StorageFailed("access denied"), ZeroDivisionError("é" * 5_000)])
def test_any_failure_is_answered_before_the_time_is_over(
    deploy, settings, monkeypatch, caplog, error
):
    """Given storage that never answers, or a fault of our own, then the stack fails at once."""
    caplog.set_level(logging.CRITICAL)
    with failing(monkeypatch, error, 1_000_000):
        answer = deploy("Create", settings.template_properties(), context=Context(whole_s=0.5))

    assert answer["Status"] == "FAILED"
    assert len(json.dumps(answer)) < 4_096, "CloudFormation takes no longer answer"


def test_an_answer_that_is_not_taken_is_sent_again(settings, deploy, stack):
    """Given two answers that get lost, then the third one is taken."""
    stack.refusals = 2

    assert deploy("Create", settings.template_properties())["Status"] == "SUCCESS"


def test_an_answer_that_is_never_taken_ends_the_call_with_a_failure(settings, deploy, stack):
    """Given CloudFormation that cannot be reached, then Lambda hears of it and calls again."""
    stack.refusals = 1_000

    with pytest.raises(StorageFailed, match="did not take the answer"):
        deploy("Create", settings.template_properties())


@pytest.mark.parametrize("event", [{}, {"RequestType": "Create", "ResponseURL": None}])
def test_who_is_not_cloudformation_is_told(event):
    """Given a call by hand, then it fails with what the function is for."""
    with pytest.raises(BadRequest, match="CloudFormation alone"):
        handlers.write_properties(event, Context())
