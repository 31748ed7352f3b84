"""The role that ECS takes for itself, which an account lacks before its first cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from sleeper.storage.aws.clients import aws_client, error_code, vendor_errors

logger = logging.getLogger(__name__)

_SERVICE: Final = "ecs.amazonaws.com"
_THERE: Final = ("InvalidInput", "EntityAlreadyExists")
KNOWN_S: Final = 15
"""How long after it was made AWS may not know a role everywhere."""


def make_ecs_role(
    region: str, rest: Callable[[float], object], report: Callable[[str], object]
) -> None:
    """Make the service-linked role of ECS if the account has none.

    ECS makes it for the first cluster, and then mostly refuses that cluster, because the role is
    not known everywhere yet.

    Args:
        region: The region.
        rest: Waits for so many seconds.
        report: Told of what was made, or why nothing was.
    """
    try:
        aws_client("iam", region).create_service_linked_role(AWSServiceName=_SERVICE)
    except vendor_errors() as error:
        if error_code(error) in _THERE:
            return
        logger.info("the service-linked role of ECS was not made: %s", error)
        report(
            "WARNING: whether the account has the service-linked role of ECS is not known "
            f"({error_code(error) or type(error).__name__}). If the stack of the cluster fails, "
            f"type: aws iam create-service-linked-role --aws-service-name {_SERVICE}"
        )
        return
    report("the account has a service-linked role of ECS now, which its first cluster needs")
    rest(KNOWN_S)
