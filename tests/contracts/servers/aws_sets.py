"""Sets of servers that speak what an instance in AWS needs: S3, SQS, DynamoDB and STS.

A module that imports these fixtures runs its tests once on each set, with its name in the id of the
test:

    from tests.contracts.servers.aws_sets import aws_set

`aws_set` is the name of the set. This process, and those that it starts, find the servers of the set
by their environment, and no others. All tests of a module share it, for it takes a while to make
clients of Amazon's, and an instance.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from sleeper.storage.aws import clients
from tests.contracts.s3_server import CREDENTIALS, REGION, shared_ministack
from tests.contracts.servers.dynamodb_local import shared_dynamodb_local
from tests.contracts.servers.elasticmq import shared_elasticmq
from tests.contracts.servers.versity import shared_versitygw

__all__ = ["AWS_SETS", "aws_set"]


def _ministack(config, tmp_path_factory) -> dict[str, str]:
    return {"AWS_ENDPOINT_URL": shared_ministack(config, tmp_path_factory).endpoint}


def _one_for_each(config, tmp_path_factory) -> dict[str, str]:
    return {
        **_ministack(config, tmp_path_factory),
        "AWS_ENDPOINT_URL_S3": shared_versitygw(config, tmp_path_factory).endpoint,
        "AWS_ENDPOINT_URL_DYNAMODB": shared_dynamodb_local(config, tmp_path_factory),
    }


def _and_another_for_queues(config, tmp_path_factory) -> dict[str, str]:
    return {
        **_one_for_each(config, tmp_path_factory),
        "AWS_ENDPOINT_URL_SQS": shared_elasticmq(config, tmp_path_factory),
    }


AWS_SETS = {
    "ministack": _ministack,
    "versitygw-dynamodb-local-ministack": _one_for_each,
    "versitygw-dynamodb-local-elasticmq": _and_another_for_queues,
}
"""What the environment has to name, by the name of a set. STS, of which an instance asks who it is,
is ministack's in each."""


@pytest.fixture(scope="module", params=AWS_SETS)
def aws_set(request, tmp_path_factory) -> Iterator[str]:
    """The name of a set that runs, and that the environment names."""
    endpoints = AWS_SETS[request.param](request.config, tmp_path_factory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clients, "_clients", {})
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        wanted = {**CREDENTIALS, **endpoints, "AWS_REGION": REGION, "NO_PROXY": "127.0.0.1"}
        for name, value in wanted.items():
            patch.setenv(name, value)
        yield request.param
