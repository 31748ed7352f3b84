"""S3 for tests, on each server that speaks it.

A module that imports these fixtures runs its tests once on each server, with its name in the id
of the test:

    from tests.contracts.servers.s3 import bucket, s3_credentials, s3_server

`s3_server` is an `S3Server`, `bucket` the name of an empty bucket there. A test that needs no
more than any S3 takes the fixtures of the same names from `tests.contracts.s3_server`.
"""

from __future__ import annotations

import pytest

from tests.contracts.s3_server import bucket, s3_credentials, shared_ministack
from tests.contracts.servers.differences import expect_differences
from tests.contracts.servers.versity import shared_versitygw

__all__ = ["S3_SERVERS", "bucket", "s3_credentials", "s3_server"]

S3_SERVERS = {"ministack": shared_ministack, "versitygw": shared_versitygw}


@pytest.fixture(params=S3_SERVERS)
def s3_server(request, tmp_path_factory):
    """A server; each test makes buckets of its own."""
    expect_differences(request, request.param)
    return S3_SERVERS[request.param](request.config, tmp_path_factory)
