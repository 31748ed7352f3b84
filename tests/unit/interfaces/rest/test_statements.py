"""SQL runs in processes of its own: they have a limit of memory, and are killed when unwanted."""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import tempfile
import threading
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pyarrow as pa
import pytest

import sleeper
from sleeper.interfaces.page.mount import add_pages
from sleeper.interfaces.rest.app import make_app
from sleeper.interfaces.rest.request_limits import RequestLimits
from sleeper.interfaces.rest.statements.process_pool import StatementProcesses
from tests.patience import PATIENCE_S, becomes_true
from tests.unit.interfaces.rest.running_server import running_server

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
MEMORY = 256 << 20
ENDLESS = "SELECT count(*) AS n FROM t AS a, t AS b, t AS c WHERE a.text || b.text < c.text"
SERVED: list[StatementProcesses] = []
"""The processes of the server that tests share."""

SHORT = "SELECT id FROM t WHERE id = 7"

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="Linux alone keeps to a limit of data"
)


@pytest.fixture(scope="module")
def instance(tmp_path_factory):
    with sleeper.connect(tmp_path_factory.mktemp("served") / "instance", create=True) as opened:
        table = opened.create_table("t", SCHEMA, row_keys=["id"])
        ids = np.arange(20_000)
        table.ingest(pa.table({"id": ids, "text": ids.astype(str)}, SCHEMA))
        yield opened


@pytest.fixture(scope="module")
def temp_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("temp")
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    yield folder
    tempfile.tempdir = before


@pytest.fixture(scope="module")
def url(instance, temp_folder):
    limits = RequestLimits(answer_bytes=8 << 20)
    app = make_app(instance, limits=limits, statement_bytes=MEMORY)
    add_pages(app)
    SERVED.append(app.state.statements)
    with running_server(app) as found:
        yield found
    assert not processes()
    assert not [*temp_folder.iterdir()]


def processes() -> list[int]:
    """The processes of statements of this process."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
            command = status.with_name("cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"\nPPid:\t{os.getpid()}\n" in text and b"rest.statements.process" in command:
            found.append(int(status.parent.name))
    return found


def resident() -> int:
    """The memory of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError


def busy(statements: StatementProcesses) -> list[int]:
    """The processes of a server that answer a statement."""
    return [each._process.pid for each in [*statements._processes] if not each.is_idle]


def nothing_runs(statements: StatementProcesses) -> bool:
    """Whether a process waits for a statement, and none runs one or ends after it."""
    return bool(statements._idle) and not statements._calls and not busy(statements)


def sql(url: str, statement: str, **body: object) -> httpx.Response:
    body = {"statement": statement, **body}
    return httpx.post(f"{url}/sleeper/sql", json=body, timeout=PATIENCE_S)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("sql", {"statement": "SELECT repeat('x', 1000000000) AS x"}),
        ("sql", {"statement": "SELECT repeat('x', 1000000000) AS x", "explain": True}),
        (
            "sql",
            {
                "statement": "SELECT array_agg(x) AS all FROM "
                "(SELECT repeat(a.text || b.text, 1000) AS x FROM t AS a, t AS b)"
            },
        ),
        ("tables/t/query", {"where": "length(repeat(text, 100000)) > id"}),
        ("tables/t/count", {"where": "length(repeat('x', 1000000000)) > id"}),
    ],
)
def test_sql_that_takes_too_much_memory_is_refused_and_the_next_is_answered(url, path, body):
    """The server is as large as it was."""
    # given a server whose process has some memory
    assert sql(url, SHORT).status_code == 200
    before = resident()

    # when SQL asks for much more than a statement may use
    answer = httpx.post(f"{url}/sleeper/{path}", json=body, timeout=PATIENCE_S)

    # then it is refused in plain words, the server is as large as it was, and it answers
    assert (answer.status_code, answer.json()["class"]) == (400, "QueryInvalid")
    assert "256 MB of memory" in answer.json()["detail"]
    assert "--statement-mb" in answer.json()["detail"]
    assert resident() - before < 64 << 20
    assert sql(url, SHORT).json()["rows"] == [{"id": 7}]


