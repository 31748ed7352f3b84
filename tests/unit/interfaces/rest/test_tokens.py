"""Who may use the REST server: tokens, their roles and ends, and pages of other sites."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from fastapi.testclient import TestClient

import sleeper
from sleeper.errors import AccessRefused, AlreadyExists, BadRequest, NotFound
from sleeper.instance.instance import new_secret
from sleeper.interfaces.rest.app import make_app
from sleeper.interfaces.rest.tokens import Role, TokenFile

SCHEMA = {"rowKeyFields": [{"name": "id", "type": "StringType"}]}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock():
    return [NOW]


@pytest.fixture
def tokens(tmp_path, clock):
    return TokenFile(tmp_path / "tokens.json", lambda: clock[0])


def added(tokens: TokenFile, name: str, role: Role, expires: datetime | None = None) -> str:
    return tokens.add(name, role, expires=expires, new_secret=new_secret, token_id=f"{name}0")


def client_of(tokens: TokenFile | None, host: str = "http://localhost:8750") -> TestClient:
    instance = sleeper.connect("memory://")
    instance.create_table("t", SCHEMA)
    return TestClient(make_app(instance, tokens=tokens), base_url=host)


def status(client: TestClient, method: str, path: str, **kwargs) -> int:
    return client.request(method, path, **kwargs).status_code


def with_token(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"tokens": [{}]}', "expires", "others may read it"]
)
def test_a_broken_file_refuses_everybody_and_is_not_described_to_them(tokens, content, caplog):
    """Given a file that breaks while the server runs, its path is in the log alone."""
    text = added(tokens, "ci", Role.ADMIN, NOW + timedelta(days=1))
    client = client_of(tokens)
    if content == "expires":
        content = tokens.path.read_text().replace(
            "2026-01-02T00:00:00+00:00", "2026-01-02T00:00:00"
        )
    if content == "others may read it":
        tokens.path.chmod(0o644)
        tokens._stamp = None
    else:
        tokens.path.write_text(content)

    answer = client.get("/sleeper/tables", headers=with_token(text))

    assert (answer.status_code, answer.json()["class"]) == (503, "StorageFailed")
    assert "tokens" in answer.json()["detail"]
    assert tokens.path.name not in answer.text
    assert str(tokens.path) in caplog.text


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/sleeper/tables/t/query"), ("POST", "/sleeper/tables"), ("POST", "/sleeper/sql")],
)
@pytest.mark.parametrize("role", [None, Role.READ])
def test_the_body_of_a_stranger_is_not_read(tokens, method, path, role):
    """Given no token, or one of too small a role, nothing is parsed: it would hold up others."""
    headers = with_token(added(tokens, "r", role)) if role else {}
    app, read = client_of(tokens).app, []

    async def watched(scope, receive, send):
        async def received():
            read.append(1)
            return await receive()

        await app(scope, received, send)

    answer = TestClient(watched, base_url="http://localhost:8750").request(
        method, path, content=b"{", headers={**headers, "Content-Type": "application/json"}
    )

    needs_more = role is None or path == "/sleeper/tables"
    assert answer.status_code == (400 if not needs_more else 401 if role is None else 403)
    assert bool(read) is not needs_more


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/sleeper/tables/t/query"), ("GET", "/sleeper/tables"), ("GET", "/sleeper/jobs")],
)
def test_a_token_is_checked_once(tokens, method, path):
    """The check before the body is read is the whole check: a second one cost half a millisecond."""
    checked = []

    class Watched(TokenFile):
        def checked(self, text):
            checked.append(text)
            return super().checked(text)

    text = added(tokens, "ci", Role.READ)
    client = client_of(Watched(tokens.path, lambda: NOW))

    client.request(method, path, json={}, headers=with_token(text))

    assert checked == [text]


class TestTheFile:
    """What it keeps."""

    def test_keeps_no_token(self, tokens):
        """Only a salted hash is stored, and nobody else may read the file."""
        text = added(tokens, "ci", Role.READ)

        content = tokens.path.read_text()
        assert text.rpartition("_")[2] not in content
        assert {*json.loads(content)["tokens"][0]} == {
            *("id", "name", "role", "salt", "sha256", "made", "expires")
        }
        assert tokens.path.stat().st_mode & 0o777 == 0o600

    def test_is_not_read_if_others_may_read_it(self, tokens):
        """A hash is no secret of 256 bits, but a file that others write is another's door."""
        text = added(tokens, "ci", Role.READ)
        tokens.path.chmod(0o644)

        again = TokenFile(tokens.path, tokens._now)
        with pytest.raises(BadRequest, match="chmod 600"):
            again.checked(text)

    @pytest.mark.parametrize("content", ["", "{", "[]", '{"tokens": [{}]}', '{"tokens": 1}'])
    def test_is_refused_if_it_is_damaged(self, tokens, content):
        """Rather than to let everybody or nobody in."""
        tokens.path.write_text(content)
        tokens.path.chmod(0o600)

        with pytest.raises(BadRequest, match=r"tokens\.json"):
            tokens.tokens()

    def test_has_each_name_once(self, tokens):
        """A token is removed by its name."""
        added(tokens, "ci", Role.READ)

        with pytest.raises(AlreadyExists, match="'ci'"):
            added(tokens, "ci", Role.ADMIN)
        with pytest.raises(NotFound, match="'other'"):
            tokens.remove("other")
        with pytest.raises(BadRequest, match="name of a token"):
            added(tokens, " ", Role.READ)
        with pytest.raises(BadRequest, match="time zone"):
            added(tokens, "late", Role.READ, datetime(2026, 1, 1))

    def test_forgets_what_is_removed(self, tokens):
        """Also in a server that runs, which reads it again."""
        text = added(tokens, "ci", Role.READ)
        other = TokenFile(tokens.path, tokens._now)
        assert other.checked(text).name == "ci"

        tokens.remove("ci")

        with pytest.raises(AccessRefused, match="not valid"):
            other.checked(text)
        assert other.tokens() == ()


