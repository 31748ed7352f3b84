"""A new stack, without anything that it would share with others."""

from __future__ import annotations

from typing import Final

from aws_cdk import App, Environment, LegacyStackSynthesizer, PermissionsBoundary, Stack, Tags

from sleeper.deploy.settings import DeploymentSettings
from sleeper.storage.aws.names import OWNER_TAG, owner_tag_value

_OWNED: Final = ("AWS::S3::Bucket", "AWS::DynamoDB::Table", "AWS::SQS::Queue")
"""Types of resources whose tag says that they are the instance's, as `sleeper init` tags them."""


def new_stack(app: App, settings: DeploymentSettings, kind: str, description: str) -> Stack:
    """Add an empty stack to an app.

    AWS gives the tags of a stack to all of its resources. A stack needs no bootstrap of the
    account, and cannot have assets: its images are in ECR, and its
    template is short enough to be sent as it is.

    Args:
        app: The app.
        settings: The settings of the deployment.
        kind: What it is, such as `IngestStack`.
        description: What it has, in a sentence.
    """
    names, cloud = settings.names, settings.properties.cloud
    boundary = cloud.boundary and PermissionsBoundary.from_arn(cloud.boundary)
    stack = Stack(
        app,
        kind,
        stack_name=names.stack(kind),
        description=f"Sleeper instance {names.instance_id}: {description}",
        env=Environment(account=names.account, region=names.region),
        synthesizer=LegacyStackSynthesizer(),
        permissions_boundary=boundary,
        tags={
            **settings.tags(),
            cloud.stack_tag: names.stack(kind),
            OWNER_TAG: owner_tag_value(names.url),  # by which a deployment knows its stacks
        },
    )
    Tags.of(stack).add(OWNER_TAG, owner_tag_value(names.url), include_resource_types=list(_OWNED))
    return stack
