"""Logs in DynamoDB for tests, with clients whose requests are seen, and may be met by faults."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime

from sleeper.state.log_store import SnapshotRule, TransactionLogStateStore
from sleeper.state.transactions.files import AddFiles
from sleeper.state.transactions.partitions import InitialisePartitions
from sleeper.storage.aws.dynamo_tables import DynamoTables
from sleeper.storage.aws.state.dynamo_log import DynamoTransactionLog
from sleeper.storage.snapshots import ObjectSnapshotStore
from tests.contracts.servers.dynamo import dynamo_client, new_id, pause
from tests.unit.state.small_tables import ROOT, SCHEMA, ref

FIRST = InitialisePartitions(partitions=(ROOT,))


def real_time():
    return datetime.now(UTC)


def log_of(tables, objects, *, is_new=True, now=real_time, table_id="flights"):
    return DynamoTransactionLog(tables, table_id, objects, now=now, new_id=new_id, is_new=is_new)


def tables_of(client, prefix, pauses=pause):
    return DynamoTables(lambda: client, prefix, pause=pauses, new_id=new_id)


def store_on(log, objects, rule=None, attempts=10):
    return TransactionLogStateStore(
        log,
        ObjectSnapshotStore(objects),
        SCHEMA,
        now=real_time,
        new_id=new_id,
        pause=pause,
        snapshot_rule=rule or SnapshotRule(entries_min=1000),
        attempts=attempts,
    )


def add_file():
    return AddFiles(references=(ref(f"file-{new_id()}"),))


class Watched:
    """A client of its own, whose requests are counted; `meet` may answer them instead.

    Attributes:
        client: The client. It sends each request once, unless `attempts` says more.
        seen: How many requests of each operation were sent.
        reads: The bodies of its reads.
        meet: Called with the operation, its number from 1, and the request; an answer of its own
            goes back to the caller, None lets the request through.
    """

    def __init__(self, endpoint, attempts=1):
        self.client = dynamo_client(endpoint, attempts)
        self.seen, self.reads = Counter(), []
        self.meet = lambda operation, number, request: None
        self.client.meta.events.register("before-send.dynamodb", self._send)

    def _send(self, request, event_name, **_):
        operation = event_name.rpartition(".")[2]
        self.seen[operation] += 1
        if operation in ("GetItem", "Query", "Scan", "BatchGetItem"):
            self.reads.append(json.loads(request.body))
        return self.meet(operation, self.seen[operation], request)

    def requests(self):
        """Return what was sent since the last call."""
        seen, self.seen = self.seen, Counter()
        return dict(seen)
