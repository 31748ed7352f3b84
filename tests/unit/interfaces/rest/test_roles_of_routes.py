"""Each route refuses whoever may not use it, by the role that its description names."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from fastapi.testclient import TestClient

import sleeper
from sleeper.instance.instance import new_secret
from sleeper.interfaces.rest.app import make_app
from sleeper.interfaces.rest.authorization import ROLE
from sleeper.interfaces.rest.tokens import Role, TokenFile

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A client of a server with tokens, and a token of each role but the highest."""
    tokens = TokenFile(tmp_path_factory.mktemp("tokens") / "tokens.json", lambda: NOW)
    texts = {
        role: tokens.add(
            role.text, role, expires=None, new_secret=new_secret, token_id=f"{role.text}0"
        )
        for role in (Role.READ, Role.WRITE)
    }
    app = make_app(sleeper.connect("memory://"), tokens=tokens)
    return TestClient(app, base_url="http://localhost:8750"), texts


def test_every_route_refuses_the_role_below_its_own_and_strangers(served):
    """Given each operation of the description, its role is asked for before all else."""
    client, texts = served
    described = client.get("/sleeper/openapi.json").json()["paths"]
    asked = [
        (path.replace("{", "").replace("}", ""), method.upper(), operation[ROLE])
        for path, operations in described.items()
        for method, operation in operations.items()
        if operation.get(ROLE) is not None
    ]
    assert len(asked) > 40

    answers = {}
    for path, method, name in asked:
        below = texts.get(Role(Role.of(name) - 1)) if name != Role.READ.text else None
        headers = {} if below is None else {"Authorization": f"Bearer {below}"}
        answer = client.request(method, path, headers=headers)
        answers[method, path] = answer.status_code == (401 if below is None else 403)

    assert [each for each, refused in answers.items() if not refused] == []
