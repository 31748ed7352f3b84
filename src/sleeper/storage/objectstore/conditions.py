"""Checks whether a server creates an object only if it is absent, also in a race.

Some servers ignore the condition. Others check it before they write, not atomically, so that
several concurrent writers all succeed. Commits would be lost silently there.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock

from sleeper.errors import StorageFailed
from sleeper.ports.ids import NewId
from sleeper.storage.objectstore.client import without_conditions
from sleeper.storage.objectstore.objects import BucketObjects

logger = logging.getLogger(__name__)

_kept: set[object] = set()
_trying = Lock()


def check_conditions(
    objects: BucketObjects, new_id: NewId, *, writers: int = 16, rounds: int = 6
) -> None:
    """Create scratch objects, by one writer and in races of threads, and delete them.

    Args:
        objects: The instance's objects.
        new_id: Makes a unique id for the scratch objects.
        writers: Threads that race for one name.
        rounds: Number of names they race for.

    Raises:
        StorageReadOnly: the server breaks the condition; the message names the check.
        StorageFailed: the store does not answer.
    """
    folder = f"condition-checks/{new_id()}"
    keys = [f"{folder}/{number}" for number in range(rounds + 1)]
    try:
        _check_one_writer(objects, keys[0])
        with ThreadPoolExecutor(writers) as threads:
            for key in keys[1:]:
                _check_race(objects, key, writers, threads)
    finally:
        _delete(objects, keys)
    _kept.add(_place(objects))
    logger.debug("%s honours If-None-Match", objects.client.bucket.named(""))


def check_conditions_once(objects: BucketObjects, new_id: NewId) -> None:
    """Run a short `check_conditions`, once in a process for each bucket.

    Raises:
        StorageReadOnly: the server breaks the condition; the message names the check.
        StorageFailed: the store does not answer.
    """
    if _place(objects) in _kept:
        return
    with _trying:
        if _place(objects) not in _kept:
            check_conditions(objects, new_id, writers=8, rounds=2)


def _place(objects: BucketObjects) -> object:
    return objects.client.bucket, objects.client.settings


def _check_one_writer(objects: BucketObjects, key: str) -> None:
    first = b"first"
    created = objects.create(key, first)
    stored = objects.read(key)
    if stored != first:
        told = "the key was taken" if not created else "it was created"
        raise without_conditions(
            objects.client.bucket, "read after create", f"{told}, and a read found {stored!r}"
        )
    if objects.create(key, b"second") or objects.read(key) != first:
        raise without_conditions(
            objects.client.bucket,
            "create on a taken name",
            "the server took a second object under the name of the first",
        )


def _check_race(
    objects: BucketObjects, key: str, writers: int, threads: ThreadPoolExecutor
) -> None:
    together = Barrier(writers)
    bodies = [b"writer %d" % number for number in range(writers)]

    def write(body: bytes) -> bool:
        together.wait()
        return objects.create(key, body)

    answers = list(threads.map(write, bodies))
    winners = [body for body, created in zip(bodies, answers, strict=True) if created]
    stored = objects.read(key)
    # No writer got success if the first one's reply was lost and its client repeated the request.
    if len(winners) > 1 or stored not in (winners or bodies):
        raise without_conditions(
            objects.client.bucket,
            f"race of {writers} writers",
            f"{len(winners)} writers created the same object, which contains {stored!r}",
        )


def _delete(objects: BucketObjects, keys: list[str]) -> None:
    try:
        objects.delete(keys)
    except StorageFailed as error:
        logger.warning("scratch objects were not deleted: %s", error)
