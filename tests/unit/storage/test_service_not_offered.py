"""A server that stands in for Amazon's may have only some of its services."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from botocore.parsers import ResponseParserError

from sleeper.storage.aws.failures import is_not_offered


def refused(status):
    answer = {"Error": {"Code": "X"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "DescribeStacks")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (refused(501), True),
        (ResponseParserError("no XML: Unsupported service"), True),
        (refused(403), False),
        (refused(500), False),
        (EndpointConnectionError(endpoint_url="http://127.0.0.1:1"), False),
    ],
    ids=["not implemented", "no answer of the service", "denied", "failed", "unreachable"],
)
def test_a_service_that_is_not_there_is_told_from_failures(error, expected):
    """It answers 501, or something that is no answer of the service."""
    assert is_not_offered(error) is expected
