"""A server on a real socket: clients that are slow, break off, send too much, or are too many."""

from __future__ import annotations

import io
import socket
import subprocess
import threading
import time
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import httpx
import numpy as np
import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import BadRequest, DataDamaged, StorageFailed
from sleeper.interfaces.remote.http_client import HttpClient
from sleeper.interfaces.remote.remote_table import answered_rows
from sleeper.interfaces.rest import server
from sleeper.interfaces.rest.app import make_app
from sleeper.interfaces.rest.request_limits import RequestLimits
from sleeper.interfaces.rest.server import (
    ImpatientProtocol,
    Listening,
    listening_socket,
    threads_end,
)
from tests.patience import PATIENCE_S
from tests.unit.interfaces.rest.running_server import running_server

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])
ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture
def instance():
    with sleeper.connect("memory://") as opened:
        opened.create_table("t", SCHEMA, row_keys=["id"])
        yield opened


def filled(instance: sleeper.Instance, rows: int = 400_000) -> sleeper.Table:
    table = instance.table("t")
    table.ingest(pa.table({"id": np.arange(rows), "n": np.random.default_rng(1).permutation(rows)}))
    return table


def upload(rows: int) -> bytes:
    file = io.BytesIO()
    table = pa.table({"id": np.arange(rows), "n": np.arange(rows)}, schema=SCHEMA)
    with pa.ipc.new_stream(file, SCHEMA) as writer:
        writer.write_table(table)
    return file.getvalue()


def connected(url: str) -> socket.socket:
    return socket.create_connection(
        (urlsplit(url).hostname, urlsplit(url).port), timeout=PATIENCE_S
    )


def head_of_upload(length: str) -> bytes:
    return (
        f"POST /sleeper/tables/t/rows HTTP/1.1\r\nHost: localhost\r\nContent-Type: {ARROW}\r\n"
        f"{length}\r\n\r\n"
    ).encode()


def all_of(opened: socket.socket) -> bytes:
    """What the server sends until it closes the connection."""
    parts = []
    while part := opened.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


class TestUploads:
    """Nothing is changed unless the whole body came."""

    @pytest.mark.parametrize("chunked", [False, True])
    @pytest.mark.parametrize("sent", [0, 100, 0.5, 1.0])
    def test_that_are_cut_off_change_nothing(self, instance, chunked, sent):
        """Wherever: also where all bytes came but the end of the body."""
        content = upload(5000)
        part = content[: sent if isinstance(sent, int) else int(len(content) * sent)]
        with running_server(make_app(instance)) as url:
            with connected(url) as opened:
                if chunked:
                    opened.sendall(head_of_upload("Transfer-Encoding: chunked"))
                    opened.sendall(b"%x\r\n%s\r\n" % (len(part), part) if part else b"")
                else:
                    opened.sendall(head_of_upload(f"Content-Length: {len(content) + 1}") + part)
                time.sleep(0.05)
            time.sleep(0.2)

            assert httpx.get(f"{url}/sleeper/health", timeout=PATIENCE_S).status_code == 200
        assert instance.table("t").count() == 0

    def test_that_stop_are_refused(self, instance):
        """A client that sends nothing for a while gets 408."""
        limits = RequestLimits(idle_s=0.2)
        with running_server(make_app(instance, limits=limits)) as url, connected(url) as opened:
            opened.sendall(head_of_upload("Content-Length: 1000") + b"some")

            answer = all_of(opened)

        assert b" 408 " in answer
        assert b"nothing of the body came for 0.2 s" in answer
        assert instance.table("t").count() == 0

    @pytest.mark.parametrize("chunked", [False, True])
    def test_that_are_too_large_are_refused_early(self, instance, chunked):
        """Before they are whole."""
        limits = RequestLimits(upload_bytes=1000)
        with running_server(make_app(instance, limits=limits)) as url, connected(url) as opened:
            if chunked:
                opened.sendall(head_of_upload("Transfer-Encoding: chunked"))
                opened.sendall(b"7d0\r\n%s\r\n" % bytes(2000))
            else:
                opened.sendall(head_of_upload("Content-Length: 99999999999"))
            answer = opened.recv(1 << 16)

        assert b" 413 " in answer
        assert instance.table("t").count() == 0


def by_http_1_0(url: str, path: str, body: bytes = b"") -> bytes:
    """Send a request by HTTP/1.0, and return the whole answer."""
    with connected(url) as opened:
        opened.sendall(
            b"%s %s HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s"
            % (b"POST" if body else b"GET", path.encode(), len(body), body)
        )
        return all_of(opened)


