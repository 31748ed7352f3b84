"""Deletes many objects; a failure on one does not prevent the deletion of others."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from sleeper.errors import StorageFailed
from sleeper.model import paths
from sleeper.ports.objects import Objects

logger = logging.getLogger(__name__)


def delete_data_files(names: Iterable[str], objects: Objects) -> dict[str, str]:
    """Delete data files of a table with their sketches; return what failed, and why.

    Only files with the name of a data file are deleted: names come from the log, and a malicious
    entry could name a log entry.

    Args:
        names: Data files, by their paths in the table's folder.
        objects: The table's folder.
    """
    listed = list(names)
    failures = {
        name: f"{name!r} is not the name of a data file (data/partition_<id>/<name>.parquet)"
        for name in listed
        if not paths.is_data_file(name)
    }
    for reason in failures.values():
        logger.error("not deleted: %s", reason)
    groups = {name: [name, paths.sketch_file(name)] for name in listed if name not in failures}
    return failures | delete_groups(groups, objects)


def delete_groups(groups: Mapping[str, Sequence[str]], objects: Objects) -> dict[str, str]:
    """Delete groups of objects together, and on failure one by one; return what failed, and why.

    Args:
        groups: Keys of objects that are deleted together, by the name of the group.
        objects: The objects.
    """
    if not groups:
        return {}
    try:
        objects.delete([key for keys in groups.values() for key in keys])
    except StorageFailed as error:
        logger.warning("%d deletions are retried one by one, after: %s", len(groups), error)
        return _delete_one_by_one(groups, objects)
    for name in groups:
        logger.info("deleted %s", name)
    return {}


def _delete_one_by_one(groups: Mapping[str, Sequence[str]], objects: Objects) -> dict[str, str]:
    failures = {}
    for name, keys in groups.items():
        try:
            objects.delete(keys)
        except StorageFailed as error:
            failures[name] = str(error)
            logger.warning("not deleted: %s: %s", name, error)
        else:
            logger.info("deleted %s", name)
    return failures
