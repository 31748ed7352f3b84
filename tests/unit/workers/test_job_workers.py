"""Every queue has a kind of worker that takes its messages."""

from __future__ import annotations

from collections import Counter

from sleeper.model.jobs.messages import QueueName
from sleeper.workers.open_worker import WORKER_KINDS, queues_of


def test_each_queue_has_one_kind_of_worker():
    """No message waits for ever, and none is taken by two kinds."""
    taken = Counter(name for kind in WORKER_KINDS for name in queues_of(kind))

    assert taken == Counter(QueueName)