def in_json(name: str, item: str, count: int, more: str = "") -> bytes:
    """A body with a list of equal items."""
    return f'{{"{name}": [{", ".join([item] * count)}]{more}}}'.encode()


@pytest.mark.parametrize(
    ("path", "content", "words"),
    [
        # all differ, so that none is left out: 4 MiB, and gigabytes as regions
        (
            "query",
            b'{"regions": [%s]}'
            % b", ".join(b'{"id": [%d, %d]}' % (2 * n, 2 * n + 1) for n in range(400_000)),
            "ask for fewer keys or regions",
        ),
        ("count", in_json("keys", "[]", 3_000_000), "ask for fewer keys or regions"),
        ("query", in_json("columns", "1", 1_000_000), "columns may have 10,000 members"),
        ("count", b"[" * 100_000, "no JSON"),
        ("sql", in_json("statement", "1", 30_000), "members"),
        ("query", b'{"key": 1, "other": "%s"}' % (b"x" * 70_000), "other: Extra inputs"),
    ],
    ids=["regions", "keys", "columns", "nested", "statement", "unknown"],
)
def test_a_long_question_takes_no_memory_or_time_of_the_server(url, path, content, words):
    """It is read where statements run, and refused there; other requests are answered meanwhile."""
    # given a server of some size
    assert sql(url, SHORT).status_code == 200
    before, waits = resident(), list[float]()

    # when a long question is asked, and others ask how the server is
    ask = partial(httpx.post, f"{url}/sleeper/tables/t/{path}", content=content, timeout=PATIENCE_S)
    answers: list[httpx.Response] = []
    asking = threading.Thread(
        target=lambda: answers.append(ask(headers={"Content-Type": "application/json"}))
    )
    asking.start()
    while asking.is_alive():
        began = time.monotonic()
        httpx.get(f"{url}/sleeper/health", timeout=PATIENCE_S)
        waits.append(time.monotonic() - began)
        asking.join(0.2)

    # then it is refused in plain words, the server is as large as it was, and nobody waited for it
    assert answers[0].status_code == 400
    assert words in answers[0].json()["detail"]
    assert resident() - before < 128 << 20
    assert statistics.median(waits) < 10


