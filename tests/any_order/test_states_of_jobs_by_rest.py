"""States of jobs in any order of events, asked of a server: its clients, and its page.

The same machine and model as in `test_states_of_jobs.py`. What users do goes through the server,
and what it tells is compared with the model, with what the instance itself tells, and with the
page.
"""

from __future__ import annotations

import html
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

import sleeper
from sleeper.interfaces.page.mount import add_pages
from sleeper.interfaces.remote.http_client import HttpClient
from sleeper.interfaces.remote.remote_jobs import RemoteJobs
from sleeper.interfaces.rest.app import make_app
from sleeper.model.jobs.kinds import JobKind
from tests.any_order.test_states_of_jobs import StatesOfJobs, id_of
from tests.patience import PATIENCE_S
from tests.soak import tries
from tests.unit.interfaces.rest.running_server import running_server

_LINE = re.compile(
    r'<tr><th scope="row"><code>(.*?)</code>.*?<td data-name="Table">(?:<a [^>]*>)?(.*?)(?:</a>)?'
    r'</td><td data-name="State"><span[^>]*>(.*?)</span>'
)


class ServedNow:
    """The instance of the example that runs now, behind one server for all."""

    def __init__(self) -> None:
        self.example: StatesOfJobs | None = None
        self.before = sleeper.connect("memory://")

    @property
    def jobs(self) -> Any:
        """Its jobs."""
        return self.before.jobs if self.example is None else self.example.jobs

    def __getattr__(self, name: str) -> Any:
        return getattr(self.before if self.example is None else self.example.instance, name)


class StatesOfJobsByRest(StatesOfJobs):
    """Users are clients of a server; workers are not."""

    served: ClassVar[ServedNow]
    url: ClassVar[str]
    http: ClassVar[HttpClient]
    base: ClassVar[Path]

    def new_folder(self) -> Path:
        """Return a folder that the server takes files from."""
        return Path(tempfile.mkdtemp(dir=self.base))

    def client_of_jobs(self) -> Any:
        """Let the server serve this example."""
        self.served.example = self
        return RemoteJobs(self.http)

    def check_views(self, kind: JobKind, listed: Mapping[tuple[str, str], Any]) -> None:
        """The instance tells the same, and so does the page."""
        jobs = self.jobs
        itself = jobs.list(kind=kind) if kind is JobKind.INGEST else jobs.queries(kind=kind)
        assert {(each.table_id, id_of(each)): each for each in itself} == listed
        names = {record.table_id: record.name for record in self.instance.tables()}
        page = httpx.get(f"{self.url}/page/jobs", params={"kind": kind.value}, timeout=PATIENCE_S)
        assert page.status_code == 200
        shown = {tuple(map(html.unescape, line)) for line in _LINE.findall(page.text)}
        assert shown == {
            (id_of(each), names.get(table_id, table_id), state_shown(each))
            for (table_id, _), each in listed.items()
        }


def state_shown(status: Any) -> str:
    """Return a state as the page shows it."""
    return status.state.value.replace("_", " ").lower()


@pytest.fixture
def served():
    """One server, for all examples."""
    served = ServedNow()
    base = Path(tempfile.mkdtemp())
    app = make_app(served, input_folder=base)
    add_pages(app)
    with running_server(app) as url:
        StatesOfJobsByRest.served, StatesOfJobsByRest.url = served, url
        StatesOfJobsByRest.base, StatesOfJobsByRest.http = base, HttpClient(url, None)
        yield
        StatesOfJobsByRest.http.close()
    shutil.rmtree(base)


@pytest.mark.soak
def test_a_server_tells_each_state_in_any_order(served):
    """Given any order of steps, then client, page and instance tell what the model says (TRK-9)."""
    run_state_machine_as_test(
        StatesOfJobsByRest,
        settings=settings(
            max_examples=tries(2, soak=200),
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=[*HealthCheck],
        ),
    )
