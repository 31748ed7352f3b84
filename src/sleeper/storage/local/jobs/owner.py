"""Which instance a file of jobs belongs to: two that shared one would take each other's jobs."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Final

from sleeper.errors import PropertiesInvalid
from sleeper.language.value_classes import dataclass

logger = logging.getLogger(__name__)

_MAKE: Final = "CREATE TABLE IF NOT EXISTS owner(instance_id TEXT NOT NULL, url TEXT NOT NULL)"


@dataclass(frozen=True, slots=True)
class Owner:
    """An instance, as its file of jobs remembers it.

    Attributes:
        instance_id: Its `sleeper.id`.
        url: Where it was when it last used the file from a new place.
    """

    instance_id: str
    url: str


def check_owner(connection: sqlite3.Connection, path: Path, owner: Owner) -> bool:
    """Return whether the file is known to belong to an instance, at its place; else no one's yet.

    Raises:
        PropertiesInvalid: it belongs to another one.
    """
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'owner'").fetchone():
        return False
    found = connection.execute("SELECT instance_id, url FROM owner").fetchone()
    if found is None:
        return False
    known = Owner(*found)
    if known.instance_id != owner.instance_id:
        raise PropertiesInvalid(
            {
                "sleeper.jobs.url": f"{path} has the jobs of instance {known.instance_id!r} at "
                f"{known.url}, so instance {owner.instance_id!r} at {owner.url} cannot keep its "
                "own there: each would take the other's. Set sleeper.jobs.url of the second to "
                "another file. If the first is no more, move the file away, with its -wal and "
                "-shm files."
            }
        )
    return known == owner


def note_owner(connection: sqlite3.Connection, path: Path, owner: Owner) -> None:
    """Write down whose file it is, in a transaction that may write.

    Raises:
        PropertiesInvalid: it is another instance's.
    """
    if check_owner(connection, path, owner):
        return
    connection.execute(_MAKE)
    before = connection.execute("DELETE FROM owner RETURNING url").fetchall()
    connection.execute("INSERT INTO owner VALUES(?, ?)", (owner.instance_id, owner.url))
    if before:
        logger.warning(
            "%s was used by instance %r at %s before, and now by the one of that id at %s: if the "
            "instance was moved, all is well; if there are two, give each a file of its own by "
            "sleeper.jobs.url",
            path,
            owner.instance_id,
            before[0][0],
            owner.url,
        )
