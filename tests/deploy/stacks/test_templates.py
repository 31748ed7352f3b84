"""Every template keeps the rules of all stacks, and is one that CloudFormation takes."""

from __future__ import annotations

import pytest
from cfnlint.api import lint

pytestmark = pytest.mark.xdist_group("cdk")

TEMPLATE_BYTES_MAX = 51_200


def test_no_template_has_an_error(default):
    """cfn-lint finds none."""
    found = {
        kind: [f"{each.rule.id} {each.message} {each.path}" for each in matches]
        for kind, stack in default.stacks.items()
        if (matches := lint(stack.template.read_text(), regions=["eu-west-2"]))
    }

    assert found == {}


def test_each_template_can_be_sent_as_it_is(default):
    """A longer one would need a bucket, and so a bootstrap of the account."""
    sizes = {kind: stack.template.stat().st_size for kind, stack in default.stacks.items()}

    assert {kind: size for kind, size in sizes.items() if size > TEMPLATE_BYTES_MAX} == {}


def test_stacks_share_nothing_but_names(default):
    """No exports, imports, parameters or assets: stacks come and go by themselves."""
    for kind, template in default.templates.items():
        text = default.stacks[kind].template.read_text()
        assert template.keys() <= {"Description", "Resources"}, kind
        assert "Fn::ImportValue" not in text, kind
        assert "cdk-hnb659fds" not in text, kind
    assert "cdk-hnb659fds" not in (default.made.folder / "manifest.json").read_text()


def test_every_queue_has_dead_letters_and_is_encrypted_and_closed(default):
    """Encrypted by SQS; requests without TLS are denied."""
    queues = default.resources("AWS::SQS::Queue")
    policies = {
        ref["Ref"]: policy.properties["PolicyDocument"]["Statement"]
        for policy in default.resources("AWS::SQS::QueuePolicy")
        for ref in policy.properties["Queues"]
    }
    dead = {
        each.properties["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"][0]
        for each in queues
        if "RedrivePolicy" in each.properties
    }

    assert len(queues) >= 20
    for queue in queues:
        assert queue.properties["SqsManagedSseEnabled"] is True, queue.name
        assert ("RedrivePolicy" in queue.properties) is (queue.id not in dead), queue.name
        (statement,) = policies[queue.id]
        assert statement["Effect"] == "Deny"
        assert statement["Action"] == "sqs:*"
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_every_bucket_is_encrypted_and_closed(default):
    """Nothing public, nothing without TLS; objects belong to the bucket's owner."""
    buckets = default.resources("AWS::S3::Bucket")
    policies = {
        each.properties["Bucket"]["Ref"]: each.properties["PolicyDocument"]["Statement"]
        for each in default.resources("AWS::S3::BucketPolicy")
    }

    assert {each.name for each in buckets} == set(default.settings.names.buckets.buckets)
    for bucket in buckets:
        (rule,) = bucket.properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
        assert set(bucket.properties["PublicAccessBlockConfiguration"].values()) == {True}
        (statement,) = policies[bucket.id]
        assert (statement["Effect"], statement["Action"]) == ("Deny", "s3:*")
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        assert bucket.whole["DeletionPolicy"] == "Retain"
