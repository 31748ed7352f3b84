"""Tries whether a server really creates an object only if there is none.

Servers were seen that ignore the condition, and others that look first and write later, so that
of several writers at once each is told to be the first. Commits would be lost there in silence.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock

from sleeper.errors import StorageFailed
from sleeper.ports.ids import NewId
from sleeper.storage.objectstore.failures import without_conditions
from sleeper.storage.objectstore.objects import BucketObjects

logger = logging.getLogger(__name__)

_kept: set[object] = set()
_trying = Lock()


def check_conditions(
    objects: BucketObjects, new_id: NewId, *, writers: int = 16, rounds: int = 6
) -> None:
    """Create scratch objects, alone and in races of threads, and delete them.

    Args:
        objects: Where they are made: the instance's objects.
        new_id: Makes an id that no other process uses for its scratch objects.
        writers: Threads that race for one name.
        rounds: How many names they race for.

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
    logger.debug("%s keeps If-None-Match", objects.client.bucket.named(""))


def check_conditions_once(objects: BucketObjects, new_id: NewId) -> None:
    """Do a short `check_conditions` unless this process did one for the bucket already.

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
    # None was told so: the first one's reply got lost, and its client repeated the request.
    if len(winners) > 1 or stored not in (winners or bodies):
        raise without_conditions(
            objects.client.bucket,
            f"race of {writers} writers",
            f"{len(winners)} writers were told that they created one object, which holds "
            f"{stored!r}",
        )


def _delete(objects: BucketObjects, keys: list[str]) -> None:
    try:
        objects.delete(keys)
    except StorageFailed as error:
        logger.warning("scratch objects were not deleted: %s", error)
