"""A stack of CloudFormation that has asked for properties, and waits for the answer."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Waiting(ThreadingHTTPServer):
    """Where CloudFormation waits for an answer: takes what is put, after some refusals."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answers)
        self.answers = []
        self.refusals = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/answer?signature=a%2Fb"


class Answers(BaseHTTPRequestHandler):
    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = 503 if self.server.refusals else 200
        if self.server.refusals:
            self.server.refusals -= 1
        else:
            self.server.answers.append((self.path, self.headers["Content-Type"], json.loads(body)))
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def stack():
    """A stack that waits for answers."""
    with Waiting() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def request(stack, kind, after, before=None):
    """What CloudFormation calls the function with, for the properties of templates."""
    resource = {"ServiceToken": "arn:aws:lambda:x", "ServiceTimeout": "600"}
    event = {
        "RequestType": kind,
        "RequestId": "r-1",
        "StackId": "arn:aws:cloudformation:x",
        "ResponseURL": stack.url,
        "ResourceType": "Custom::SleeperProperties",
        "LogicalResourceId": "properties",
        "ResourceProperties": {**resource, "Properties": after},
    }
    if kind != "Create":
        event["PhysicalResourceId"] = "properties"
    if before is not None:
        event["OldResourceProperties"] = {**resource, "Properties": before}
    return event
