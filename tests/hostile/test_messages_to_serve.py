"""`sleeper serve` goes on whatever its queues get, and answers each message."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.model.jobs.events import JobEventType
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.model.jobs.messages import NewMessage
from sleeper.model.jobs.query_statuses import QueryState
from sleeper.model.jobs.statuses import JobState
from tests.any_order.killed_serve.served import Served
from tests.patience import becomes_true
from tests.soak import FIRST_SEED, tries
from tests.stories.test_malformed_messages import (
    KEYS,
    KINDS,
    SCHEMA,
    answers,
    malformed,
    message_of,
    spoilt,
)

COUNT = tries(6, soak=500)  # of each of eleven kinds
UNCOUNTED = ("batcher", "commit")  # these have no run of their own
PROPERTIES = {
    "sleeper.jobs.receives.max": 2,
    "sleeper.jobs.retry.first.seconds": 0,
    "sleeper.ingest.job.queue.wait.time": 1,
}
ROW = {"day": 20_000, "at": 0, "code": b"a", "name": "a", "number": 7, "value": 0.5}


@pytest.mark.soak
def test_serve_goes_on_whatever_messages_come(tmp_path: Path) -> None:
    """
    Given messages of every kind, each wrong in one place or damaged at random, and good jobs of
    another table behind them, when a serve runs them, then every message is answered, the good jobs
    have run, each dead letter has a reason, and serve ends when it is asked, without an error that
    nobody expected.
    """
    draw, sent = random.Random(FIRST_SEED), Counter[JobKind]()
    path, log = str(tmp_path / "a.parquet"), tmp_path / "serve.log"
    pq.write_table(pa.Table.from_pylist([ROW], SCHEMA), path)
    with sleeper.create_instance(tmp_path / "instance", PROPERTIES) as instance:
        instance.create_table("t", SCHEMA, row_keys=KEYS)
        instance.create_table("good", SCHEMA, row_keys=KEYS)
        jobs = instance.jobs
        for kind, (queue, of_kind) in KINDS.items():
            message = message_of(kind, path, instance)
            bodies = [draw.choice(malformed(message)) for _ in range(COUNT // 2)]
            bodies += [spoilt(json.dumps(message), draw) for _ in range(COUNT - COUNT // 2)]
            for body in bodies:
                if queue is QueueName.COMMIT:
                    jobs.stores.queue(queue).send([NewMessage(body=body, group="g")])
                else:
                    jobs.send(queue, body)
            sent[of_kind] += 0 if kind in UNCOUNTED else len(bodies)
        good = {
            "ingest": jobs.submit_ingest("good", path, "good"),
            "query": jobs.submit_query("good"),
            "export": jobs.submit_export("good"),
        }

        served = Served(instance.url, log)
        try:
            assert becomes_true(
                lambda: not any(each.ready + each.hidden for each in jobs.queue_depths().values())
            )
            code = served.ask_to_end()
        finally:
            served.clean_up()

        assert code == 0
        assert jobs.job("good").state is JobState.FINISHED
        for kind in ("query", "export"):
            assert jobs.query(good[kind], kind=kind).state is QueryState.COMPLETED
        told = {kind: answers(instance, kind) for kind in sent}
        assert {kind: len(told[kind]) >= count for kind, count in sent.items()} == dict.fromkeys(
            sent, True
        )
        dead = [each for name in QueueName for each in jobs.stores.queue(name).dead_letters(10_000)]
        assert all(letter.reason for letter in dead)
    assert "Traceback" not in log.read_text()
    ends = Counter(event.type for events in told.values() for event in events)
    assert ends[JobEventType.REJECTED]
    print(  # noqa: T201 - pytest -rP shows how much was tried
        f"{COUNT * len(KINDS)} messages of {len(KINDS)} kinds, seed {FIRST_SEED}: "
        f"{ {str(kind): count for kind, count in ends.items()} }, {len(dead)} dead letters"
    )
