"""Stores of revisions for tests: objects and requests are counted, and may meet faults."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from sleeper.errors import StorageFailed
from sleeper.state.revision_store import RevisionStateStore
from sleeper.state.transactions.files import AddFiles
from sleeper.state.transactions.partitions import InitialisePartitions
from sleeper.storage.aws.dynamo_tables import DynamoTables
from sleeper.storage.aws.state.s3_revisions import S3StateRevisions
from sleeper.storage.memory import MemoryObjects
from tests.contracts.servers.dynamo import dynamo_client, new_id, pause
from tests.unit.state.small_tables import ROOT, SCHEMA, ref

SHARED = f"sleeper-{new_id()}-"
"""A prefix of all tests: a DynamoDB table is made once."""

FIRST = InitialisePartitions(partitions=(ROOT,))


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.time = datetime.now(UTC)

    def __call__(self):
        return self.time


class Requests:
    """A client of DynamoDB of its own, whose requests are counted; `meet` may answer instead.

    `meet` is called with the operation, its number from 1, and the request.
    """

    def __init__(self, endpoint, attempts=1):
        self.client = dynamo_client(endpoint, attempts)
        self.seen = Counter()
        self.meet = lambda operation, number, request: None
        self.client.meta.events.register("before-send.dynamodb", self._send)

    def _send(self, request, event_name, **_):
        operation = event_name.rpartition(".")[2]
        self.seen[operation] += 1
        return self.meet(operation, self.seen[operation], request)


class CountedObjects(MemoryObjects):
    """Objects in memory that count calls; `meet` may fail them, before or after they are done.

    `meet` is called with the moment, the operation and the key.
    """

    def __init__(self, now):
        super().__init__(now)
        self.seen = Counter()
        self.meet = lambda moment, operation, key: None

    def put(self, key, body):
        self._call("put", key, lambda: super(CountedObjects, self).put(key, body))

    def read(self, key):
        return self._call("read", key, lambda: super(CountedObjects, self).read(key))

    def delete(self, keys):
        listed = [*keys]
        self._call("delete", listed[0], lambda: super(CountedObjects, self).delete(listed))

    def _call(self, operation, key, do):
        self.seen[operation] += 1
        self.meet("before", operation, key)
        found = do()
        self.meet("after", operation, key)
        return found

    def stored(self):
        """Return the keys of all parts, sorted."""
        return sorted(info.key for info in self.listing("statestore/"))


class World:
    """One table whose state is in revisions; any number of processes open it."""

    def __init__(self, endpoint, prefix=SHARED):
        self.endpoint, self.prefix, self.table_id = endpoint, prefix, new_id()
        self.clock = Clock()
        self.objects = CountedObjects(self.clock)
        self.requests = Requests(endpoint)

    def store(self, *, requests=None, objects=None, table_id=None, is_new=False, **options):
        """Open the table in another process; it must be there, unless it is new."""
        requests = requests or self.requests
        tables = DynamoTables(
            lambda: requests.client, self.prefix, pause=options.pop("pauses", pause), new_id=new_id
        )
        revisions = S3StateRevisions(
            tables, table_id or self.table_id, objects or self.objects, SCHEMA, is_new=is_new
        )
        return RevisionStateStore(
            revisions,
            SCHEMA,
            storage_time=self.clock,
            ticks_s=lambda: 0.0,
            new_id=new_id,
            pause=lambda attempt: None,
            **options,
        )

    def new_store(self, **options):
        """Open the table, and initialise its partitions."""
        store = self.store(is_new=True, **options)
        store.commit(FIRST)
        return store

    def asked(self, do):
        """Return the requests that a call makes, and its result."""
        self.requests.seen, self.objects.seen = Counter(), Counter()
        result = do()
        return dict(self.requests.seen) | dict(self.objects.seen), result


def add(*names, partition_id="root"):
    """Return a commit of files."""
    return AddFiles(references=tuple(ref(name, partition_id) for name in names))


def names(state):
    """Return the names of a state's files."""
    return [each.filename for each in state.references()]


def no_answer(*_):
    """Fail as a storage that does not answer."""
    raise StorageFailed("no answer")
