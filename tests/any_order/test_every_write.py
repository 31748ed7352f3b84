"""The reply to each write request of each operation gets lost, once, on each kind of storage.

A proxy, or objects that fail on request, count the writes of an operation. Then it is run again
for each of them, with the reply to that one lost: the storage has done it, and does not say so.
Either client repeats the request and must know what is its own, or Sleeper finds out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import (
    CommitRefused,
    CommitUnknown,
    SleeperError,
    SplitInvalid,
    StorageFailed,
    TableAlreadyExists,
    TableNotFound,
)
from sleeper.instance.instance import Instance
from sleeper.model.partitions import split_partition
from sleeper.state.state_store import StateStore
from sleeper.state.transactions.files import AddFiles
from sleeper.state.transactions.partitions import SplitPartition
from sleeper.storage.aws import clients
from sleeper.storage.local.folder import FolderObjects
from sleeper.storage.memory import MemoryObjects
from tests.any_order.faults import Fault, Faults, FaultyObjects
from tests.any_order.whole_instance import NOON, as_tuples, counted_ids, multiset, open_instance
from tests.contracts.fault_proxy import FaultProxy, fault_proxy
from tests.contracts.s3_server import REGION, s3_credentials, s3_server
from tests.soak import SOAK, some

__all__ = ["s3_credentials", "s3_server"]

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
OLD = pa.table({"k": [1, 11, 12], "v": ["a", "b", "c"]}, schema=SCHEMA)
NEW = pa.table({"k": [12, 2, 1, 30], "v": ["d", "e", "f", None]}, schema=SCHEMA)
CLASS_NAME = "sleeper.table.statestore.classname"
BATCH = "sleeper.table.compaction.files.batch.size"
WRITES = ("create", "put", "close", "delete")
DYNAMO_READS = ("GetItem", "Query", "Scan", "BatchGetItem", "Describe", "List")


# ---------------------------------------------------------------- operations


@dataclass(frozen=True)
class Operation:
    """Something that a process does to a table.

    Attributes:
        run: Does it.
        prepare: What the table is like before.
        done: What running it once more may say.
        clears_up: Whether a failure may be told of a change that has happened, because something
            is deleted after it. To run it again is safe, and may commit again.
        in_parts: Whether it is many commits, of which some may be made and others not.
    """

    name: str
    run: Callable[[Instance, str], Any]
    prepare: Callable[[Instance, str], Any] = lambda instance, name: None
    done: tuple[type[SleeperError], ...] = ()
    clears_up: bool = False
    in_parts: bool = False

    def __str__(self) -> str:
        return self.name


def store_of(instance: Instance, name: str) -> StateStore:
    return instance.table(name)._current().store


def split_the_upper_leaf(instance, name):
    store = store_of(instance, name)
    leaf = store.refresh().tree.leaf_of((15,))
    parent, lower, upper = split_partition(leaf, 20, new_id=instance._context.new_id)
    return store.commit(SplitPartition(parent=parent, children=(lower, upper)))


def create(instance, name, class_name=""):
    """Create a table; another one beside it if it is there."""
    if any(record.name == name for record in instance.tables()):
        name, class_name = f"{name}-2", instance.table(name)._record.properties[CLASS_NAME]
    properties = {CLASS_NAME: class_name}
    instance.create_table(name, SCHEMA, row_keys=["k"], split_points=[10], properties=properties)


def rows_in(instance, name):
    instance.table(name).ingest(OLD, job_id="old")


def rows_twice(instance, name):
    for job_id in ("old", "more"):
        instance.table(name).ingest(OLD, job_id=job_id)


def garbage(instance, name):
    """Files that no partition references."""
    names = tuple(f"data/partition_root/{n}.parquet" for n in range(3))
    for each in names:
        instance.table(name)._current().files.put(each, b"")
    store_of(instance, name).commit(AddFiles(unreferenced=names))


OPERATIONS = (
    Operation("create", create, done=(TableAlreadyExists,)),
    Operation("ingest", lambda i, name: i.table(name).ingest(NEW, job_id="job")),
    Operation(
        "compact",
        lambda i, name: i.table(name).compact(all_files=True),
        rows_twice,
        in_parts=True,
    ),
    Operation("split", split_the_upper_leaf, done=(CommitRefused, SplitInvalid)),
    Operation(
        "collect", lambda i, name: i.table(name).collect_garbage(force=True), garbage, (), True
    ),
    Operation("reinitialise", lambda i, name: i.table(name).reinitialise([5]), rows_in, (), True),
    Operation("rename", lambda i, name: i.table(name).rename(f"{name}-2"), done=(TableNotFound,)),
    Operation("set", lambda i, name: i.table(name).set_properties({BATCH: "7"})),
    Operation(
        "delete", lambda i, name: i.delete_table(name), done=(TableNotFound,), clears_up=True
    ),
)


def seen(instance: Instance, name: str) -> dict[str, Any]:
    """All that a user can tell of a table and the one made of it, with the number of commits."""
    told = {}
    for record in instance.tables():
        if record.name not in (name, f"{name}-2"):
            continue
        table = instance.table(record.name)
        state = table.state()
        with table.query() as answer:
            rows = multiset(as_tuples(answer.to_arrow()))
        leaves = [str(leaf.region) for leaf in state.tree.leaves()]
        claims = [each.job_id for each in state.references() if each.job_id]
        waiting = len([*state.files.unreferenced()])
        batch = record.properties.get(BATCH)
        files = (state.number, waiting)
        told[record.name[len(name) :]] = (files, rows, leaves, claims, batch)
    return told


# ---------------------------------------------------------------- kinds of storage


class LosingProxy(FaultProxy):
    """A proxy that counts writes of S3 and DynamoDB, and loses the reply to one of them."""

    lost, how, writes = -1, "lost reply", 0

    def fault_for(self, method, path, operation):
        """Lose the reply, if the request is the chosen write."""
        if operation.startswith(DYNAMO_READS) or (not operation and method in ("GET", "HEAD")):
            return None
        with self._lock:
            number, self.writes = self.writes, self.writes + 1
        return AFTER[self.how] if number == self.lost else None


class _AfterFault:
    stall_s = 0.0

    def __init__(self, kind):
        self.kind = kind


AFTER = {kind: _AfterFault(kind) for kind in ("lost reply", "error after")}


class InObjects:
    """Objects of this machine that lose replies."""

    hows, one_in = ("lost reply",), 1
    class_name = "TransactionLogStateStore"

    def __init__(self, objects):
        self.faults = _LostWrite()
        self.direct = open_instance(objects, counted_ids())
        faulty = FaultyObjects(objects, self.faults)
        self.instance = open_instance(faulty, counted_ids(1_000_000))

    def lose(self, number: int, how: str) -> None:
        """Lose the reply to the write of this number from now on; -1 for none."""
        self.faults.lost, self.faults.writes = number, 0

    @property
    def writes(self) -> int:
        """How many writes there were since then."""
        return self.faults.writes


class _LostWrite(Faults):
    """Faults that count writes alone."""

    lost, writes = -1, 0

    def run(self, name, call):
        if name.startswith(WRITES):
            if self.writes == self.lost:
                self.plan = (Fault(self.calls, "lost"),)
            self.writes += 1
        return super().run(name, call)


class BehindAProxy:
    """A bucket and DynamoDB on a server, behind a proxy that loses replies."""

    hows, one_in = ("lost reply", "error after"), 9

    def __init__(self, server, proxy, class_name):
        self.proxy, self.class_name = proxy, class_name
        url = f"s3://{server.new_bucket()}/instance"
        self.instance = self.direct = sleeper.connect(url, create=True)

    def lose(self, number: int, how: str) -> None:
        """Lose the reply to the write of this number from now on; -1 for none."""
        self.proxy.lost, self.proxy.how, self.proxy.writes = number, how, 0

    @property
    def writes(self) -> int:
        """How many writes there were since then."""
        return self.proxy.writes


BUCKET_CLASSES = (
    "TransactionLogStateStore",
    "DynamoDBTransactionLogStateStore",
    "DynamoDBStateStore",
    "S3StateStore",
)
KINDS = ("memory", "folder", *(BUCKET_CLASSES if SOAK else BUCKET_CLASSES[-2:]))


@pytest.fixture(params=KINDS)
def storage(request, tmp_path, monkeypatch):
    """Each kind of storage."""
    if request.param in ("memory", "folder"):
        is_folder = request.param == "folder"
        yield InObjects(FolderObjects(tmp_path) if is_folder else MemoryObjects(lambda: NOON))
        return
    server = request.getfixturevalue("s3_server")
    request.getfixturevalue("s3_credentials")
    with ExitStack() as stack:
        proxy = stack.enter_context(fault_proxy(server.endpoint, LosingProxy))
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        monkeypatch.setenv("AWS_REGION", REGION)
        monkeypatch.setattr(clients, "_clients", {})
        yield BehindAProxy(server, proxy, request.param)


# ---------------------------------------------------------------- the test


NUMBERS = count()


def prepared(storage, operation):
    """Make a table, and what the operation needs; return its name."""
    name = f"t{next(NUMBERS)}"
    create(storage.direct, name, storage.class_name)
    operation.prepare(storage.direct, name)
    return name


def run(storage, operation, name, lost=-1, how=""):
    """Run an operation with the reply to one write lost; return the writes, and how it failed."""
    storage.instance.tables()
    storage.lose(lost, how)
    try:
        operation.run(storage.instance, name)
    except SleeperError as failure:
        error = failure
    else:
        error = None
    writes = storage.writes
    storage.lose(-1, "")
    return writes, error


def check_told_truly(storage, operation, name, error, old, new):
    """What is there is the old or the new, as the process was told; then the new, exactly once."""
    now = seen(storage.direct, name)
    if operation.in_parts:
        assert without_files(now) == without_files(old) == without_files(new)
    else:
        assert now in (old, new), "neither wholly there nor wholly absent"
    if error is None:
        assert now == new or operation.in_parts, "an acknowledged change was lost"
    elif not isinstance(error, CommitUnknown):
        assert isinstance(error, StorageFailed), error
        assert operation.clears_up or now == old, "told that nothing was done, and something was"
    try:
        operation.run(storage.direct, name)
    except operation.done:
        assert now == new
    again = seen(storage.direct, name)
    assert without_files(again) == without_files(new)
    may_repeat = operation.clears_up or operation.in_parts
    assert may_repeat or again == new, "it was committed twice"


def without_files(told):
    return {name: rest for name, (_, *rest) in told.items()}


@pytest.mark.soak
@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_a_lost_reply_to_any_write_neither_loses_nor_doubles_a_change(storage, operation):
    """Given an operation, when the reply to one of its writes is lost, then it is done once."""
    name = prepared(storage, operation)
    old = seen(storage.direct, name)
    writes, error = run(storage, operation, name)
    assert error is None
    new = seen(storage.direct, name)
    cases = [(number, how) for how in storage.hows for number in range(writes)]

    for number, how in some(cases, one_in=storage.one_in):
        name = prepared(storage, operation)
        _, error = run(storage, operation, name, number, how)
        check_told_truly(storage, operation, name, error, old, new)

    assert writes >= 1