def test_a_long_question_ends_when_its_client_leaves(url):
    """Its process is killed."""
    content = b", ".join(b'{"id": [%d, %d]}' % (2 * n, 2 * n + 1) for n in range(200_000))
    body = b'{"regions": [%s]}' % content
    sql(url, SHORT)
    assert becomes_true(lambda: nothing_runs(SERVED[0]))
    its: list[int] = []
    request = b"POST /sleeper/tables/t/query HTTP/1.1\r\nHost: localhost\r\n"
    place = (urlsplit(url).hostname, urlsplit(url).port)
    with closing(socket.create_connection(place)) as opened:
        opened.sendall(request + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        assert becomes_true(lambda: bool(its) or its.extend(busy(SERVED[0])))

    assert becomes_true(lambda: its[0] not in processes())


@pytest.mark.parametrize("count", [5, 20_000])
def test_a_long_question_is_answered_as_a_short_one(url, count):
    """Keys, regions and statements; in chunks, too, whose length nobody said."""
    keys, ranges = [*range(count)], [{"id": [n, n + 1]} for n in range(0, count, 2)]
    tables = f"{url}/sleeper/tables/t"
    blanks = " " * count * 4

    counted = httpx.post(f"{tables}/count", json={"keys": keys}, timeout=PATIENCE_S).json()
    asked = {"regions": ranges, "columns": ["id"], "format": "jsonl"}
    content = json.dumps(asked).encode()
    found = httpx.post(
        f"{tables}/query",
        content=iter([content[:100], content[100:]]),
        headers={"Content-Type": "application/json"},
        timeout=PATIENCE_S,
    )
    by_sql = httpx.post(
        f"{url}/sleeper/sql",
        content=b'{"statement": "SELECT count(*) AS n FROM t"%s}' % blanks.encode(),
        headers={"Content-Type": "application/json"},
        timeout=PATIENCE_S,
    )
    none = httpx.post(f"{url}/sleeper/tables/none/count", json={"keys": keys}, timeout=PATIENCE_S)

    assert counted == {"rows": count}
    assert [json.loads(line)["id"] for line in found.text.splitlines()] == keys[::2]
    assert by_sql.json()["rows"] == [{"n": 20_000}]
    assert (none.status_code, none.json()["class"]) == (404, "TableNotFound")


def test_rows_longer_than_a_part_come_whole(url):
    """The server holds a mebibyte of a value at a time."""
    answer = sql(url, "SELECT repeat('x', 3000000) AS x", format="jsonl")

    assert answer.json() == {"x": "x" * 3_000_000}


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("sql", {"statement": "SELECT * FROM other"}, 400, "QueryInvalid"),
        ("sql", {"statement": "DROP TABLE t"}, 400, "QueryInvalid"),
        ("tables/other/sql", {"statement": "SELECT 1"}, 404, "TableNotFound"),
        ("tables/t/query", {"where": "nothing = 1"}, 400, "QueryInvalid"),
        ("tables/t/query", {"where": "id = 1", "as_of": 99}, 404, "VersionNotFound"),
    ],
)
def test_errors_of_the_other_process_are_answered_as_those_of_this_one(
    url, path, body, status, kind
):
    """With class and status."""
    answer = httpx.post(f"{url}/sleeper/{path}", json=body, timeout=PATIENCE_S)

    assert (answer.status_code, answer.json()["class"]) == (status, kind)


def test_rows_that_were_just_added_are_found_by_sql(url, instance):
    """The other process looks for newer commits."""
    table = instance.create_table("added", SCHEMA, row_keys=["id"])
    for number in range(3):
        table.ingest([{"id": number, "text": "a"}])

        assert sql(url, "SELECT count(*) AS n FROM added").json()["rows"] == [{"n": number + 1}]


def test_a_page_runs_sql_in_such_a_process_too(url):
    """Rows that are shown, and a file to download."""
    pages = f"{url}/page/tables/t"
    large = {"by": "sql", "sql": "SELECT repeat('x', 1000000000) AS x", "ask": "1"}
    small = {"by": "sql", "sql": SHORT, "ask": "1"}

    wide = {
        "by": "sql",
        "sql": "SELECT repeat(text, 1200) AS a, repeat(text, 1200) AS b, repeat(text, 1200) AS c FROM t WHERE id >= 10000",
        "ask": "1",
        "limit": "500",
    }

    refused = httpx.get(f"{pages}/rows", params=large, timeout=PATIENCE_S)
    too_wide = httpx.get(f"{pages}/rows", params=wide, timeout=PATIENCE_S)
    shown = httpx.get(f"{pages}/rows", params=small, timeout=PATIENCE_S)
    loaded = httpx.get(f"{pages}/rows.json", params=small, timeout=PATIENCE_S)
    not_loaded = httpx.get(f"{pages}/rows.csv", params=large, timeout=PATIENCE_S)

    assert (refused.status_code, "MB of memory" in refused.text) == (400, True)
    assert (too_wide.status_code, "too much for a page" in too_wide.text) == (400, True)
    assert (shown.status_code, "1 row." in shown.text) == (200, True)
    assert loaded.json() == {"id": 7}
    assert (not_loaded.status_code, "MB of memory" in not_loaded.text) == (400, True)


