"""Whether a server creates an object only if there is none: kept, ignored, or raced."""

from __future__ import annotations

import os
import time
from itertools import count

import pytest

from sleeper.errors import StorageFailed, StorageReadOnly
from sleeper.instance.instance import between_attempts, current_time
from sleeper.ports.clock import Clock
from sleeper.storage.objectstore.conditions import check_conditions, check_conditions_once
from tests.contracts.fault_proxy import fault_proxy
from tests.contracts.servers.s3 import bucket, s3_credentials, s3_server

__all__ = ["bucket", "s3_credentials", "s3_server"]

NUMBERS = count()
NO_SIGNATURES = pytest.mark.parametrize("s3_server", ["ministack"], indirect=True)
"""Of tests that change a signed request on its way: a server that looks would refuse it."""


def new_id():
    return f"{os.getpid()}-{next(NUMBERS)}"


def clock():
    return Clock(
        ticks_s=time.monotonic, back_off=between_attempts, now=current_time, sleep=time.sleep
    )


@pytest.fixture
def proxy(s3_server):
    with fault_proxy(s3_server.endpoint) as opened:
        yield opened


@pytest.fixture
def objects(s3_server, bucket, proxy):
    """The objects of a bucket, seen through the proxy."""
    return s3_server.objects(bucket, proxy.endpoint)


def test_a_server_that_keeps_the_condition_passes(objects):
    """Nothing is left of what was tried."""
    check_conditions(objects, new_id, clock())

    assert [*objects.listing()] == []


@NO_SIGNATURES
@pytest.mark.parametrize(
    ("condition", "check"),
    [("ignored", "create on a taken name"), ("raced", "race of 16 writers")],
)
def test_a_server_that_breaks_the_condition_is_refused(objects, proxy, condition, check):
    """By the name of the check; nothing is left of what was tried."""
    proxy.condition = condition

    with pytest.raises(StorageReadOnly, match=f"failed the check '{check}'.*If-None-Match"):
        check_conditions(objects, new_id, clock())

    assert [*objects.listing()] == []


def test_a_process_tries_a_bucket_once(objects, proxy):
    """Its later commits cost no request more."""
    check_conditions_once(objects, new_id, clock())
    first = proxy.forget().kinds

    check_conditions_once(objects, new_id, clock())

    assert first["PUT-if-absent"] == 2 + 2 * 8
    assert not proxy.seen.kinds


def test_a_refused_server_stays_refused(objects, proxy):
    """A failed check is not taken for one that was done."""
    proxy.condition = "ignored"

    for _ in range(2):
        with pytest.raises(StorageReadOnly):
            check_conditions_once(objects, new_id, clock())


def test_lost_replies_are_no_broken_condition(objects, proxy):
    """The client repeats the request, and is refused by its own object."""
    proxy.inject("lost reply", share=0.3, methods=("PUT",))

    check_conditions(objects, new_id, clock(), rounds=3)

    assert proxy.seen.injected["lost reply"] > 0


@pytest.mark.parametrize("kind", ["reset before", "reset mid", "error after"])
def test_broken_connections_are_tried_again(objects, proxy, kind):
    """Given that a third of all requests break, then a server that keeps the condition passes."""
    proxy.inject(kind, share=0.35)

    check_conditions_once(objects, new_id, clock())

    assert proxy.seen.injected[kind] > 4


def test_requests_that_the_client_gave_up_are_tried_again(objects):
    """Given a client that gives up its first three requests, then the trial goes on after each."""
    failing = GivenUp(objects, times=3)

    check_conditions(failing, new_id, clock())

    assert failing.left == 0


class GivenUp:
    """Objects whose first creations fail, as a client does that has tried often enough."""

    def __init__(self, objects, times):
        self._objects = objects
        self.left = times

    def __getattr__(self, name):
        return getattr(self._objects, name)

    def create(self, key, body):
        if self.left:
            self.left -= 1
            raise StorageFailed("the connection broke, and again, and again")
        return self._objects.create(key, body)


@NO_SIGNATURES
def test_broken_connections_hide_no_broken_condition(objects, proxy):
    """What is sent again may meet its own object, and a second object is still noticed."""
    proxy.condition = "ignored"
    proxy.inject("reset before", share=0.3)

    with pytest.raises(StorageReadOnly, match="create on a taken name"):
        check_conditions(objects, new_id, clock())


def test_a_store_that_is_down_is_told_as_that(objects, proxy):
    """It is not said to break conditions, and that no table was written to."""
    proxy.dead = True

    with pytest.raises(StorageFailed, match=r"could not be tried: .* Nothing was written") as told:
        check_conditions(objects, new_id, clock())

    assert not isinstance(told.value, StorageReadOnly)
