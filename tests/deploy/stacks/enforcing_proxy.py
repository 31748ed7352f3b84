"""A proxy before an emulator of AWS that lets through what a role allows, as IAM would."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from threading import Thread
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from bench.counting_proxy import CountingProxy, _Forwarder

_BATCHES = ("SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch")


class Asked(NamedTuple):
    """An action on a resource."""

    action: str
    arn: str


class EnforcingProxy(CountingProxy):
    """The proxy. It lets all through while `allowed` is None.

    Args:
        target: URL of the server.
        account: The account and the region of ARNs, as `region:account`.
    """

    def __init__(self, target: str, account: str) -> None:
        super().__init__(target)
        self.RequestHandlerClass = _Enforcer
        self.account = account
        self.allowed: Sequence[tuple[str, str]] | None = None
        self.denied: list[Asked] = []

    def allows(self, asked: Asked) -> bool:
        """Whether the role allows an action."""
        return self.allowed is None or any(
            fnmatchcase(asked.action, action) and fnmatchcase(asked.arn, arn)
            for action, arn in self.allowed
        )


class _Enforcer(_Forwarder):
    server: EnforcingProxy

    def _forward(self) -> None:
        self._held = super()._body()
        target = self.headers.get("x-amz-target", "")
        if target:
            asked = _of_json(target, json.loads(self._held or b"{}"), self.server.account)
        elif b"Action=" in self._held[:200]:  # STS, which asks for no permission
            asked = []
        else:
            asked = _of_s3(self.command, self.path)
        refused = [each for each in asked if not self.server.allows(each)]
        if not refused:
            super()._forward()
            return
        self.server.denied += refused
        told = f"{refused[0].action} on {refused[0].arn}"
        if target:
            self._answer(400, json.dumps({"__type": "x#AccessDeniedException", "message": told}))
        else:
            self._answer(403, f"<Error><Code>AccessDenied</Code><Message>{told}</Message></Error>")

    def _body(self) -> bytes:
        return self._held

    def _answer(self, status: int, text: str) -> None:
        body = text.encode() if self.command != "HEAD" else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward  # noqa: N815 - names of the base class


def _of_json(target: str, request: dict, account: str) -> list[Asked]:
    service, _, operation = target.partition(".")
    if service.startswith("AmazonSQS"):
        name = (request.get("QueueUrl") or request.get("QueueName") or "*").rpartition("/")[2]
        action = operation.removesuffix("Batch") if operation in _BATCHES else operation
        return [Asked(f"sqs:{action}", f"arn:aws:sqs:{account}:{name}")]
    return [
        Asked(f"dynamodb:{action}", f"arn:aws:dynamodb:{account}:table/{table}")
        for action, table in _of_dynamo(operation, request)
    ]


def _of_dynamo(operation: str, request: dict) -> Iterator[tuple[str, str]]:
    if operation == "TransactWriteItems":
        for part in request["TransactItems"]:
            for kind, each in part.items():
                yield f"{kind.removesuffix('Item')}Item", each["TableName"]
    elif operation in ("BatchGetItem", "BatchWriteItem"):
        for table in request["RequestItems"]:
            yield operation, table
    else:
        index = f"/index/{request['IndexName']}" if "IndexName" in request else ""
        yield operation, request.get("TableName", "*") + index


def _of_s3(method: str, path: str) -> list[Asked]:
    parts = urlsplit(path)
    query = parse_qs(parts.query, keep_blank_values=True)
    bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
    whole, each = f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/{key}"
    if not key and method in ("GET", "HEAD"):
        return [Asked("s3:ListBucket", whole)]
    if "delete" in query:
        return [Asked("s3:DeleteObject", f"{whole}/any")]
    action = {"GET": "GetObject", "HEAD": "GetObject", "DELETE": "DeleteObject"}.get(method)
    if method == "DELETE" and "uploadId" in query:
        action = "AbortMultipartUpload"
    return [Asked(f"s3:{action or 'PutObject'}", each)]


@contextmanager
def enforcing_proxy(target: str, account: str) -> Iterator[EnforcingProxy]:
    """Run a proxy before a server."""
    proxy = EnforcingProxy(target, account)
    Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
