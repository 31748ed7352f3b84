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
_SUBRESOURCES = {
    "encryption": "EncryptionConfiguration",
    "lifecycle": "LifecycleConfiguration",
    "location": "BucketLocation",
    "ownershipControls": "BucketOwnershipControls",
    "policy": "BucketPolicy",
    "publicAccessBlock": "BucketPublicAccessBlock",
    "tagging": "BucketTagging",
    "versioning": "BucketVersioning",
}
"""What a request asks of a bucket, by the part of its URL that says so."""


_IN_POLICIES = {"monitoring": "cloudwatch"}
"""What policies call a service that signatures call otherwise."""


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
        self.forbidden: Sequence[tuple[str, str]] = ()
        self.denied: list[Asked] = []

    def allows(self, asked: Asked) -> bool:
        """Whether the role allows an action."""

        def is_among(rights: Sequence[tuple[str, str]]) -> bool:
            return any(
                fnmatchcase(asked.action, action) and fnmatchcase(asked.arn, arn)
                for action, arn in rights
            )

        return self.allowed is None or (is_among(self.allowed) and not is_among(self.forbidden))


class _Enforcer(_Forwarder):
    server: EnforcingProxy

    def _forward(self) -> None:
        self._held = super()._body()
        target = self.headers.get("x-amz-target", "")
        service = _service(self.headers.get("Authorization", ""))
        if service in ("dynamodb", "sqs"):
            asked = _of_json(target, json.loads(self._held or b"{}"), self.server.account)
        elif service == "sts":  # GetCallerIdentity, which asks for no permission
            asked = []
        elif service == "s3":
            asked = _of_s3(self.command, self.path)
        elif service == "lambda":
            asked = [_of_lambda(self.path, self.server.account)]
        else:
            asked = [_of_another(service, target, self._held, self.server.account, self.path)]
        refused = [each for each in asked if not self.server.allows(each)]
        if not refused:
            super()._forward()
            return
        self.server.denied += refused
        told = f"{refused[0].action} on {refused[0].arn}"
        if service == "s3":
            self._answer(403, f"<Error><Code>AccessDenied</Code><Message>{told}</Message></Error>")
        elif not target:
            error = f"<Error><Code>AccessDenied</Code><Message>{told}</Message></Error>"
            self._answer(403, f"<ErrorResponse>{error}</ErrorResponse>")
        else:
            self._answer(400, json.dumps({"__type": "x#AccessDeniedException", "message": told}))

    def _body(self) -> bytes:
        return self._held

    def _answer(self, status: int, text: str) -> None:
        body = text.encode() if self.command != "HEAD" else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward  # noqa: N815 - names of the base class


def _service(authorization: str) -> str:
    """The service of a request, as its signature says: `s3` where it is not signed."""
    scope = authorization.partition("Credential=")[2].partition(",")[0].split("/")
    signed = scope[3] if len(scope) > 3 else "s3"
    return _IN_POLICIES.get(signed, signed)


def _of_another(service: str, target: str, body: bytes, account: str, path: str) -> Asked:
    """An action of a service whose requests are a form, or JSON with a target."""
    if service == "lambda":
        return Asked("lambda:GetAccountSettings" if "account-settings" in path else path, "*")
    if target:
        request = json.loads(body or b"{}")
        action = f"{service}:{target.rpartition('.')[2]}"
        if service == "ecr":
            named = request.get("repositoryName", "*")
            return Asked(action, f"arn:aws:ecr:{account}:repository/{named}")
        return Asked(action, "*")
    form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
    action = f"{service}:{form.get('Action', body[:80])}"
    if service == "cloudformation":
        stack = form.get("StackName") or form.get("ChangeSetName")
        if stack is not None:
            name = stack.rpartition(":stack/")[2].partition("/")[0]
            return Asked(action, f"arn:aws:cloudformation:{account}:stack/{name}/an-id")
    if "AWSServiceName" in form:
        role = f"role/aws-service-role/{form['AWSServiceName']}/AWSServiceRole"
        return Asked(action, f"arn:aws:iam::{account.partition(':')[2]}:{role}")
    return Asked(action, "*")


def _of_lambda(path: str, account: str) -> Asked:
    """What a deployment and senders ask of functions: limits, what they reserve, and a call."""
    parts = urlsplit(path).path.strip("/").split("/")
    if parts[1] == "account-settings":
        return Asked("lambda:GetAccountSettings", "*")
    actions = {"concurrency": "GetFunctionConcurrency", "invocations": "InvokeFunction"}
    return Asked(f"lambda:{actions[parts[3]]}", f"arn:aws:lambda:{account}:function:{parts[2]}")


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
        named = request.get("ResourceArn", "").rpartition(":table/")[2]
        yield operation, request.get("TableName", named or "*") + index


def _of_s3(method: str, path: str) -> list[Asked]:
    parts = urlsplit(path)
    query = parse_qs(parts.query, keep_blank_values=True)
    bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
    whole, each = f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/{key}"
    if not key and method != "POST":
        made = {"PUT": "CreateBucket", "DELETE": "DeleteBucket"}.get(method, "ListBucket")
        named = [_SUBRESOURCES[each] for each in query if each in _SUBRESOURCES]
        verb = {"GET": "Get", "HEAD": "Get", "PUT": "Put"}.get(method, "Delete")
        of_bucket = f"{verb}{named[0]}" if named else made
        return [Asked(f"s3:{'ListBucketVersions' if 'versions' in query else of_bucket}", whole)]
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
