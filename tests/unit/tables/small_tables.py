"""A table on memory adapters, with a clock that stands still and ids that count."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from types import MappingProxyType
from typing import Any

from sleeper.engine.reading.read_leaves import open_table_reader
from sleeper.model.known_properties.typed import InstanceProperties, TableProperties
from sleeper.model.partitions import split_partition
from sleeper.model.processing import Processing
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.model.tables import SCHEMA, TableRecord
from sleeper.ports.table_index import TableIndex
from sleeper.state.log_store import TransactionLogStateStore
from sleeper.state.transactions.partitions import SplitPartition
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.places import Place
from sleeper.storage.snapshots import ObjectSnapshotStore
from sleeper.storage.table_index import object_table_index
from sleeper.storage.transaction_log import ObjectTransactionLog
from sleeper.tables.create import add_table
from sleeper.tables.ingest import IngestResult, ingest
from sleeper.tables.instance_context import InstanceContext
from sleeper.tables.open_table import LooksTogether, OpenTable
from tests.simulated_process import simulated_process

ORPHAN_AGE = timedelta(days=3)
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
PAIRS = Schema(
    row_keys=(Field("a", Primitive.LONG), Field("b", Primitive.STRING)),
    values=(Field("v", Primitive.LONG),),
)


class Counting:
    """Ids `id-1`, `id-2` and so on."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def __call__(self) -> str:
        return f"id-{next(self._numbers)}"


@dataclass
class SmallTable:
    """A table of PAIRS and everything that it stands on."""

    objects: MemoryObjects
    index: TableIndex
    store: TransactionLogStateStore
    record: TableRecord
    new_id: Counting

    @property
    def files(self):
        """The objects in the table's folder."""
        return self.objects.under(self.record.table_id)

    def keys(self) -> set[str]:
        """Every object's key, but for the log and the index."""
        return {info.key for info in self.objects.listing("") if "/data/" in info.key}

    def split(self, leaf_id: str, at: Any, *, dimension: int = 0) -> None:
        """Split a leaf into children `<id>-low` and `<id>-high`."""
        names = iter((f"{leaf_id}-low", f"{leaf_id}-high"))
        leaf = self.store.refresh().tree.partition(leaf_id)
        parent, *children = split_partition(
            leaf, at, new_id=lambda: next(names), dimension=dimension
        )
        self.store.commit(SplitPartition(parent=parent, children=tuple(children)))

    def ingest(
        self,
        rows: Any,
        *,
        one_file_per_leaf: bool = True,
        file_writing: str | None = None,
        **more: Any,
    ) -> IngestResult:
        """Ingest rows, dicts or (a, b) pairs."""
        by_leaf = "one_file_per_leaf" if one_file_per_leaf else "one_reference_per_leaf"
        dicts = [
            row if isinstance(row, dict) else {"a": row[0], "b": row[1], "v": 0} for row in rows
        ]
        properties = {
            "sleeper.table.gc.orphan.age.minutes": str(ORPHAN_AGE // timedelta(minutes=1)),
            "sleeper.table.ingest.file.writing.strategy": file_writing or by_leaf,
        }
        return ingest(self.opened(properties), dicts, **more)

    @property
    def context(self) -> InstanceContext:
        """The context of an instance of these objects, as another process would have it."""
        return context_of(self.objects, self.new_id)

    def opened(self, properties: Mapping[str, str] = MappingProxyType({})) -> OpenTable:
        """What verbs take: this table, as its store and clock are."""
        context = self.context
        known = TableProperties({**self.record.properties, **properties}, context.properties)
        reader = open_table_reader(self.files, PAIRS, Processing(), temp_folder=None, stores=None)
        return OpenTable(
            pid=os.getpid(),
            record=self.record,
            name=self.record.name,
            schema=PAIRS,
            arrow_schema=reader.arrow_schema,
            properties=known,
            files=self.files,
            store=self.store,
            reader=reader,
            open_reader=lambda: reader,
            looks=LooksTogether(),
            context=context,
        )


def context_of(objects: MemoryObjects, new_id: Counting) -> InstanceContext:
    """The context of an instance of some objects, on a clock that stands still."""
    return InstanceContext(
        InstanceProperties({"sleeper.id": "small"}),
        place=Place("memory://", objects),
        process=simulated_process(now=lambda: NOON, new_id=new_id),
        reopen=(object, ()),
    )


def store_of(
    objects: MemoryObjects,
    table_id: str,
    new_id: Counting,
    now: Callable[[], datetime] = lambda: NOON,
) -> TransactionLogStateStore:
    """A state store of its own on a table's log, as another process would have."""
    files = objects.under(table_id)
    return TransactionLogStateStore(
        ObjectTransactionLog(files),
        ObjectSnapshotStore(files),
        PAIRS,
        now=now,
        new_id=new_id,
        pause=lambda _: None,
    )


def small_table(
    split_points=(),
    *,
    name="pairs",
    table_id="t1",
    beside: SmallTable | None = None,
    now: Callable[[], datetime] = lambda: NOON,
):
    """A new table, in an instance of its own or beside another one."""
    objects = beside.objects if beside else MemoryObjects(now=now)
    new_id = beside.new_id if beside else Counting()
    index = beside.index if beside else _new_index(objects, new_id)
    record = TableRecord(table_id, name, properties={SCHEMA: PAIRS.to_json()})
    store = store_of(objects, table_id, new_id, now)
    add_table(record, PAIRS, split_points, index=index, store=store, new_id=new_id)
    return SmallTable(objects, index, store, record, new_id)


def _new_index(objects: MemoryObjects, new_id: Counting) -> TableIndex:
    return object_table_index(objects, new_id=new_id, pause=lambda _: None)
