"""A store that answers 503 SlowDown: waited for, within bounds, and said so."""

from __future__ import annotations

import os

import pytest

from sleeper.errors import BadRequest, StorageFailed
from sleeper.model.object_stores import PATIENCE_S, ObjectStoreSettings
from sleeper.storage.objectstore import client
from tests.contracts.fault_proxy import fault_proxy
from tests.contracts.s3_server import STORE_PATIENCE_S, bucket, s3_credentials, s3_server

__all__ = ["bucket", "s3_credentials", "s3_server"]

LONGER_THAN_ONE_ROUND = 8
PART = 8 << 20


@pytest.fixture
def proxy(s3_server):
    with fault_proxy(s3_server.endpoint) as opened:
        yield opened


@pytest.fixture
def objects(s3_server, bucket, proxy, monkeypatch):
    """The objects of a bucket behind the proxy; the first, short round of retries takes 1 s."""
    monkeypatch.setattr(client, "RETRY_S", 1)
    objects = s3_server.objects(bucket, proxy.endpoint)
    objects.put("a", b"body")
    return objects


@pytest.mark.parametrize(
    "call",
    [
        lambda objects: objects.read("a"),
        lambda objects: objects.read_ranges("a", [(0, 1)]),
        lambda objects: objects.size("a"),
        lambda objects: objects.put("b", b""),
        lambda objects: objects.create("c", b""),
        lambda objects: objects.delete(["a"]),
        lambda objects: [*objects.listing()],
    ],
    ids=["read", "ranges", "size", "put", "create", "delete", "list"],
)
def test_every_request_outlasts_an_overload(objects, proxy, call, caplog):
    """The first round of retries is used up, then the store gets the settings' patience."""
    proxy.inject("slow down", times=LONGER_THAN_ONE_ROUND)

    call(objects)

    assert proxy.seen.injected["slow down"] == LONGER_THAN_ONE_ROUND
    assert "overloaded" in caplog.text or "patience" in caplog.text


def test_a_data_file_outlasts_an_overload(objects, proxy):
    """A long ingest would lose its work. Parts of an upload cannot be sent twice by us."""
    proxy.inject("slow down", times=LONGER_THAN_ONE_ROUND, methods=("PUT",))

    with objects.open_output("large") as output:
        output.write(bytes(2 * PART))

    assert objects.size("large") == 2 * PART


def test_an_overload_without_end_is_told_as_that(objects, proxy):
    """The store is up: it asks for fewer requests."""
    proxy.inject("slow down")

    with pytest.raises(StorageFailed, match=r"overloaded .*SlowDown.*PATIENCE") as told:
        objects.read("a")

    assert told.value.retryable


def test_the_patience_is_a_minute_and_a_half_unless_somebody_says_otherwise():
    """Services may wait longer than people do; what is no number is refused."""
    said = ObjectStoreSettings.of({"SLEEPER_STORE_PATIENCE_SECONDS": "600"})

    assert ObjectStoreSettings.of({}).patience_s == PATIENCE_S == 90
    assert said.patience_s == 600
    with pytest.raises(BadRequest, match="SLEEPER_STORE_PATIENCE_SECONDS"):
        ObjectStoreSettings.of({"SLEEPER_STORE_PATIENCE_SECONDS": "a while"})


def test_tests_wait_for_a_dead_store_as_long_as_they_say(s3_credentials):
    """Given what tests set, an instance that reads its environment has no minute and a half."""
    assert ObjectStoreSettings.of(os.environ).patience_s == STORE_PATIENCE_S < PATIENCE_S