class TestAnswers:
    """A stream that is not whole does not look so."""

    @pytest.mark.parametrize("form", [b"csv", b"jsonl", b"arrow"])
    def test_that_are_streams_are_refused_by_http_1_0(self, instance, form):
        """Their end is that of the connection, so one that is broken off would look whole."""
        filled(instance)
        with running_server(make_app(instance)) as url:
            answer = by_http_1_0(url, "/sleeper/tables/t/query", b'{"format": "%s"}' % form)
            sized = by_http_1_0(url, "/sleeper/tables/t/query", b'{"limit": 1}')
            health = by_http_1_0(url, "/sleeper/health")

        assert b" 505 " in answer.partition(b"\r\n")[0]
        assert b"proxy_http_version 1.1" in answer
        assert b" 200 " in sized.partition(b"\r\n")[0]
        assert b" 200 " in health.partition(b"\r\n")[0]

    def test_that_fail_are_broken_off(self, instance):
        """Neither the last chunk of HTTP nor the end of the Arrow stream comes."""
        table = filled(instance)
        app = make_app(instance)

        def damaged(**_: object) -> sleeper.Rows:
            found = iter(table.query())

            def batches():
                for _ in range(3):
                    yield next(found)
                raise DataDamaged("page 4 is wrong")

            return sleeper.Rows(batches(), table.arrow_schema, 2)

        app.state.served.table("t").query = damaged
        with running_server(app) as url:
            rows = HttpClient(url, None)
            with pytest.raises(StorageFailed, match="did not answer"):
                answered_rows(rows, "/sleeper/tables/t/query", {}).to_arrow()
            for form in ("jsonl", "csv", "parquet"):
                body = {"format": form}
                with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
                    httpx.post(f"{url}/sleeper/tables/t/query", json=body, timeout=PATIENCE_S)

    def test_that_nobody_takes_are_broken_off(self, instance, monkeypatch):
        """A client that does not read is cut off, and its rows are not read on."""
        monkeypatch.setattr(ImpatientProtocol, "taking_s", 0.3)
        filled(instance, 1_500_000)  # more than buffers hold
        request = b"POST /sleeper/tables/t/query HTTP/1.1\r\nHost: localhost\r\n"
        request += (
            b'Content-Type: application/json\r\nContent-Length: 19\r\n\r\n{"format": "jsonl"}'
        )
        with running_server(make_app(instance)) as url, socket.socket() as opened:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            opened.connect((urlsplit(url).hostname, urlsplit(url).port))
            opened.sendall(request)
            assert _answers_end()

            answer = b""
            with suppress(ConnectionResetError):
                answer = all_of(opened)
        assert not answer.endswith(b"0\r\n\r\n")

    def test_that_clients_break_off_are_not_read_on(self, instance):
        """The thread that reads rows ends."""
        filled(instance, 1_500_000)
        with (
            running_server(make_app(instance)) as url,
            sleeper.connect(url, token=None) as remote,
        ):
            rows = remote.table("t").query()
            closing = threading.Timer(0.1, rows.close)
            closing.start()
            assert _answers_end()
            closing.join()


def _answers_end() -> bool:
    """Whether the threads that read rows for answers end soon; there was one."""
    deadline, seen = time.monotonic() + PATIENCE_S, False
    while time.monotonic() < deadline:
        running = any(thread.name == "answer" for thread in threading.enumerate())
        if seen and not running:
            return True
        seen = seen or running
        time.sleep(0.005)
    return False


