"""Checks whether a server creates an object only if it is absent, also in a race.

Some servers ignore the condition. Others check it before they write, not atomically, so that
several concurrent writers all succeed. Commits would be lost silently there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from threading import Barrier, Lock
from typing import TypeVar

from sleeper.errors import StorageFailed, StorageFull, StorageReadOnly
from sleeper.ports.clock import Clock
from sleeper.ports.ids import NewId
from sleeper.storage.objectstore.client import RETRY_S, without_conditions
from sleeper.storage.objectstore.objects import BucketObjects

logger = logging.getLogger(__name__)

T = TypeVar("T")

_kept: set[object] = set()
_trying = Lock()


def check_conditions(
    objects: BucketObjects, new_id: NewId, clock: Clock, *, writers: int = 16, rounds: int = 6
) -> None:
    """Create scratch objects, by one writer and in races of threads, and delete them.

    Where connections break, requests are sent again until `RETRY_S` have passed.

    Args:
        objects: The instance's objects.
        new_id: Makes a unique id for the scratch objects.
        clock: Says how long requests were tried, and waits between them.
        writers: Threads that race for one name.
        rounds: Number of names they race for.

    Raises:
        StorageReadOnly: the server breaks the condition; the message names the check.
        StorageFailed: the store does not answer. Nothing of a table was written.
    """
    folder = f"condition-checks/{new_id()}"
    keys = [f"{folder}/{number}" for number in range(rounds + 1)]
    trial = _Trial(objects, clock, clock.ticks_s() + RETRY_S)
    try:
        _check_one_writer(trial, keys[0])
        with ThreadPoolExecutor(writers) as threads:
            for key in keys[1:]:
                _check_race(trial, key, writers, threads)
    except StorageReadOnly:
        raise
    except StorageFailed as error:
        raise type(error)(
            f"whether {objects.client.bucket.named('')} creates an object only if it is absent "
            f"could not be tried: {error} Nothing was written to a table."
        ) from error
    finally:
        _delete(objects, keys)
    _kept.add(_place(objects))
    logger.debug("%s honours If-None-Match", objects.client.bucket.named(""))


def check_new_instance(objects: BucketObjects, new_id: NewId, clock: Clock) -> None:
    """Run `check_conditions` for a new instance: a short one where the server is Amazon's.

    Amazon documents the condition, and commits there are not checked again. Other servers may let
    several writers win in some races alone, so there are many.

    Raises:
        StorageReadOnly: the server breaks the condition; the message names the check.
        StorageFailed: the store does not answer. Nothing of a table was written.
    """
    if objects.client.is_amazon:
        check_conditions(objects, new_id, clock, writers=8, rounds=1)
    else:
        check_conditions(objects, new_id, clock)


def check_conditions_once(objects: BucketObjects, new_id: NewId, clock: Clock) -> None:
    """Run a short `check_conditions`, once in a process for each bucket.

    Raises:
        StorageReadOnly: the server breaks the condition; the message names the check.
        StorageFailed: the store does not answer. Nothing of a table was written.
    """
    if _place(objects) in _kept:
        return
    with _trying:
        if _place(objects) not in _kept:
            check_conditions(objects, new_id, clock, writers=8, rounds=2)


def _place(objects: BucketObjects) -> object:
    return objects.client.bucket, objects.client.settings


@dataclass(frozen=True, slots=True)
class _Trial:
    """Requests of one check, sent again while connections break.

    A create that is sent again may find the object of its own first request: then nobody wins, and
    what is stored decides. So it may be sent as often as one likes.
    """

    objects: BucketObjects
    clock: Clock
    end_s: float

    def create(self, key: str, body: bytes) -> bool:
        """Create an object; False if there is one, perhaps by an earlier request of this call."""
        return self._until_answered(lambda: self.objects.create(key, body))

    def read(self, key: str) -> bytes | None:
        """Read an object."""
        return self._until_answered(lambda: self.objects.read(key))

    def _until_answered(self, request: Callable[[], T]) -> T:
        for attempt in count():
            try:
                return request()
            except (StorageReadOnly, StorageFull):
                raise
            except StorageFailed as error:
                if self.clock.ticks_s() >= self.end_s:
                    raise
                logger.info("a trial of conditional writes is sent again: %s", error)
                self.clock.back_off(attempt)
        raise AssertionError  # count has no end


def _check_one_writer(trial: _Trial, key: str) -> None:
    first = b"first"
    created = trial.create(key, first)
    stored = trial.read(key)
    bucket = trial.objects.client.bucket
    if stored != first:
        told = "the key was taken" if not created else "it was created"
        raise without_conditions(
            bucket, "read after create", f"{told}, and a read found {stored!r}"
        )
    if trial.create(key, b"second") or trial.read(key) != first:
        raise without_conditions(
            bucket,
            "create on a taken name",
            "the server took a second object under the name of the first",
        )


def _check_race(trial: _Trial, key: str, writers: int, threads: ThreadPoolExecutor) -> None:
    together = Barrier(writers)
    bodies = [b"writer %d" % number for number in range(writers)]

    def write(body: bytes) -> bool:
        together.wait()
        return trial.create(key, body)

    answers = list(threads.map(write, bodies))
    winners = [body for body, created in zip(bodies, answers, strict=True) if created]
    stored = trial.read(key)
    # No writer got success if the first one's reply was lost and its client repeated the request.
    if len(winners) > 1 or stored not in (winners or bodies):
        raise without_conditions(
            trial.objects.client.bucket,
            f"race of {writers} writers",
            f"{len(winners)} writers created the same object, which contains {stored!r}",
        )


def _delete(objects: BucketObjects, keys: list[str]) -> None:
    try:
        objects.delete(keys)
    except StorageFailed as error:
        logger.warning("scratch objects were not deleted: %s", error)
