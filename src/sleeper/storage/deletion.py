"""Deleting many objects, so that one that cannot be deleted does not keep the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from sleeper.errors import StorageFailed
from sleeper.ports.objects import Objects


def delete_groups(groups: Mapping[str, Sequence[str]], objects: Objects) -> dict[str, str]:
    """Delete groups of objects all together, or else group by group; return what failed, and why.

    Args:
        groups: Keys of objects that go together, by the name of the group.
        objects: Where they are.
    """
    if not groups:
        return {}
    with suppress(StorageFailed):
        objects.delete([key for keys in groups.values() for key in keys])
        return {}
    failures = {}
    for name, keys in groups.items():
        try:
            objects.delete(keys)
        except StorageFailed as error:
            failures[name] = str(error)
    return failures
