"""What serve tells a monitoring system over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

import sleeper
from sleeper.errors import StorageFailed
from sleeper.services.serving.metrics import Metrics, MetricsServer
from sleeper.services.serving.worker_fleet import WorkerFleet


def no_worker(kind):
    raise OSError(f"no {kind}")


@pytest.fixture
def fleet():
    """A fleet with a message that no worker can be started for."""
    return WorkerFleet(
        start=no_worker, ready=lambda _: 1, workers_max={"ingest": 2}, ticks_s=lambda: 100.0
    )


@pytest.fixture
def jobs():
    """Jobs of an instance with one message."""
    jobs = sleeper.connect("memory://").jobs
    jobs.send("ingest", "{}")
    return jobs


@pytest.fixture
def ask(jobs, fleet):
    """Ask the server for a path; return status and text."""
    with MetricsServer(Metrics(lambda: jobs, fleet), "127.0.0.1", 0) as server:

        def ask(path):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}") as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        yield ask


def test_queues_and_workers_are_told_as_prometheus_reads_them(ask):
    """Each figure has its help and type, and labels."""
    status, text = ask("/metrics")

    assert status == 200
    assert '\nsleeper_queue_messages_ready{queue="ingest"} 1\n' in text
    assert '\nsleeper_queue_dead_letters{queue="ingest"} 0\n' in text
    assert '\nsleeper_workers{kind="ingest"} 0\n' in text
    assert text.startswith("# HELP sleeper_queue_messages_ready Messages that wait for a worker.\n")


def test_it_is_healthy_until_something_cannot_work(ask, fleet, jobs, monkeypatch):
    """503 comes with every reason."""
    assert ask("/healthz") == (200, json.dumps({"healthy": True, "reasons": []}))

    for _ in range(3):
        fleet.look()
    monkeypatch.setattr(
        type(jobs), "queue_depths", lambda _: (_ for _ in ()).throw(StorageFailed("disk full"))
    )
    status, text = ask("/healthz")

    assert status == 503
    assert json.loads(text)["reasons"] == [
        "ingest workers keep failing, and none is started for a while",
        "the queues cannot be read: disk full",
    ]
    assert ask("/metrics") == (503, "disk full\n")
    assert ask("/secrets")[0] == 404
