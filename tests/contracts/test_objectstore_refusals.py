"""Object stores that refuse, lie, forget or fall silent, and what is told of it."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys

import pytest

import sleeper
from sleeper.errors import (
    MissingExtra,
    ObjectNotFound,
    StorageFailed,
    StorageReadOnly,
    UrlInvalid,
)
from sleeper.model.object_stores import Bucket, ObjectStoreSettings, split_url
from sleeper.storage.objectstore import client as client_module
from sleeper.storage.objectstore.client import Client, read_failure, write_failure
from sleeper.storage.objectstore.objects import BucketObjects
from sleeper.storage.transaction_log import ObjectTransactionLog
from tests.contracts.fault_proxy import fault_proxy
from tests.contracts.s3_server import bucket, s3_credentials, s3_server
from tests.patience import PATIENCE_S

__all__ = ["bucket", "s3_credentials", "s3_server"]

PART = 8 << 20


@pytest.fixture
def objects(s3_server, bucket):
    return s3_server.objects(bucket)


@pytest.fixture
def line(s3_server):
    with fault_proxy(s3_server.endpoint) as opened:
        yield opened


@pytest.fixture
def over_line(s3_server, bucket, line):
    """The objects of the bucket, seen through the proxy."""
    return s3_server.objects(bucket, line.endpoint)


class TestOutput:
    """A stream that is too large for one request."""

    def test_is_joined_from_its_parts(self, objects, bucket, s3_server):
        """Byte for byte, whatever the pieces it was written in."""
        body = os.urandom(2 * PART + 12_345)

        with objects.open_output("large") as output:
            for start in range(0, len(body), 3_000_000):
                output.write(body[start : start + 3_000_000])
            during = objects.read("large")

        assert during is None
        assert objects.read("large") == body
        assert s3_server.unfinished_uploads(bucket) == 0

    def test_may_be_one_of_many_that_are_open(self, objects):
        """Each has a thread of its own, and none waits for another; reads go on meanwhile."""
        objects.put("small", b"x")
        outputs = [objects.open_output(f"large/{n}") for n in range(8)]

        for _ in range(2):
            for output in outputs:
                output.write(bytes(PART))
                assert objects.read("small") == b"x"
        for output in outputs:
            output.close()

        sizes = [info.size_bytes for info in objects.listing("large/")]
        assert sizes == [2 * PART] * 8

    def test_leaves_no_parts_when_it_is_aborted(self, objects, bucket, s3_server):
        """Parts that were sent cost money until somebody deletes them; the abort does."""
        output = objects.open_output("large")
        for _ in range(3):
            output.write(bytes(PART))
        during = s3_server.unfinished_uploads(bucket)

        output.abort()

        assert during == 1
        assert s3_server.unfinished_uploads(bucket) == 0
        assert objects.read("large") is None

    def test_leaves_no_parts_when_it_is_forgotten(self, objects, bucket, s3_server):
        """The same, when nobody has closed it."""
        output = objects.open_output("large")
        output.write(bytes(PART))

        del output

        assert s3_server.unfinished_uploads(bucket) == 0
        assert [*objects.listing()] == []

    def test_fails_when_the_store_dies(self, objects, over_line, line):
        """The error comes from a write or the close, and nothing is visible."""
        output = over_line.open_output("large")
        output.write(bytes(PART))
        line.dead = True

        with pytest.raises(StorageFailed, match="large"):
            for _ in range(100):
                output.write(bytes(PART))

        assert output.closed
        assert objects.read("large") is None


class TestCreate:
    """Creating an object only if there is none."""

    def test_that_lost_its_reply_is_told_taken(self, objects, over_line, line):
        """The client repeats the request, and its own object refuses it: the port allows that."""
        line.inject("lost reply", times=1, methods=("PUT",))

        created = over_line.create("a", b"mine")

        assert not created
        assert objects.read("a") == b"mine"
        assert line.seen.kinds == {"PUT-if-absent": 2}

    def test_that_lost_its_reply_is_an_append_that_succeeded(self, over_line, line):
        """The log reads the entry back and finds that it is its own (decision 6)."""
        line.inject("lost reply", times=1, methods=("PUT",))

        assert ObjectTransactionLog(over_line).append(1, b"mine")

    def test_of_an_instance_fails_where_servers_overwrite(self, objects, bucket, line, monkeypatch):
        """Two writers could both believe to be the first, so no instance is made there."""
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.endpoint)
        line.condition = "ignored"

        with pytest.raises(StorageReadOnly, match="If-None-Match"):
            sleeper.connect(f"s3://{bucket}/instance", create=True)

        assert [*objects.listing()] == []


class TestFailures:
    """What a person is told."""

    def test_of_a_bucket_that_is_not_there(self, s3_server, s3_credentials):
        """Not the same as an object that is not there."""
        nowhere = s3_server.objects("no-such-bucket")
        calls = [
            lambda: nowhere.read("a"),
            lambda: nowhere.read_ranges("a", [(0, 1)]),
            lambda: nowhere.create("a", b""),
            lambda: nowhere.put("a", b""),
            lambda: nowhere.open_output("a").close(),
            lambda: list(nowhere.listing("a/")),
        ]

        for call in calls:
            with pytest.raises(StorageFailed, match="bucket 'no-such-bucket' does not exist"):
                call()

    def test_of_a_dead_store(self, over_line, line):
        """Each call fails by itself, and names the object and what to look at."""
        line.dead = True
        calls = [
            lambda: over_line.read("some/key"),
            lambda: over_line.create("some/key", b""),
            lambda: list(over_line.listing("some/key/")),
            lambda: over_line.delete(["some/key"]),
        ]

        for call in calls:
            with pytest.raises(StorageFailed, match=r"some/key.*AWS_ENDPOINT_URL") as caught:
                call()
            assert caught.value.retryable
            assert "Debug source" not in str(caught.value)

    def test_of_a_denial(self):
        """Reading says what is missing to read; writing is told as read-only."""
        import obstore.exceptions  # noqa: PLC0415

        denied = obstore.exceptions.PermissionDeniedError("403 <Code>AccessDenied</Code>")

        read = read_failure(denied, Bucket("s3", "b"), "k")
        written = write_failure(denied, Bucket("s3", "b"), "k")

        assert "s3://b/k: the store denies it (403 <Code>AccessDenied</Code>" in str(read)
        assert isinstance(written, StorageReadOnly)
        assert "may put and delete" in str(written)

    @pytest.mark.parametrize(
        ("vendor", "told"),
        [
            ("PUT http://169.254.169.254/latest/api/token", "AWS_ACCESS_KEY_ID"),
            ("Received redirect without LOCATION", "AWS_REGION"),
            ("Server returned 501 Not Implemented", "If-None-Match"),
        ],
    )
    def test_of_settings_that_do_not_fit(self, vendor, told):
        """The message says which variable to set, or that the server is of no use."""
        import obstore.exceptions  # noqa: PLC0415

        error = obstore.exceptions.GenericError(vendor)

        assert told in str(write_failure(error, Bucket("s3", "b"), "k"))

    def test_of_google_without_credentials(self):
        """Amazon's variables are of no use there."""
        import obstore.exceptions  # noqa: PLC0415

        error = obstore.exceptions.GenericError("token request to metadata.google.internal")
        told = str(write_failure(error, Bucket("gs", "b"), "k"))

        assert "GOOGLE_APPLICATION_CREDENTIALS" in told
        assert "AWS_" not in told

    def test_of_an_endpoint_without_a_scheme(self):
        """obstore would end in a panic."""
        client = Client(Bucket("s3", "b"), ObjectStoreSettings(endpoint="localhost:9000"))

        with pytest.raises(UrlInvalid, match="AWS_ENDPOINT_URL"):
            BucketObjects(client).read("a")

    @pytest.mark.parametrize(
        "endpoint", ["http://key:geheim@localhost:1", "key:geheim@localhost:1"]
    )
    def test_of_an_endpoint_with_a_password(self, endpoint):
        """It is refused when it is used, and the password is in no message, repr or pickle."""
        settings = ObjectStoreSettings.of({"AWS_ENDPOINT_URL": endpoint})
        objects = BucketObjects(Client(Bucket("s3", "b"), settings))

        with pytest.raises(UrlInvalid, match="AWS_SECRET_ACCESS_KEY") as told:
            objects.read("a")

        shown = f"{told.value} {objects!r} {pickle.dumps(objects)!r}"
        assert "geheim" not in shown
        assert "localhost:1" in str(told.value)

    @pytest.mark.parametrize("url", ["s3://key:geheim@bucket/a", "https://key:geheim@host/a"])
    def test_of_a_url_with_a_password(self, url):
        """Neither a bucket nor an instance is named so; the password is not repeated."""
        for call in (split_url, sleeper.connect):
            with pytest.raises(UrlInvalid) as told:
                call(url)
            assert "geheim" not in str(told.value)

    def test_of_an_environment_that_obstore_refuses(self, s3_credentials, monkeypatch):
        """Found out when the bucket is opened; the message names it."""
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", "no JSON")

        with pytest.raises(StorageFailed, match=r"cannot open gs://b/: .*environment variables"):
            BucketObjects(Client(Bucket("gs", "b"), ObjectStoreSettings())).read("a")

    def test_of_urls_without_a_bucket(self):
        """A scheme alone names nothing."""
        for url in ("s3://", "s3:///a", "ftp://host/a"):
            with pytest.raises(UrlInvalid, match="s3://bucket/folder"):
                split_url(url)

    def test_of_the_missing_extra(self):
        """obstore is optional: whoever needs it is told what to install."""
        program = (
            "import sys; sys.modules['obstore'] = None\n"
            "import sleeper\n"
            "from sleeper.errors import MissingExtra\n"
            "try: sleeper.connect('s3://bucket/instance')\n"
            "except MissingExtra as error: print(error)\n"
        )

        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=False,
        )

        assert issubclass(MissingExtra, sleeper.SleeperError)
        assert "sleeper-store[objectstore]" in done.stdout, done.stderr


