"""A REST server on a real socket, in a thread of the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from sleeper.interfaces.rest.request_limits import RequestLimits
from sleeper.interfaces.rest.server import Listening, listening_socket, server_config
from tests.patience import PATIENCE_S


@contextmanager
def running_server(app: FastAPI, **changes) -> Iterator[str]:
    """Serve an application at a free port, and return its URL."""
    listening = Listening(host="127.0.0.1", port=0, **changes)
    with listening_socket(listening) as opened:
        server = uvicorn.Server(server_config(app, listening, RequestLimits()))
        thread = threading.Thread(target=server.run, args=([opened],), daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        try:
            scheme = "https" if listening.certificate else "http"
            yield f"{scheme}://127.0.0.1:{opened.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