def test_a_statement_ends_when_its_client_leaves(url):
    """Its process is killed."""
    # given a statement that never ends
    body = b'{"statement": "%s"}' % ENDLESS.encode()
    request = b"POST /sleeper/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    sql(url, SHORT)
    assert becomes_true(lambda: nothing_runs(SERVED[0]))
    place = (urlsplit(url).hostname, urlsplit(url).port)
    with closing(socket.create_connection(place)) as opened:
        opened.sendall(request + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        assert becomes_true(lambda: bool(busy(SERVED[0])))
        (its_process,) = busy(SERVED[0])

    # when its client closes the connection, then its process is gone
    assert becomes_true(lambda: its_process not in processes())
    assert sql(url, SHORT).status_code == 200


def test_a_process_answers_one_statement_after_the_other(instance, temp_folder):
    """To start one takes a second. Each client leaves as soon as it has its answer."""
    app = make_app(instance)  # with memory as by default: one that takes half of it is replaced
    with running_server(app) as url:
        sql(url, SHORT)
        assert becomes_true(lambda: nothing_runs(app.state.statements))
        before = {*app.state.statements._processes}
        for _ in range(30):
            assert sql(url, SHORT).status_code == 200

        assert before <= {*app.state.statements._processes}


def test_a_stream_that_is_not_read_on_ends_its_statement(url):
    """Its process is killed."""
    sql(url, SHORT)
    assert becomes_true(lambda: nothing_runs(SERVED[0]))
    body = {"statement": "SELECT a.id FROM t AS a, t AS b", "format": "csv"}
    with httpx.stream("POST", f"{url}/sleeper/sql", json=body, timeout=PATIENCE_S) as answer:
        next(answer.iter_raw())
        (its_process,) = busy(SERVED[0])

    assert becomes_true(lambda: its_process not in processes())
    assert becomes_true(lambda: not SERVED[0]._ending)
    assert sql(url, SHORT).status_code == 200


def test_a_statement_whose_process_is_killed_is_answered(url):
    """By the kernel, for example."""
    answers: list[httpx.Response] = []
    sql(url, SHORT)
    asking = threading.Thread(target=lambda: answers.append(sql(url, ENDLESS)))
    asking.start()
    while asking.is_alive():
        asking.join(1)
        for process in processes():
            os.kill(process, signal.SIGKILL)

    assert (answers[0].status_code, answers[0].json()["class"]) == (503, "StorageFailed")
    assert "was killed" in answers[0].json()["detail"]


def test_statements_are_bounded_in_time_and_number_and_end_with_the_server(instance, temp_folder):
    """Other requests are answered meanwhile."""
    # given a server with few requests, and little time for each
    limits = RequestLimits(requests=4, time_s=8)
    app = make_app(instance, limits=limits, statement_bytes=MEMORY)
    answers: list[httpx.Response] = []
    with running_server(app) as url:
        # when two statements that never end run
        asking = [
            threading.Thread(target=lambda: answers.append(sql(url, ENDLESS))) for _ in range(2)
        ]
        for thread in asking:
            thread.start()
        time.sleep(1)

        # then a third one is refused, and other requests are answered
        running = busy(app.state.statements)
        refused = sql(url, SHORT)
        others = httpx.get(f"{url}/sleeper/tables", timeout=PATIENCE_S)
        for thread in asking:
            thread.join(PATIENCE_S)

    # then both are answered when their time is over, and no process is left
    assert (refused.status_code, refused.json()["retryable"]) == (503, True)
    assert others.status_code == 200
    assert [answer.status_code for answer in answers] == [504, 504]
    assert not {*running} & {*processes()}


def test_more_statements_than_processes_wait_for_their_turn(url):
    """None is refused."""
    answers: list[int] = []
    ask = partial(sql, url, "SELECT count(*) AS n FROM t")
    asking = [
        threading.Thread(target=lambda: answers.append(ask().json()["rows"][0]["n"]))
        for _ in range(12)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(PATIENCE_S)

    assert answers == [20_000] * 12
