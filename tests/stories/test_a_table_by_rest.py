"""Somebody serves a table to others, who use it from the command line, from Python and by HTTP."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import AccessRefused
from tests.patience import PATIENCE_S

SCHEMA = {
    "rowKeyFields": [{"name": "tail", "type": "StringType"}],
    "valueFields": [{"name": "seats", "type": "LongType"}],
}


class Shell:
    """A place to type commands, with an instance and the tokens of its server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "SLEEPER_INSTANCE": str(folder / "planes")}
        self.says("init", folder / "planes")
        (folder / "schema.json").write_text(json.dumps(SCHEMA))
        self.says("table", "add", "planes", "--schema", folder / "schema.json")
        self.tokens = {role: self.token(role) for role in ("read", "write")}

    def run(self, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run one command."""
        command = [sys.executable, "-m", "sleeper", *map(str, arguments)]
        env = self.environment | environment
        return subprocess.run(command, env=env, check=False, text=True, capture_output=True)

    def says(self, *arguments: object, **environment: str) -> str:
        """What a command prints that succeeds."""
        done = self.run(*arguments, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def token(self, role: str) -> str:
        """Make a token."""
        made = ("--role", role, "--days", 1, "--tokens", self.folder / "tokens.json")
        return self.says("server", "token", "add", f"for {role}", *made).strip()


@pytest.fixture(scope="module")
def shell(tmp_path_factory) -> Shell:
    return Shell(tmp_path_factory.mktemp("rest"))


@pytest.fixture(scope="module")
def url(shell) -> Iterator[str]:
    """The URL of a server that runs."""
    options = ("--listen", "127.0.0.1:0", "--tokens", str(shell.folder / "tokens.json"))
    command = [sys.executable, "-m", "sleeper", "server", "start", *options]
    with subprocess.Popen(command, env=shell.environment, stderr=subprocess.PIPE, text=True) as ran:
        found = None
        while found is None:
            line = ran.stderr.readline()
            assert line, "the server ended"
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
        yield found[0]
        ran.send_signal(signal.SIGTERM)
        assert ran.wait(PATIENCE_S) == 0


@pytest.fixture(scope="module")
def there(shell, url) -> dict[str, str]:
    """The environment of somebody who writes to the server's instance."""
    return {"SLEEPER_INSTANCE": url, "SLEEPER_TOKEN": shell.tokens["write"]}


@pytest.fixture(scope="module")
def ingested(shell, there) -> list[str]:
    """What a job says that adds three rows, and is sent twice."""
    rows = pa.table({"tail": ["N1", "N2", "N3"], "seats": [100, 200, 300]})
    pq.write_table(rows, shell.folder / "planes.parquet")
    job = ("ingest", "planes", shell.folder / "planes.parquet", "--job-id", "first")
    return [shell.says(*job, **there) for _ in range(2)]


def test_others_add_and_find_rows_by_the_command_line(shell, there, ingested, tmp_path):
    """The URL of the server stands for the instance; the token is in the environment."""
    first, second = ingested

    shell.says("query", "planes", "--prefix", "tail=N", "--output", tmp_path / "o.csv", **there)

    assert "ingested 3 rows" in first
    assert "nothing to do" in second
    content = (tmp_path / "o.csv").read_text()
    assert [*csv.reader(content.splitlines())][1:] == [["N1", "100"], ["N2", "200"], ["N3", "300"]]
    assert shell.says("table", "list", **there) == "planes\n"
    assert "rows             3" in shell.says("table", "show", "planes", **there)
    found = shell.says("query", "planes", "--key", "tail=N2", "--json", **there)
    assert json.loads(found) == {"tail": "N2", "seats": 200}
    assert shell.says("query", "planes", "--count", **there) == "3\n"
    assert "600" in shell.says("sql", "SELECT sum(seats) FROM planes", **there)
    assert "rows added" in shell.says("history", "planes", **there)


def test_others_may_not_do_what_their_role_does_not_allow(shell, url, tmp_path):
    """A token to read reads; without a token there is nothing."""
    pq.write_table(pa.table({"tail": ["N9"], "seats": [1]}), tmp_path / "more.parquet")
    ingest = ("ingest", "planes", tmp_path / "more.parquet")
    reads = {"SLEEPER_INSTANCE": url, "SLEEPER_TOKEN": shell.tokens["read"]}

    refused = shell.run(*ingest, **reads)
    unknown = shell.run("query", "planes", SLEEPER_INSTANCE=url, SLEEPER_TOKEN="")
    lacking = shell.run("compact", "planes", **reads)
    lacking_too = shell.run("serve", "--once", **reads)

    assert (refused.returncode, "needs the role write" in refused.stderr) == (1, True)
    assert (unknown.returncode, "needs a token" in unknown.stderr) == (1, True)
    assert (lacking.returncode, "open the instance itself" in lacking.stderr) == (1, True)
    assert (lacking_too.returncode, "is a server" in lacking_too.stderr) == (1, True)
    assert shell.run("query", "planes", **reads).returncode == 0


@pytest.mark.usefixtures("ingested")
def test_others_use_it_from_python_and_by_http(shell, url):
    """With the same answers."""
    with sleeper.connect(url, token=shell.tokens["read"]) as instance:
        by_python = instance["planes"].query(key="N2").to_pylist()
        with pytest.raises(AccessRefused, match="role admin") as refused:
            instance.delete_table("planes")
    by_http = httpx.post(
        f"{url}/sleeper/tables/planes/query",
        json={"key": "N2"},
        headers={"Authorization": f"Bearer {shell.tokens['read']}"},
        timeout=PATIENCE_S,
    )

    assert by_python == by_http.json()["rows"] == [{"tail": "N2", "seats": 200}]
    assert refused.value.is_known


@pytest.mark.usefixtures("ingested")
def test_others_have_jobs_done_and_followed(shell, url, there, tmp_path):
    """A token to write submits what a worker of the instance runs; a token to read follows it."""
    reads = {"SLEEPER_INSTANCE": url, "SLEEPER_TOKEN": shell.tokens["read"]}
    with sleeper.connect(url, token=shell.tokens["write"]) as instance:
        query_id = instance.jobs.submit_query("planes", keys=["N3", "N1", "N9"])
        waits = shell.says("jobs", "queries", **reads)
        shell.says("worker", "query", "--until-empty")
        rows = instance.jobs.query_rows(query_id).to_pylist()
    submit = ("jobs", "submit", "planes", tmp_path / "a.parquet")
    refused, elsewhere = shell.run(*submit, **reads), shell.run(*submit, **there)

    assert rows == [{"tail": "N1", "seats": 100}, {"tail": "N3", "seats": 300}]
    assert "QUEUED" in waits
    (told,) = json.loads(shell.says("jobs", "queries", "--json", **reads))
    assert (told["query_id"], told["state"], told["rows"]) == (query_id, "COMPLETED", 2)
    (worker,) = json.loads(shell.says("report", "tasks", "--json", **reads))
    assert (worker["kind"], worker["jobs"], worker["rows_written"]) == ("query", 1, 2)
    assert (refused.returncode, "needs the role write" in refused.stderr) == (1, True)
    assert (elsewhere.returncode, "must be in buckets" in elsewhere.stderr) == (1, True)


def test_a_token_that_is_removed_is_refused_at_once(shell, url):
    """The server need not be started again."""
    made = shell.token("admin")
    tokens = ("--tokens", shell.folder / "tokens.json")
    with sleeper.connect(url, token=made) as instance:
        assert instance.instance_id == "planes"
        listed = json.loads(shell.says("server", "token", "list", "--json", *tokens))

        shell.says("server", "token", "remove", "for admin", *tokens)

        with pytest.raises(AccessRefused, match="not valid"):
            instance.tables()
    assert [each["role"] for each in listed] == ["read", "write", "admin"]
    again = shell.run("server", "token", "remove", "for admin", *tokens)
    assert (again.returncode, "has no token" in again.stderr) == (1, True)


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--listen", "0.0.0.0:0"), 1, "--tokens FILE"),
        (("--listen", "127.0.0.1"), 2, "HOST:PORT"),
        (("--tokens", "schema.json"), 1, "chmod 600"),
        (("--certificate", "schema.json"), 1, "schema.json"),
    ],
)
def test_a_server_that_would_not_be_safe_does_not_start(shell, options, code, says):
    """The message says what to do."""
    given = [shell.folder / each if each == "schema.json" else each for each in options]

    done = shell.run("server", "start", *given)

    assert done.returncode == code
    assert says in done.stderr


def test_others_see_the_instance_in_a_browser(shell, url):
    """The same server has a page, which asks for a token and shows the table."""
    asked = httpx.get(f"{url}/", timeout=PATIENCE_S)
    with httpx.Client(
        cookies={"sleeper_token": shell.tokens["read"]}, timeout=PATIENCE_S
    ) as browser:
        seen = browser.get(f"{url}/page")

    assert (asked.status_code, asked.headers["location"]) == (303, "/page")
    assert (
        httpx.get(f"{url}/page", timeout=PATIENCE_S).headers["location"].startswith("/page/sign-in")
    )
    assert seen.status_code == 200
    assert 'href="/page/tables/planes"' in seen.text
