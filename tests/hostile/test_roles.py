"""Every route of the description, asked by every role, does what its role says: no more, no less."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import sleeper
from sleeper.instance.instance import new_secret
from sleeper.interfaces.page import mount
from sleeper.interfaces.page.mount import add_pages
from sleeper.interfaces.rest.app import make_app
from sleeper.interfaces.rest.tokens import Role, TokenFile

ROLES = (None, *Role)
REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
METHODS = ("get", "post", "put", "patch", "delete")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """An application with a token for each role."""
    file = TokenFile(tmp_path_factory.mktemp("tokens") / "tokens.json", lambda: datetime.now(UTC))
    tokens = {
        role: file.add(
            role.text, role, expires=None, new_secret=new_secret, token_id=new_secret()[:8]
        )
        for role in Role
    }
    with sleeper.connect("memory://") as instance:
        instance.create_table("t", pa.schema([("id", pa.int64())]), row_keys=["id"])
        app = make_app(instance, tokens=file)
        add_pages(app)
        yield app, tokens


def test_each_route_answers_each_role_as_its_description_says(served):
    """A smaller role is refused before the body is read; none is refused that is large enough."""
    # given all routes that are described, with the role that each needs
    app, tokens = served
    client = TestClient(app, base_url="http://localhost", raise_server_exceptions=False)
    paths = client.get("/sleeper/openapi.json").json()["paths"]
    asked = [
        (method, path, routes[method].get("x-sleeper-role"))
        for path, routes in paths.items()
        for method in METHODS
        if method in routes
    ]
    assert len(asked) > 25
    assert [path for _, path, needed in asked if needed is None] == ["/sleeper/health"]

    # when each is asked by each role, with a body that is no JSON
    wrong = []
    for method, path, needed in asked:
        for role in ROLES:
            headers = {"Content-Type": "application/json"}
            if role is not None:
                headers["Authorization"] = f"Bearer {tokens[role]}"
            url = path.replace("{table}", "none").replace("{queue}", "ingest")
            url = url.replace("{job_id}", "none")
            content = b"{" if method != "get" else None
            status = client.request(method, url, content=content, headers=headers).status_code
            may = needed is None or (role is not None and role >= Role.of(needed))
            expected = HTTPStatus.UNAUTHORIZED if role is None else HTTPStatus.FORBIDDEN
            if (status in REFUSED) == may or (not may and status != expected):
                wrong.append((method, path, needed, role, status))

    # then each is refused or answered as the description says
    assert wrong == []


def test_settings_of_spark_need_the_largest_role(served):
    """They can name code which a cluster runs; whoever may only add rows may not choose it."""
    app, tokens = served
    client = TestClient(app, base_url="http://localhost")
    body = {"files": ["s3://b/x"], "kind": "bulk-import", "spark_conf": {"spark.jars": "s3://b/j"}}
    answers = {
        role: client.post(
            "/sleeper/tables/none/jobs",
            json=body,
            headers={"Authorization": f"Bearer {tokens[role]}"},
        )
        for role in Role
    }

    assert answers[Role.WRITE].status_code == HTTPStatus.FORBIDDEN
    assert "spark_conf needs the role admin" in answers[Role.WRITE].json()["detail"]
    assert answers[Role.ADMIN].status_code not in REFUSED


def test_every_page_but_the_sign_in_needs_a_token(served):
    """Pages are not in the description: all routes of their rooms lead to the sign-in."""
    client = TestClient(served[0], base_url="http://localhost", follow_redirects=False)
    rooms = (mount.instance, mount.table, mount.rows, mount.properties, mount.history, mount.jobs)
    pages = [
        (method, route.path)
        for room in (*rooms, mount.maintenance)
        for route in room.router.routes
        for method in route.methods
    ]
    wrong = []
    for method, path in pages:
        url = path.replace("{table:segment}", "t").replace("{job_id:segment}", "x")
        answer = client.request(method, url)
        if answer.status_code != 303 or "sign-in" not in answer.headers["location"]:
            wrong.append((method, path, answer.status_code))

    assert len(pages) > 10
    assert wrong == []


@pytest.mark.parametrize("text", ["", "x", "sleeper_", "sleeper_x_y", "known id", "long", "bytes"])
def test_each_token_that_is_wrong_is_compared_in_constant_time(served, monkeypatch, text):
    """Also where its id is not known, so that nobody finds ids by a clock."""
    app, tokens = served
    token_id = tokens[Role.READ].split("_")[1]
    given = {"known id": f"sleeper_{token_id}_x", "long": "sleeper_" + "x" * 9_000, "bytes": "\xff"}
    compared = []
    compare = sleeper.interfaces.rest.tokens.hmac.compare_digest
    monkeypatch.setattr(
        sleeper.interfaces.rest.tokens.hmac,
        "compare_digest",
        lambda a, b: compared.append((len(a), len(b))) or compare(a, b),
    )
    client = TestClient(app, base_url="http://localhost")

    answer = client.get(
        "/sleeper/tables",
        headers={b"Authorization": b"Bearer " + given.get(text, text or "-").encode("latin-1")},
    )

    assert answer.status_code == 401
    assert {*compared} == {(64, 64)}