class TestRequests:
    """How many and how long."""

    def test_that_are_too_many_are_refused(self, instance):
        """503, and when to try again; others are answered again later."""
        app, go_on = make_app(instance, limits=RequestLimits(requests=2)), threading.Event()
        began = threading.Semaphore(0)

        @app.get("/waits")
        def wait() -> None:
            began.release()
            go_on.wait(PATIENCE_S)

        with running_server(app) as url:
            waiting = [
                threading.Thread(target=httpx.get, args=(f"{url}/waits",), kwargs={"timeout": 30})
                for _ in range(2)
            ]
            for thread in waiting:
                thread.start()
                assert began.acquire(timeout=PATIENCE_S)
            refused = httpx.get(f"{url}/sleeper/health", timeout=PATIENCE_S)
            go_on.set()
            for thread in waiting:
                thread.join()
            after = httpx.get(f"{url}/sleeper/health", timeout=PATIENCE_S)

        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert (refused.json()["class"], refused.json()["retryable"]) == ("StorageFailed", True)
        assert after.status_code == 200

    def test_that_take_too_long_are_answered(self, instance):
        """504; what they do may still happen."""
        app, go_on = make_app(instance, limits=RequestLimits(time_s=0.2)), threading.Event()
        app.get("/waits")(lambda: go_on.wait(PATIENCE_S))
        with running_server(app) as url:
            answer = httpx.get(f"{url}/waits", timeout=PATIENCE_S)
            go_on.set()

        assert (answer.status_code, answer.json()["class"]) == (504, "StorageFailed")
        assert "same job id" in answer.json()["detail"]

    def test_without_headers_are_closed(self, instance, monkeypatch):
        """A connection that sends its headers slowly, or nothing."""
        monkeypatch.setattr(ImpatientProtocol, "header_s", 0.3)
        with running_server(make_app(instance)) as url:
            started = time.monotonic()
            with connected(url) as silent, connected(url) as slow:
                slow.sendall(b"GET /sleeper/health HTTP/1.1\r\nHost: ")
                assert (all_of(silent), all_of(slow)) == (b"", b"")

        assert time.monotonic() - started < PATIENCE_S

    @pytest.mark.parametrize(
        "request_line",
        [
            b"GET /sleeper/../etc/passwd",
            b"GET /sleeper/tables/%2e%2e/%2e%2e/x",
            b"GET //evil/sleeper/tables",
            b"GET /sleeper/tables/%00",
            b"GET /sleeper/tables/%ff%fe",
            b"GET /sleeper/tables/" + b"a" * 20_000,
            b"BREW /sleeper/tables",
            b"GET http://evil.example/sleeper/tables",
        ],
    )
    def test_with_tricks_in_their_path_are_refused(self, instance, request_line):
        """400 to 405, never a file or a 500."""
        with running_server(make_app(instance)) as url, connected(url) as opened:
            opened.sendall(
                request_line + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )
            answer = all_of(opened)

        assert int(answer.split(b" ", 2)[1]) in {400, 403, 404, 405}, answer[:300]

    @pytest.mark.parametrize(
        "headers",
        [
            b"Host: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
            b"Host: localhost\r\nContent-Length: 5\r\nContent-Length: 6",
            b"Host: localhost\r\nContent-Length: -1",
            b"Host: localhost\r\nHost: evil.example",
            b"Host: localhost\r\n Folded: x",
            b"",
        ],
    )
    def test_with_tricks_in_their_headers_are_refused(self, instance, headers):
        """What two servers may read differently is no request."""
        head = b"POST /sleeper/tables/t/count HTTP/1.1\r\nConnection: close\r\n"
        with running_server(make_app(instance)) as url, connected(url) as opened:
            opened.sendall(head + headers + b"\r\n\r\n0\r\n\r\n")
            answer = all_of(opened)

        assert int(answer.split(b" ", 2)[1]) in {400, 403}, answer[:300]

    @pytest.mark.parametrize(
        "begun",
        [b"", b"GET /sleeper/health HTTP/1.1\r\nHost: localhost\r\nX: ", b"whole"],
        ids=["silent", "half", "kept alive"],
    )
    def test_of_many_idle_connections_keep_nobody_out(self, instance, begun):
        """However many wait for a request, who sends one at once is answered."""
        whole = b"GET /sleeper/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with running_server(make_app(instance)) as url, ExitStack() as stack:
            for _ in range(300):
                opened = stack.enter_context(connected(url))
                opened.sendall(whole if begun == b"whole" else begun)
                if begun == b"whole":
                    assert b"200 OK" in opened.recv(1 << 16)

            answers = {
                httpx.get(f"{url}/sleeper/health", timeout=PATIENCE_S).status_code for _ in range(5)
            }

        assert answers == {200}

    @pytest.mark.parametrize(
        ("head", "status", "words"),
        [
            (b"X: " + b"a" * 65_536, 431, b"headers"),
            (b"\r\n".join(b"X%d: 1" % n for n in range(150)), 431, b"headers"),
            (b"Transfer-Encoding: chunked\r\nContent-Length: 3", 400, b"not both"),
            (b"Content-Length: 0\r\nTransfer-Encoding: chunked", 400, b"not both"),
        ],
        ids=["long", "many", "both", "both, turned"],
    )
    def test_with_large_or_double_headers_are_refused(self, instance, head, status, words):
        """A problem says why, also where all came at once."""
        with running_server(make_app(instance)) as url, connected(url) as opened:
            opened.sendall(
                b"GET /sleeper/health HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n0\r\n\r\n" % head
            )
            answer = all_of(opened)

        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert words in answer
        assert answer.count(b"HTTP/1.1") == 1

    def test_with_a_long_address_are_refused(self, instance):
        """32 KiB of path and query."""
        with running_server(make_app(instance)) as url:
            answer = httpx.get(
                f"{url}/sleeper/tables", params={"x": "a" * 40_000}, timeout=PATIENCE_S
            )

        assert answer.status_code == 414


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificate")
    made = [folder / "server.pem", folder / "server.key"]
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-out", str(made[0]), "-keyout", str(made[1])),
        ],
        check=True,
        capture_output=True,
    )
    return made


