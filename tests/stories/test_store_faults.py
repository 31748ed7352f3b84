"""Writers and maintenance on a store with one fault after the other: nothing lost, nothing twice.

Each writer is a thread with a handle of its own behind the fault proxy. It repeats a job by its id
until it is acknowledged, as a service does. In the end the table is compared with what was
acknowledged, through a connection without faults. `make soak` does far more of it and prints how
many jobs were acknowledged, lost and doubled under which fault.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event, Lock

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import SleeperError
from tests.contracts.fault_proxy import FaultProxy, fault_proxy
from tests.contracts.s3_server import bucket, s3_credentials, s3_server
from tests.soak import SOAK, tries

__all__ = ["bucket", "s3_credentials", "s3_server"]

SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("n", pa.int64())])
PROPERTIES = {"sleeper.table.compaction.files.batch.size": "4"}
WRITERS = tries(2, soak=4)
JOBS = tries(1, soak=25)  # of each writer under each fault
ROWS = 20
REPEATS = 20

COMMITS = {"methods": ("PUT",), "path_holds": "statestore/transactions"}
WRITES = {"methods": ("PUT", "POST", "DELETE")}
FAULTS = {
    "no fault": (),
    "lost commits": (("lost reply", {"share": 0.5, **COMMITS}),),
    "lost replies": (("lost reply", {"share": 0.15, **WRITES}),),
    "resets before": (("reset before", {"share": 0.08}),),
    "resets midway": (("reset mid", {"share": 0.08, **WRITES}),),
    "overload": (("slow down", {"share": 0.4}),),
    "stalls": (("stall", {"share": 0.03, "stall_s": 0.5}),),
    "all of them": (
        ("lost reply", {"share": 0.05}),
        ("reset before", {"share": 0.03}),
        ("reset mid", {"share": 0.03, **WRITES}),
        ("slow down", {"share": 0.05}),
    ),
}


@dataclass
class Figures:
    """What happened under one fault."""

    acknowledged: int = 0
    given_up: int = 0
    repeated: int = 0
    injected: int = 0
    requests: int = 0


@dataclass
class Run:
    """What all writers have done so far, by fault."""

    url: str
    figures: dict[str, Figures] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)
    errors: Counter[str] = field(default_factory=Counter)
    lock: Lock = field(default_factory=Lock)

    def write(self, fault: str, writer: int) -> None:
        """Do the jobs of one writer under one fault, each until it is acknowledged."""
        table = sleeper.connect(self.url).table("t")
        for number in range(JOBS):
            self._do_job(table, fault, f"{fault}:{writer}:{number}")

    def _do_job(self, table: sleeper.Table, fault: str, job: str) -> None:
        rows = pa.table({"id": [f"{job}/{n}" for n in range(ROWS)], "n": range(ROWS)}, SCHEMA)
        for _ in range(REPEATS):
            try:
                table.ingest(rows, job_id=job)
            except SleeperError as error:
                if not error.retryable:
                    raise
                with self.lock:
                    self.errors[type(error).__name__] += 1
                    self.figures[fault].repeated += 1
            else:
                with self.lock:
                    self.acknowledged.add(job)
                    self.figures[fault].acknowledged += 1
                return
        with self.lock:
            self.given_up.add(job)
            self.figures[fault].given_up += 1

    def maintain(self, stop: Event) -> None:
        """Compact and collect garbage, round after round, whatever fails."""
        while not stop.is_set():
            try:
                table = sleeper.connect(self.url).table("t")
                table.compact()
                table.collect_garbage()
            except SleeperError as error:
                with self.lock:
                    self.errors[f"maintenance: {type(error).__name__}"] += 1
            stop.wait(0.2)


def go_through(run: Run, proxy: FaultProxy) -> None:
    """Have writers and maintenance work under one fault after the other."""
    stop = Event()
    with ThreadPoolExecutor(WRITERS + 1) as threads:
        maintenance = threads.submit(run.maintain, stop)
        try:
            for fault, injections in FAULTS.items():
                figures = run.figures[fault] = Figures()
                proxy.forget()
                for kind, options in injections:
                    proxy.inject(kind, **options)
                for writer in [threads.submit(run.write, fault, n) for n in range(WRITERS)]:
                    writer.result()
                figures.injected = proxy.seen.injected.total()
                figures.requests = len(proxy.seen.requests)
                proxy.clear()
        finally:
            stop.set()
        maintenance.result()


@pytest.mark.soak
def test_no_fault_of_a_store_loses_or_doubles_a_row(s3_server, bucket, monkeypatch):
    """
    Lost replies, resets, 503s, stalls and all of them at once. A job that was never acknowledged
    is in the table whole or not at all.
    """
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    run = Run(f"s3://{bucket}/instance")
    instance = sleeper.connect(run.url, create=True)
    instance.create_table("t", SCHEMA, row_keys=["id"], properties=PROPERTIES)

    with fault_proxy(s3_server.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        go_through(run, proxy)
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)

    found = sleeper.connect(run.url).table("t").query(columns=["id"]).to_arrow()["id"].to_pylist()
    by_row = Counter(found)
    by_job = Counter(name.partition("/")[0] for name in by_row)
    lost = sorted(job for job in run.acknowledged if by_job[job] < ROWS)
    doubled = sorted(name for name, count in by_row.items() if count > 1)
    told = {name: vars(figures) for name, figures in run.figures.items()}
    summary = {"lost jobs": len(lost), "doubled rows": len(doubled), "errors": dict(run.errors)}
    sys.stdout.write(json.dumps({**told, **summary}, indent=1))  # `make soak` shows it
    assert (lost, doubled) == ([], [])
    assert all(by_job[job] in (0, ROWS) for job in run.given_up)
    assert set(by_job) <= run.acknowledged | run.given_up
    assert len(run.acknowledged) >= WRITERS * JOBS * len(FAULTS) * 0.9
    injected = [name for name, figures in run.figures.items() if figures.injected]
    assert len(injected) == len(FAULTS) - 1 or not SOAK
