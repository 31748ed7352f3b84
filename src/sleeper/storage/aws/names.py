"""Names of an instance's resources in AWS."""

from __future__ import annotations

import re

from sleeper.errors import PropertiesInvalid


def resource_prefix(instance_id: str) -> str:
    """Return what the names of an instance's resources in AWS begin with.

    >>> resource_prefix("Demo.2")
    'sleeper-demo-2-'

    Raises:
        PropertiesInvalid: the id has other characters than AWS allows in names.
    """
    cleaned = instance_id.lower().replace(".", "-")
    if not re.fullmatch("[a-z0-9_-]+", cleaned):
        raise PropertiesInvalid(
            {
                "sleeper.id": f"sleeper.id is {instance_id!r}, but names in AWS have only letters "
                "from a to z, digits, - and _: this instance cannot have queues or tables there."
            }
        )
    return f"sleeper-{cleaned}-"
