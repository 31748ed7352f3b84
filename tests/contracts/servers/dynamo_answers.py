"""Answers that DynamoDB may give to a request, and that the servers of the tests never do."""

from __future__ import annotations

import json

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.httpsession import URLLib3Session


def reply(request: AWSPreparedRequest, status: int, body: object) -> AWSResponse:
    """Answer instead of the server."""
    found = AWSResponse(request.url, status, {}, None)
    found._content = json.dumps(body).encode()
    return found


def refused(
    request: AWSPreparedRequest, code: str, status: int = 400, **more: object
) -> AWSResponse:
    """Refuse the request; nothing was done."""
    kind = f"com.amazonaws.dynamodb.v20120810#{code}"
    return reply(request, status, {"__type": kind, "message": "for a test", **more})


def cancelled(request: AWSPreparedRequest, reasons: dict[int, str]) -> AWSResponse:
    """Cancel a transaction: a code for some of its parts, by place; -1 is the last."""
    codes = ["None"] * len(json.loads(request.body)["TransactItems"])
    for place, code in reasons.items():
        codes[place] = code
    told = [{"Code": code} for code in codes]
    return refused(request, "TransactionCanceledException", CancellationReasons=told)


def sent(request: AWSPreparedRequest) -> AWSResponse:
    """Send the request, and return the server's answer."""
    return URLLib3Session().send(request)


def done_without_a_reply(request: AWSPreparedRequest) -> AWSResponse:
    """Do it, then answer as a server that failed."""
    answer = sent(request)
    assert answer.status_code == 200, answer.content
    return refused(request, "InternalServerError", 500)
