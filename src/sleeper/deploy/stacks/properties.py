"""PropertiesStack: the instance's properties, which a function writes when stacks are deployed.

A template has the properties as a custom resource: CloudFormation calls the function with those of
the template before and those of the template now, and waits for its answer. So templates alone make
an instance, whoever deploys them. What CloudFormation deletes it forgets: properties stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aws_cdk import CfnResource, RemovalPolicy, Stack
from constructs import Construct

from sleeper.deploy.grants import write_properties
from sleeper.deploy.names import PROPERTIES_TYPE, PROPERTIES_WRITER
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.parts import FunctionSpec, add_function, new_stack
from sleeper.model.stacks import StackName

_MEMORY_MB: Final = 512
_TIMEOUT_S: Final = 120
_ANSWER_S: Final = 600
"""How long CloudFormation waits for an answer: Lambda calls again after one and two minutes.

Otherwise a function that cannot start would hold a stack for an hour.
"""


def add_properties_stack(scope: Construct, settings: DeploymentSettings) -> Stack:
    """Add PropertiesStack."""
    stack = new_stack(scope, settings, StackName.PROPERTIES, "its properties")
    writer = FunctionSpec(
        name=PROPERTIES_WRITER,
        handler="write_properties",
        description="Writes the properties that templates have",
        memory_mb=_MEMORY_MB,
        timeout_s=_TIMEOUT_S,
        grants=write_properties(settings.names),
        environment={},
    )
    function = add_function(stack, settings, writer)
    add_properties(stack, settings, settings.template_properties()).node.add_dependency(function)
    return stack


def add_properties(
    stack: Stack, settings: DeploymentSettings, properties: Mapping[str, str]
) -> CfnResource:
    """Add properties to a stack, which is deployed after PropertiesStack or is that.

    Args:
        stack: Where.
        settings: The settings of the deployment.
        properties: The properties; values may be known to CloudFormation alone.
    """
    resource = CfnResource(
        stack,
        "properties",
        type=PROPERTIES_TYPE,
        properties={
            "ServiceToken": settings.names.function_arn(PROPERTIES_WRITER),
            "ServiceTimeout": _ANSWER_S,
            "Properties": dict(sorted(properties.items())),
        },
    )
    resource.apply_removal_policy(RemovalPolicy.RETAIN)
    return resource
