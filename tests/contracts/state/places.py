"""Places where the state of a table is kept, for tests that run over all kinds of state stores.

A place has one table. Each `open` is another process: it shares nothing with others but the storage.
"""

from __future__ import annotations

import random
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count

from sleeper.model.known_properties.typed import InstanceProperties, TableProperties
from sleeper.model.schema import Schema
from sleeper.model.tables import StateMove
from sleeper.ports.objects import Objects
from sleeper.state.revision_store import RevisionStateStore
from sleeper.state.state_store import StateStore
from sleeper.storage.local.folder import FolderObjects
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.places import FolderPlace, Place
from sleeper.tables.instance_context import InstanceContext
from sleeper.tables.state_stores import open_state_store
from tests.simulated_process import simulated_process
from tests.unit.state.memory_revisions import MemoryRevisions
from tests.unit.state.small_tables import NOON, SCHEMA

IDS = count()
CLASS_NAME = "sleeper.table.statestore.classname"
ATTEMPTS = "sleeper.table.statestore.transactionlog.add.transaction.max.attempts"


def place_at(objects: Objects) -> Place:
    """Return the place of an instance in these objects; not of one in a bucket or in AWS."""
    if isinstance(objects, FolderObjects):
        return FolderPlace(str(objects.root), objects)
    return Place("memory://", objects)


class Clock:
    """A clock that tests set; `ticks` goes on with it."""

    def __init__(self, time: datetime = NOON) -> None:
        self.time = time

    def now(self) -> datetime:
        return self.time

    def ticks_s(self) -> float:
        return self.time.timestamp()

    def advance(self, by: timedelta) -> None:
        self.time += by


class RealClock:
    """The clock of this machine."""

    now = staticmethod(lambda: datetime.now(UTC))
    ticks_s = staticmethod(time.monotonic)


def unhurried(attempt: int) -> None:
    """Wait as long as a writer does that lost a race."""
    time.sleep(random.uniform(0, min(1.0, 0.002 * 2**attempt)))


def at_once(attempt: int) -> None:
    """Go on without a pause."""


@dataclass
class MemoryRevisionsPlace:
    """Revisions in memory, of which each process has a view of its own."""

    schema: Schema = SCHEMA
    clock: Clock = field(default_factory=Clock)
    revisions: MemoryRevisions = field(default_factory=MemoryRevisions)

    keeps_versions = True

    def open(
        self, *, attempts: int = 10, is_new: bool = False, here: StateMove | None = None
    ) -> StateStore:
        return RevisionStateStore(
            self.revisions,
            self.schema,
            storage_time=self.clock.now,
            ticks_s=self.clock.ticks_s,
            new_id=lambda: f"id-{next(IDS)}",
            pause=at_once,
            attempts=attempts,
            here=here,
        )

    def another_table(self, schema: Schema = SCHEMA) -> MemoryRevisionsPlace:
        return MemoryRevisionsPlace(schema, self.clock)


@dataclass
class StatePlace:
    """The state of a table as an instance opens it: by the class name among its properties.

    Attributes:
        class_name: The class name.
        objects: The instance's objects.
        clock: The clock of each process, and of objects in memory.
        schema: The table's.
        instance_id: Names what the instance has in DynamoDB.
    """

    class_name: str
    objects: Objects
    clock: Clock | RealClock
    schema: Schema = SCHEMA
    instance_id: str = field(default_factory=lambda: uuid.uuid4().hex[:20])
    table_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    pause = staticmethod(unhurried)

    @property
    def keeps_versions(self) -> bool:
        return self.class_name != "DynamoDBStateStore"

    def open(
        self, *, attempts: int = 10, is_new: bool = False, here: StateMove | None = None
    ) -> StateStore:
        context = InstanceContext(
            InstanceProperties({"sleeper.id": self.instance_id}),
            place=place_at(self.objects),
            process=simulated_process(
                now=self.clock.now,
                ticks_s=self.clock.ticks_s,
                new_id=lambda: str(uuid.uuid4()),
                back_off=self.pause,
            ),
            reopen=(object, ()),
        )
        moved = {} if here is None else here.properties
        properties = {CLASS_NAME: self.class_name, ATTEMPTS: str(attempts), **moved}
        return open_state_store(
            self.table_id,
            self.objects.under(self.table_id),
            self.schema,
            TableProperties(properties),
            context,
            is_new=is_new,
        )

    def another_table(self, schema: Schema = SCHEMA) -> StatePlace:
        """Return the place of another table of the same instance."""
        return StatePlace(
            self.class_name, self.objects, self.clock, schema, self.instance_id, str(uuid.uuid4())
        )


def memory_place(class_name: str = "TransactionLogStateStore") -> StatePlace:
    """Return a place whose objects are in memory."""
    clock = Clock()
    return StatePlace(class_name, MemoryObjects(clock.now), clock)