class TestAServerWithTokens:
    """What it asks for."""

    def test_needs_one(self, tokens):
        """401 says which kind."""
        answer = client_of(tokens).get("/sleeper/tables")

        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.json()["class"] == "AccessRefused"

    @pytest.mark.parametrize(
        "text",
        ["x", "sleeper_", "sleeper_ci0_", "sleeper_ci0_0000", "sleeper_none_00", "ü", "a" * 10_000],
    )
    def test_refuses_wrong_ones(self, tokens, text):
        """The answer does not say what was wrong with it."""
        added(tokens, "ci", Role.READ)

        headers = {"Authorization": f"Bearer {text}".encode()}
        answer = client_of(tokens).get("/sleeper/tables", headers=headers)

        assert answer.status_code == 401
        assert "the token is not valid" in answer.json()["detail"]

    @pytest.mark.parametrize("form", ["Basic {}", "bearer{}", "{}", "Bearer", "Token {}"])
    def test_refuses_other_kinds_of_authorization(self, tokens, form):
        """Only `Bearer TOKEN` is one."""
        text = added(tokens, "ci", Role.READ)

        headers = {"Authorization": form.format(text)}
        assert status(client_of(tokens), "GET", "/sleeper/tables", headers=headers) == 401

    def test_refuses_expired_ones(self, tokens, clock):
        """From the second on at which they expire."""
        text = added(tokens, "ci", Role.READ, NOW + timedelta(hours=1))
        client = client_of(tokens)
        assert status(client, "GET", "/sleeper/tables", headers=with_token(text)) == 200

        clock[0] += timedelta(hours=1)

        answer = client.get("/sleeper/tables", headers=with_token(text))
        assert (answer.status_code, "expired" in answer.json()["detail"]) == (401, True)

    def test_allows_what_the_role_allows(self, tokens):
        """403 names the role that is needed."""
        client = client_of(tokens)
        headers = {role: with_token(added(tokens, role.text, role)) for role in Role}
        new = {"properties": {"sleeper.table.name": "new"}, "schema": SCHEMA}

        reads = [status(client, "GET", "/sleeper/tables", headers=headers[r]) for r in Role]
        answers = [client.post("/sleeper/tables", json=new, headers=headers[r]) for r in Role]

        assert reads == [200, 200, 200]
        assert [each.status_code for each in answers] == [403, 403, 201]
        assert "needs the role admin" in answers[0].json()["detail"]


class TestPagesOfOtherSites:
    """A browser on the same machine can reach a server without tokens."""

    @pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8750", "10.0.0.1"])
    def test_cannot_use_it_by_another_name(self, host):
        """A name that an attacker lets point to 127.0.0.1 (DNS rebinding)."""
        client = client_of(None, f"http://{host}")

        assert status(client, "GET", "/sleeper/tables") == 403

    @pytest.mark.parametrize(
        "host",
        ["localhost:8750", "127.0.0.1:1", "127.0.0.2:8750", "[::1]:8750", "LOCALHOST"],
    )
    def test_loopback_names_are_served(self, host):
        """With any port."""
        client = client_of(None)

        assert status(client, "GET", "/sleeper/tables", headers={"Host": host}) == 200

    @pytest.mark.parametrize(
        "origin", ["https://evil.example", "null", "http://localhost:9999", "http://localhost"]
    )
    def test_cannot_send_requests_from_their_pages(self, tokens, origin):
        """Their `Origin` is another one, with tokens and without."""
        client = client_of(None)

        sent = client.delete("/sleeper/tables/t", headers={"Origin": origin})

        assert (sent.status_code, sent.json()["class"]) == (403, "AccessRefused")
        own = {"Origin": "http://localhost:8750"}
        assert status(client, "GET", "/sleeper/tables", headers=own) == 200

    def test_a_page_without_tls_cannot_use_a_server_with_it(self):
        """Who changes what travels in the clear could write such a page."""
        client = client_of(None, "https://localhost:8750")

        for origin, expected in (("http://localhost:8750", 403), ("https://localhost:8750", 200)):
            assert status(client, "GET", "/sleeper/tables", headers={"Origin": origin}) == expected

    def test_forms_are_no_requests(self):
        """A form of another site cannot send JSON."""
        client = client_of(None)
        new = json.dumps({"properties": {"sleeper.table.name": "new"}, "schema": SCHEMA})

        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            headers = {"Content-Type": kind}
            sent = status(client, "POST", "/sleeper/tables", content=new, headers=headers)
            assert sent == 400


def test_the_history_names_the_token_and_the_reason(tokens):
    """Given rows sent with a token, and a reason in a header, the entry has both; what the server
    does next for another token has not.
    """
    headers = [
        {
            **with_token(added(tokens, "etl", Role.WRITE)),
            "Sleeper-Reason": "ticket%204711%20%C3%A9",
        },
        with_token(added(tokens, "lab", Role.WRITE)),
    ]
    client = client_of(tokens)

    for each in headers:
        answer = client.post(
            "/sleeper/tables/t/rows", content='{"id": "a"}\n', headers={**each, **JSON_LINES}
        )
        assert answer.status_code == 200, answer.text

    entries = client.get("/sleeper/tables/t/history", headers=headers[1]).json()["history"]
    assert [(each["by"], each["reasons"]) for each in entries[:2]] == [
        (["token lab"], []),
        (["token etl"], ["ticket 4711 é"]),
    ]


JSON_LINES = {"Content-Type": "application/jsonl"}