def test_a_server_that_ends_waits_for_its_threads_but_not_for_ever(monkeypatch):
    """Python crashes if they come back from native code while it ends."""
    mine = "answer of this test"  # threads of servers of other tests may rest in this process
    assert mine.startswith(server._THREADS)
    monkeypatch.setattr(server, "_THREADS", mine)
    go_on = threading.Event()
    working = threading.Thread(target=go_on.wait, args=(20,), name=mine, daemon=True)
    working.start()

    assert not threads_end(0.1)
    threading.Timer(0.1, go_on.set).start()
    assert threads_end(10)
    assert not working.is_alive()


class TestCertificates:
    """`--certificate` and `--key`."""

    def test_serve_by_tls(self, instance, certificate, monkeypatch):
        """A client that trusts the certificate is served, and no other."""
        instance.table("t").ingest([{"id": 1, "n": 2}])
        options = {"certificate": certificate[0], "key": certificate[1]}
        with running_server(make_app(instance), **options) as url:
            with (
                sleeper.connect(url, token=None) as distrusting,
                pytest.raises(StorageFailed, match=r"certificate.*Set SSL_CERT_FILE to"),
            ):
                distrusting.tables()
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
            with sleeper.connect(url, token=None) as remote:
                assert remote.table("t").query(key=1).to_pylist() == [{"id": 1, "n": 2}]

    def test_that_are_none_are_refused(self, instance, tmp_path):
        """Before the server listens."""
        wrong = tmp_path / "wrong.pem"
        wrong.write_text("no certificate")

        with (
            pytest.raises(BadRequest, match=r"wrong\.pem"),
            running_server(make_app(instance), certificate=wrong),
        ):
            pass


class TestListening:
    """Where a server may listen."""

    @pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "::", "example.org"])
    def test_others_need_tokens(self, host):
        """Without a token everybody could do everything."""
        with pytest.raises(BadRequest, match="--tokens FILE"):
            Listening(host=host, port=1).check(with_tokens=False)

    @pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
    def test_this_machine_needs_none(self, host):
        """Loopback addresses."""
        listening = Listening(host=host, port=1)

        listening.check(with_tokens=False)

        assert listening.is_loopback

    def test_tokens_in_the_clear_are_warned_of(self, caplog):
        """Without TLS others may read them."""
        Listening(host="0.0.0.0", port=1).check(with_tokens=True)

        assert "in the clear" in caplog.text

    def test_an_address_in_use_is_refused(self, instance):
        """The message names it."""
        with running_server(make_app(instance)) as url:
            port = urlsplit(url).port
            with pytest.raises(BadRequest, match=f"127.0.0.1:{port}"):
                listening_socket(Listening(host="127.0.0.1", port=port))


class PanicException(BaseException):
    """What Python gets where code in Rust failed that should not."""


@pytest.mark.parametrize("error", [PanicException("unwrap"), TypeError("x")], ids=repr)
def test_any_unexpected_error_is_a_problem_document(instance, monkeypatch, caplog, error):
    """A panic of a native library too, which is no `Exception`; the log has its trace."""

    def fail(*_):
        raise error

    monkeypatch.setattr(sleeper.Instance, "table", fail)
    with running_server(make_app(instance)) as url:
        answer = httpx.get(f"{url}/sleeper/tables/t", timeout=PATIENCE_S)
        again = httpx.get(f"{url}/sleeper/health", timeout=PATIENCE_S)

    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["class"] == "SleeperError"
    assert "unwrap" not in answer.text
    assert error in [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert again.status_code == 200
