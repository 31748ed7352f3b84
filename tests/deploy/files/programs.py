"""Runs what images and units run, as another user who may read everything and write nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
"""How long a program may take; much longer than it does, for a machine may have much to do."""
USER = 12345
"""An id that no user of this machine has."""
HEADERS = {
    "Aws-Request-Id": "request-1",
    "Deadline-Ms": "9999999999999",
    "Invoked-Function-Arn": "arn:aws:lambda:eu-west-2:123456789012:function:tried",
    "Trace-Id": "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700",
}


def as_other_user(command: Sequence[str]) -> list[str]:
    """Return a command that runs as another user, where that is possible: by root on Linux.

    It may read what belongs to root, for this machine's Python may lie in root's home.
    """
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return [*command]
    ids = [f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"]
    reads = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    return ["setpriv", *ids, *reads, *command]


def give(folder: Path) -> Path:
    """Make a folder that the other user may write to, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        os.chown(folder, USER, USER)
    return folder


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    *,
    max_s: float = PATIENCE_S,
) -> subprocess.CompletedProcess[str]:
    """Run a command as the other user, with these variables alone."""
    return subprocess.run(
        as_other_user(command),
        env=dict(environment),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=max_s,
        check=False,
    )


@contextmanager
def lambda_runtime(event: Any) -> Iterator[tuple[str, list[Any]]]:
    """Answer as the service does that a lambda's process asks for events: one event, then none.

    Yields the address, and the list to which the lambda's answer is added.
    """
    answers: list[Any] = []
    asked = threading.Semaphore(1)
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            if not asked.acquire(blocking=False):
                ended.wait(PATIENCE_S)
            self._reply(json.dumps(event).encode())

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answers.append({"path": self.path, "body": json.loads(body)})
            self._reply(b"{}", 202)

        def _reply(self, body, status=200):
            self.send_response(status)
            for name, value in HEADERS.items():
                self.send_header(f"Lambda-Runtime-{name}", value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", answers
    finally:
        ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
