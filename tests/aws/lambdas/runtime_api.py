"""Lambda's runtime API as a small server, and processes that run functions for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from threading import Thread

_PATH = "/2018-06-01/runtime/"


class RuntimeApi(ThreadingHTTPServer):
    """Hands events to one process of a function, and takes what it answers.

    Attributes:
        taken: Gets the id of each event that a process has taken.
        answers: Gets the id of each event with what became of it: `response`, `error` or `init`,
            and the document.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Answers)
        self.events: Queue = Queue()
        self.taken: Queue = Queue()
        self.answers: Queue = Queue()

    def call(self, request_id, event, *, timeout_s=60.0):
        """Hand out an event."""
        self.events.put((request_id, event, timeout_s))


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RuntimeApi

    def do_GET(self):
        assert self.path == f"{_PATH}invocation/next"
        request_id, event, timeout_s = self.server.events.get()  # as Lambda: until there is one
        body = json.dumps(event).encode()
        self.send_response(200)
        for name, value in {
            "Lambda-Runtime-Aws-Request-Id": request_id,
            "Lambda-Runtime-Deadline-Ms": str(int(1000 * (time.time() + timeout_s))),
            "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:us-east-1:0:function:test",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.server.taken.put(request_id)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        *_, request_id, what = self.path.removeprefix(_PATH).split("/")
        self.server.answers.put((request_id, what, json.loads(body)))
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Say nothing."""


@contextmanager
def runtime_api() -> Iterator[RuntimeApi]:
    """Run the server."""
    server = RuntimeApi()
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def function_process(api: RuntimeApi, handler: str) -> Iterator[subprocess.Popen]:
    """Run a function as the entry point of the image does, and kill its process in the end."""
    environment = {
        **os.environ,
        "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{api.server_address[1]}",
        "AWS_LAMBDA_FUNCTION_NAME": "test",
        "AWS_LAMBDA_FUNCTION_VERSION": "1",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1024",
        "AWS_LAMBDA_LOG_GROUP_NAME": "test",
        "AWS_LAMBDA_LOG_STREAM_NAME": "test",
    }
    command = [
        sys.executable,
        "-m",
        "awslambdaric",
        f"sleeper.interfaces.lambdas.handlers.{handler}",
    ]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
