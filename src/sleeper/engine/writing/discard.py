"""Deletes files that were written and will not be committed."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from sleeper.errors import StorageFailed
from sleeper.ports.objects import Objects

_log = logging.getLogger(__name__)


def discard_files(filenames: Iterable[str], files: Objects) -> None:
    """Delete files that no commit names; if that fails, a sweep of orphans does it.

    Args:
        filenames: Their names; one may be there several times.
        files: The table's folder.
    """
    names = [*dict.fromkeys(filenames)]
    if not names:
        return
    try:
        files.delete(names)
        _log.info("deleted %d files that no commit names, the first %s", len(names), names[0])
    except StorageFailed as failure:
        _log.warning("files that will not be committed stay until a sweep: %s", failure)