class TestProcesses:
    """Handing objects to another process."""

    def test_get_a_connection_of_their_own(self, objects):
        """What is pickled is where the bucket is, without a connection or a secret."""
        objects.under("t").put("a", b"body")

        pickled = pickle.dumps(objects.under("t"))

        assert pickle.loads(pickled).read("a") == b"body"
        assert b"AWS" not in pickled
        assert len(pickled) < 500

    def test_that_were_forked_are_told_so(self, objects):
        """obstore's threads do not survive a fork: an error is better than waiting for ever."""
        objects.put("a", b"body")
        read_end, write_end = os.pipe()

        child = os.fork()
        if not child:
            signal.alarm(20)
            try:
                said = repr(objects.read("a"))
            except sleeper.SleeperError as error:
                said = str(error)
            os.write(write_end, said.encode())
            os._exit(0)
        os.close(write_end)
        with os.fdopen(read_end, encoding="utf-8") as said_by_child:
            said = said_by_child.read()
        os.waitpid(child, 0)

        assert "spawn or forkserver" in said

    def test_may_be_forked_before_they_use_it(self, s3_server, bucket):
        """As Spark does: its daemon forks workers, and has no connection itself."""
        program = (
            "import os, pickle, sys\n"
            "objects = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
            "if not os.fork(): objects.put('from child', b''); os._exit(0)\n"
            "os.wait()\n"
            "print([info.key for info in objects.listing()])\n"
        )
        objects = s3_server.objects(bucket)

        done = subprocess.run(
            [sys.executable, "-c", program, pickle.dumps(objects).hex()],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

        assert done.stdout.strip() == "['from child']", done.stderr


def test_keys_are_urls_that_engines_can_open(objects):
    """Escaped where a URL needs it, and the same through every view."""
    url = objects.under("a b").url("c%d.parquet")

    assert url.endswith("/a%20b/c%25d.parquet")
    assert url == objects.url("a b/c%d.parquet")


def test_an_object_that_is_gone_is_told_by_its_url(objects, bucket):
    """So that a person can look for it with any other tool."""
    with pytest.raises(ObjectNotFound, match=f"s3://{bucket}/a/b"):
        objects.under("a").size("b")


def test_a_silent_server_is_not_waited_for(s3_credentials, monkeypatch):
    """A server that takes requests and never answers is given up after one silence: 15 s, here 2."""
    assert client_module._SILENCE_S == 15 > client_module.RETRY_S
    monkeypatch.setattr(client_module, "_SILENCE_S", 2)
    monkeypatch.setattr(client_module, "RETRY_S", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        client = Client(Bucket("s3", "b"), ObjectStoreSettings(endpoint=endpoint))

        with pytest.raises(StorageFailed, match="cannot read s3://b/a"):
            BucketObjects(client).read("a")
