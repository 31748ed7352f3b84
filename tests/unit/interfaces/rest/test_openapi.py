"""The server's own description, and requests that are made from it."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import httpx
import pyarrow as pa
import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, settings
from schemathesis.pytest.lazy import get_all_tests

import sleeper
from sleeper.interfaces.rest.app import make_app

SOAK = os.environ.get("SLEEPER_SOAK") == "1"
EXAMPLES = 300 if SOAK else 12
SCHEMA = pa.schema([("id", pa.string()), ("at", pa.timestamp("us", "UTC")), ("raw", pa.binary())])

UPLOADS = (
    "application/jsonl",
    "application/x-ndjson",
    "application/vnd.apache.arrow.stream",
    "application/vnd.apache.parquet",
    "text/csv",
)


@schemathesis.serializer(*UPLOADS)
def as_bytes(context, value):
    """Uploads are sent as they are: mostly not what they say they are."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


def made_app():
    instance = sleeper.connect("memory://")
    table = instance.create_table("t", SCHEMA, row_keys=["id", "at"])
    table.ingest([{"id": "a", "at": datetime(2026, 1, 1, tzinfo=UTC), "raw": b"x"}])
    return make_app(instance)


APP = made_app()
DESCRIPTION = schemathesis.openapi.from_asgi("/sleeper/openapi.json", APP)
ROUTES = [
    (method.upper(), path, route)
    for path, routes in APP.openapi()["paths"].items()
    for method, route in routes.items()
]


def check_the_answer(case):
    """Whatever is sent, the answer is no error of the server; a problem says what is wrong."""
    if "{table}" in case.path and case.path_parameters is not None:
        case.path_parameters["table"] = "t" if len(case.path_parameters["table"]) % 2 else "other"

    if isinstance(case.body, dict) and "files" in case.body:
        case.body["files"] = ["/not/of/the/input/folder"]  # no bucket is looked for

    answer = case.call(base_url="http://localhost")

    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == ["application/problem+json"]
        assert {"class", "detail", "retryable", "status"} <= {*answer.json()}


@pytest.mark.soak
@pytest.mark.parametrize(("method", "path"), [route[:2] for route in ROUTES])
def test_no_request_that_fits_the_description_fails(method, path):
    """Given requests that are made from the description of a route: by the test itself, since
    each of the processes that share all tests would make all of them to list the tests."""
    [described] = get_all_tests(
        schema=DESCRIPTION.include(method=method, path=path),
        test_func=check_the_answer,
        settings=settings(
            max_examples=EXAMPLES, deadline=None, suppress_health_check=[*HealthCheck]
        ),
        given_kwargs=None,
    )
    _, check_all_answers = described.ok()

    check_all_answers()


@pytest.mark.parametrize(("method", "path", "route"), ROUTES, ids=lambda part: str(part)[:60])
def test_every_route_is_described(method, path, route):
    """With a sentence that says what it does, and the role that it needs."""
    assert route["summary"]
    assert route["description"].endswith((".", "JSON lines."))
    assert ("security" in route) == (path != "/sleeper/health")


def test_examples_of_bodies_are_answered():
    """The description's examples are requests that work."""
    client = TestClient(made_app(), base_url="http://localhost")
    new = APP.openapi()["components"]["schemas"]["NewTable"]["properties"]
    body = {name: each["examples"][0] for name, each in new.items() if "examples" in each}

    made = client.post("/sleeper/tables", json=body)

    assert isinstance(made, httpx.Response)
    assert made.status_code == 201, made.text
