"""A panic of obstore is a failure of the storage, whichever request it was of. Needs no server."""

from __future__ import annotations

import pytest

from sleeper.errors import StorageFailed, UrlInvalid
from sleeper.model.object_stores import Bucket, ObjectStoreSettings, split_url
from sleeper.storage.objectstore.client import Client
from sleeper.storage.objectstore.inputs import BucketInputs
from sleeper.storage.objectstore.objects import BucketObjects

SETTINGS = ObjectStoreSettings(endpoint="http://127.0.0.1:9", region="us-east-1")


@pytest.fixture(params=["a b", "a\n", "\0"], ids=repr)
def objects(request, monkeypatch) -> BucketObjects:
    """A bucket whose name no URL allows, at which obstore panics before it sends a request."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    return BucketObjects(Client(Bucket("s3", request.param), SETTINGS))


REQUESTS = {
    "create": lambda objects: objects.create("a", b"x"),
    "put": lambda objects: objects.put("a", b"x"),
    "read": lambda objects: objects.read("a"),
    "read_ranges": lambda objects: objects.read_ranges("a", [(0, 1), (1 << 30, 1)]),
    "size": lambda objects: objects.size("a"),
    "read_end": lambda objects: objects.read_end("a", 8),
    "stored_at": lambda objects: objects.stored_at("a"),
    "listing": lambda objects: list(objects.listing("a/")),
    "delete": lambda objects: objects.delete(["a"]),
    "storage_time": lambda objects: objects.storage_time(),
    "small output": lambda objects: _write(objects, 1),
    "large output": lambda objects: _write(objects, 9 << 20),
}


def _write(objects: BucketObjects, size_bytes: int) -> None:
    with objects.open_output("a") as output:
        output.write(b"x" * size_bytes)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_that_panics_is_a_failure_that_names_the_library(objects, name):
    """It is our error, which callers retry and report; not a `BaseException`."""
    with pytest.raises(StorageFailed, match="the library obstore has an error here"):
        REQUESTS[name](objects)


@pytest.mark.parametrize(
    "url",
    [
        "s3://a b/x",
        "s3://b\n/x",
        "s3://\0/x",
        "s3a://b\t",
        "gs://b?c/x",
        "s3://b#/x",
        "s3://b%20/x",
    ],
)
def test_a_bucket_that_can_have_no_such_name_is_refused_at_the_door(url):
    """The message says which part is wrong; nothing is sent."""
    with pytest.raises(UrlInvalid, match="is no bucket's name"):
        split_url(url)
    with pytest.raises(UrlInvalid):
        BucketInputs(SETTINGS).find(url)


@pytest.mark.parametrize("name", ["trades", "a.b-c_d", "Trades9", "0"])
def test_names_of_buckets_are_taken(name):
    """Old buckets have capitals and underscores."""
    assert split_url(f"s3://{name}/a b?#%20")[0].name == name
