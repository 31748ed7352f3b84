"""Every error has a status, and says what happened without what is inside the server."""

from __future__ import annotations

import inspect
from http import HTTPStatus

import httpx
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

import sleeper
from sleeper import errors
from sleeper.interfaces.remote import http_client
from sleeper.interfaces.rest.app import make_app
from sleeper.interfaces.rest.problems import STATUSES, problem_of, status_of

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.SleeperError) and kind is not errors.SleeperError
]
ATTRIBUTES = [
    errors.PropertiesInvalid({"a": "b", "c": "d"}),
    errors.JobInvalid(("one", "two")),
    errors.NullKeys("3 rows", {"id": 3}),
    errors.InsufficientData(5, 2),
    errors.JobAlreadyCommitted("j", 7),
    errors.AccessRefused("no", is_known=True),
    errors.SubmissionFailed("busy", retryable=True),
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class_has_a_status(kind):
    """Its own, or that of its base: what is to be tried again has a status that says so."""
    status = status_of(kind)

    assert 400 <= status < 600
    assert not kind.retryable or status in {503, 507}


def test_no_class_is_listed_that_is_not_there():
    """The table has classes of `sleeper.errors` alone."""
    assert {*STATUSES} <= {*CLASSES}


@pytest.mark.parametrize("error", ATTRIBUTES, ids=lambda error: type(error).__name__)
def test_attributes_of_errors_arrive_at_clients(error):
    """The client raises the same class, with the same message and attributes."""
    problem = problem_of(error)
    answer = httpx.Response(
        problem.status, content=problem.body(), request=httpx.Request("GET", "http://x")
    )

    with pytest.raises(type(error)) as caught:
        http_client._raise_problem(answer)

    assert str(caught.value) == str(error)
    assert vars(caught.value) == vars(error)
    assert caught.value.retryable == error.retryable


@pytest.mark.parametrize(
    ("status", "content"),
    [(502, b"<html>"), (500, b"{}"), (404, b"[]"), (400, b'{"class": "x"}'), (301, b"")],
)
def test_answers_of_other_servers_are_no_problems_of_ours(status, content):
    """A proxy, or a wrong port."""
    headers = {"Location": "http://y"} if status == 301 else {}
    answer = httpx.Response(
        status, content=content, request=httpx.Request("GET", "http://x"), headers=headers
    )

    with pytest.raises(errors.StorageFailed, match="server"):
        http_client._raise_problem(answer)


@pytest.mark.parametrize(
    "document", [b'{"class": "Exception", "detail": "d"}', b'{"class": "annotations", "detail": 5}']
)
def test_names_that_are_no_errors_of_ours_are_not_looked_up(document):
    """A server cannot make a client raise, or call, anything else."""
    answer = httpx.Response(500, content=document, request=httpx.Request("GET", "http://x"))

    with pytest.raises(errors.SleeperError) as caught:
        http_client._raise_problem(answer)
    assert type(caught.value) is errors.SleeperError


@pytest.mark.parametrize("error", [ValueError("/etc/secret"), KeyError("s"), RecursionError()])
def test_nothing_is_said_of_what_nobody_expected(error, caplog):
    """The log has it; the answer has not."""
    with sleeper.connect("memory://") as instance:
        app = make_app(instance)

        @app.get("/fails")
        def fail() -> None:
            raise error

        client = TestClient(app, base_url="http://localhost", raise_server_exceptions=False)
        answer = client.get("/fails")

    assert answer.status_code == HTTPStatus.INTERNAL_SERVER_ERROR
    assert "secret" not in answer.text
    assert answer.json()["error"] == "internal_error"
    assert any(record.exc_info and record.exc_info[1] is error for record in caplog.records)


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({}, "the body has no Content-Type"),
        ({"Content-Type": "text/plain"}, "the body has the Content-Type 'text/plain'"),
        (
            {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"},
            "the body has the Content-Type 'application/x-www-form-urlencoded'",
        ),
    ],
)
def test_json_that_is_sent_as_something_else_is_told_so(headers, words):
    """Given JSON without its media type, as `curl -d` sends it, the problem says how to send it, and
    nothing of dictionaries; with the media type the same body is answered.
    """
    with sleeper.connect("memory://") as instance:
        instance.create_table("t", pa.schema([("id", pa.int64())]), row_keys=["id"])
        client = TestClient(make_app(instance), base_url="http://localhost")
        body = b'{"key": 12}'
        for path in ("query", "count"):
            answer = client.post(f"/sleeper/tables/t/{path}", content=body, headers=headers)
            as_json = client.post(
                f"/sleeper/tables/t/{path}",
                content=body,
                headers={"Content-Type": "application/json"},
            )

            wanted = f"{words}: this path takes JSON, sent with Content-Type: application/json"
            assert (answer.status_code, answer.json()["detail"]) == (400, wanted)
            assert as_json.status_code == 200
