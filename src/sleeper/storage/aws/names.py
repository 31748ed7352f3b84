"""Names of an instance's resources in AWS."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

from sleeper.errors import PropertiesInvalid

OWNER_TAG: Final = "sleeper.instance.url"
"""The tag of a resource that names the instance that it belongs to."""

_TAG_VALUE: Final = re.compile("[A-Za-z0-9 _.:/=+@-]{1,256}")


def owner_tag_value(url: str) -> str:
    """Return the value of that tag: the instance's URL, or a hash if tags cannot have it."""
    return url if _TAG_VALUE.fullmatch(url) else sha256(url.encode()).hexdigest()


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
