"""A table that is open in one process: the value that verbs take, and the handle that opens it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache, partial
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

import pyarrow as pa

from sleeper.engine.arrow_schema import shown_schema, to_arrow
from sleeper.engine.reading.read_leaves import TableReader, open_table_reader
from sleeper.engine.rows import Rows
from sleeper.errors import (
    DataDamaged,
    PropertiesInvalid,
    QueryInvalid,
    SleeperError,
    StorageFailed,
    TableNotFound,
)
from sleeper.model.known_properties.typed import TableProperties
from sleeper.model.processing import Processing
from sleeper.model.schema import Schema
from sleeper.model.tables import SCHEMA, StateMove, TableRecord
from sleeper.ports.objects import Objects
from sleeper.state.new_files import SweepGuard
from sleeper.state.state_store import StateStore
from sleeper.state.table_index import OwnChanges
from sleeper.state.table_state import TableState
from sleeper.tables.instance_context import InstanceContext
from sleeper.tables.state_stores import delete_states, store_of

if TYPE_CHECKING:
    from sleeper.engine.published.versions import LastPublished

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTable:
    """The objects that one process has open for a table, for one version of its record.

    Attributes:
        pid: The process; a forked child opens its own.
        record: The version of the table's record.
        name: The record's name.
        schema: The table's schema.
        arrow_schema: The same for Arrow: row keys, sort keys, values.
        properties: The record's properties.
        files: The table's folder.
        store: The table's state.
        reader: The readers, which all reads share: page indexes, query engine, processing.
        open_reader: Opens another `reader`; may be pickled for another process.
        looks: Looks for newer commits, which threads share.
        context: The instance, with clock and ids.
        published: What this process published last, by format.
        then: What reads old versions with other columns, by their schemas.
    """

    pid: int
    record: TableRecord
    name: str
    schema: Schema
    arrow_schema: pa.Schema
    properties: TableProperties
    files: Objects
    store: StateStore
    reader: TableReader
    open_reader: Callable[[], TableReader]
    looks: LooksTogether[tuple[OpenTable, TableState]]
    context: InstanceContext
    published: dict[str, LastPublished] = field(default_factory=dict)
    then: dict[Schema, OpenTable] = field(default_factory=dict)

    def now_ms(self) -> int:
        """Return the time of this machine in milliseconds since 1970, for filters by age."""
        return int(self.context.clock.now().timestamp() * 1000)

    def as_of(self, state: TableState) -> OpenTable:
        """Return what reads an old version, with the columns that the table had then.

        Raises:
            QueryInvalid: filters or aggregations of the table name columns of later.
        """
        schema = state.schema_then(self.schema, self.store.known())
        if schema is self.schema:
            return self
        if (known := self.then.get(schema)) is not None:
            return known  # with the indexes of the files that were read
        try:
            processing = self.properties.processing(schema)
        except PropertiesInvalid as failure:
            raise QueryInvalid(
                f"filters or aggregations of table {self.name!r} fit its columns of now, and not "
                f"those of transaction {state.number}, {[*schema.columns]}: read a later version, "
                f"or set them back ({failure})"
            ) from failure
        open_reader = _opens_reader(self.files, schema, processing, self.context)
        self.then[schema] = opened = replace(
            self,
            schema=schema,
            arrow_schema=to_arrow(schema),
            reader=open_reader(),
            open_reader=open_reader,
        )
        return opened

    def orphan_age(self) -> timedelta:
        """Return the age from which on a sweep deletes files that no transaction names."""
        return timedelta(minutes=self.properties.gc.orphan_age_minutes)

    def job_id_kept(self) -> timedelta:
        """Return how long the id of a committed job is remembered."""
        return timedelta(days=self.properties.statestore.job_id_retention_days)

    def sweep_guard(self) -> SweepGuard:
        """Return the guard that checks files of a job that begins now, before their commit."""
        return SweepGuard(files=self.files, started=self.store.time(), orphan_age=self.orphan_age())

    def check_exists(self) -> None:
        """Check that the table was not deleted.

        Raises:
            TableNotFound: it was.
        """
        existing_record(self.record, self.context)

    def newest_state(self) -> TableState:
        """Return the state after every commit so far.

        Raises:
            TableNotFound: the table was deleted while its state was read.
            DataDamaged, FormatTooNew, StorageFailed: it cannot be read.
        """
        try:
            state = self.store.refresh()
        except DataDamaged:
            self.check_exists()
            raise
        self.reader.forget_gone(state)
        return state

    def undo_commit_if_deleted(self) -> None:
        """Undo a commit to a table that was deleted while it was made.

        Raises:
            TableNotFound: the table was deleted.
        """
        try:
            self.check_exists()
        except StorageFailed as failure:  # the commit was made and must not be reported as failed
            _log.warning("whether table %s still exists is unknown: %s", self.name, failure)
        except TableNotFound:
            from sleeper.tables.delete import delete_objects

            try:
                delete_states(self.record, self.context)
                delete_objects(self.record.table_id, self.context.objects)
            except StorageFailed as failure:
                _log.warning("files of deleted table %s are left behind: %s", self.name, failure)
            raise


def _opens_reader(
    files: Objects, schema: Schema, processing: Processing, context: InstanceContext
) -> Callable[[], TableReader]:
    """Return what opens the readers of a table with some columns; may be pickled."""
    return partial(
        open_table_reader,
        files,
        schema,
        processing.allowing(context.allow_functions),
        temp_folder=context.temp_folder,
        stores=context.place.stores,
        read_cache=context.read_cache,
    )


def existing_record(record: TableRecord, context: InstanceContext) -> TableRecord:
    """Return the newest record of a table.

    Raises:
        TableNotFound: the table was deleted; without this check its log would look empty.
    """
    newest = context.index.by_id(record.table_id)
    if newest is None:
        raise TableNotFound(
            f"table {record.name!r} ({record.table_id}) was deleted, with all its rows; "
            "open another table, or create it again"
        )
    return newest


# ---------------------------------------------------------------- handle
#
# The handle of a table: its record and schema, its state, and its readers.


@dataclass(frozen=True, slots=True)
class _Look:
    """A look for a newer record and state.

    Attributes:
        opened: What is open since.
        begun_s: When it began, by the instance's ticks.
        changes: The last changes of this process when it began.
    """

    opened: OpenTable
    begun_s: float
    changes: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _ReadSchema:
    """A schema, and the text that it was read from."""

    text: str
    schema: Schema
    arrow_schema: pa.Schema

    @staticmethod
    @lru_cache(maxsize=64)
    def of(text: str) -> _ReadSchema:
        """Read a schema. A server opens the same tables for each request."""
        schema = Schema.from_json(text)
        return _ReadSchema(text, schema, to_arrow(schema))


class TableHandle:
    """The base of `Table`: it opens the table at first use, and again after a fork."""

    def __init__(self, record: TableRecord, context: InstanceContext) -> None:
        self._context = context
        self._record = record
        self._is_remote = context.objects.is_remote
        self._opened: OpenTable | None = None
        self._own_changes = (
            OwnChanges(context.url),
            OwnChanges(context.url, record.table_id),
        )
        self._looked: _Look | None = None
        self._beginning: Callable[[], None] | None = None
        self._use_schema(_ReadSchema.of(record.properties[SCHEMA]))
        self._properties = TableProperties(record.properties, context.properties)

    def _use_schema(self, read: _ReadSchema) -> None:
        self._read_schema, self.schema = read, read.schema
        self._shown_schema = shown_schema(read.schema, read.arrow_schema)

    @property
    def name(self) -> str:
        """The table's name, as this handle last read it."""
        return self._record.name

    @property
    def table_id(self) -> str:
        """The table's id: eight hex characters that never change."""
        return self._record.table_id

    @property
    def online(self) -> bool:
        """False if background operations skip the table (rule TBL-6)."""
        return self._record.online

    @property
    def properties(self) -> TableProperties:
        """The table's properties, as this handle last read them."""
        return self._properties

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of rows, with the columns in the order that the table was made with."""
        return self._shown_schema

    @property
    def last_commit_s(self) -> float | None:
        """How many seconds the last commit by this handle took; None before the first."""
        return None if self._opened is None else self._opened.store.commit_s

    def state(self) -> TableState:
        """Return the table's state after every commit so far."""
        return self._newest()[1]

    def refresh(self) -> int:
        """Read new commits, and return the table's transaction number."""
        return self.state().number

    def _current(self) -> OpenTable:
        """Return the open objects for the newest record in the index.

        Every public method calls it first, so that none uses outdated properties.

        Raises:
            TableNotFound: the table was deleted.
        """
        return self._adopt(existing_record(self._record, self._context))

    def _newest(self) -> tuple[OpenTable, TableState]:
        """Return the open objects, and the state after every commit so far.

        Where storage is remote, the looks for a newer record and for a newer state are made at
        once.
        """
        begun_s, changes = self._context.clock.ticks_s(), self._last_changes()
        if not self._is_remote:
            opened = self._current()
            state = opened.newest_state()
        else:
            before = self._adopt(self._record)
            current = self._context.objects.beside(self._current)
            try:
                state = before.store.refresh()
            except SleeperError:
                current()  # raises TableNotFound instead, if the table was deleted
                raise
            opened = current()
            if opened.store is not before.store:
                state = opened.store.refresh()
            opened.reader.forget_gone(state)
        if state.schema_id > opened.schema.number:  # columns were changed between the two looks
            opened = self._current()
        self._looked = _Look(opened, begun_s, changes)
        return opened, state

    def _answered(
        self, answer: Callable[[OpenTable, TableState], Rows], max_age_s: float | None
    ) -> Rows:
        """Return the answer from the newest state, or from one that is young enough.

        Where storage is remote, the answer from the state that is known is made beside the look
        for a newer one. If there is a newer one, or other properties, it is made again. Many
        threads share looks.

        Args:
            answer: Makes it. It may be called twice.
            max_age_s: How long ago the last look may be; None for the table's property.
        """
        known = self._known()
        if known is None:
            return answer(*self._newest())
        is_young = self._is_young(known[0], max_age_s)
        if not is_young and not self._is_remote:
            return answer(*self._newest())
        newest = self._newest
        if not is_young:
            newest = known[0].looks.begin(self._newest, self._context.objects.beside)
        try:
            found = answer(*known)
            if not is_young:
                found.begun()
        except Exception as failure:
            now = newest()
            if _are_same(known, now):
                raise
            _log.info("%s is read anew, at transaction %d: %s", self.name, now[1].number, failure)
            return answer(*now)
        if is_young:
            return found
        now = newest()
        if _are_same(known, now):
            return found
        found.close()
        return answer(*now)

    def begun(self) -> Self:
        """Begin to read the table's state, for the first query. In a folder there is no need."""
        store = self._adopt(self._record).store
        self._beginning = self._context.objects.beside(store.begin)
        return self

    def _known(self) -> tuple[OpenTable, TableState] | None:
        """Return what this process has open and cached for the table, without a look."""
        if (beginning := self._beginning) is not None:
            self._beginning = None
            try:
                beginning()
            except SleeperError as failure:
                _log.info("the state of table %s is read anew: %s", self.name, failure)
        opened = self._opened
        if opened is None or opened.pid != os.getpid():
            return None
        state = opened.store.known()
        return None if state is None else (opened, state)

    def _is_young(self, opened: OpenTable, max_age_s: float | None) -> bool:
        """Return whether the last look was recent, and before no change by this process."""
        if (age_s := max_age_s) is None:
            age_s = opened.properties.statestore.transaction_check_ms / 1000
        looked = self._looked
        if not age_s or looked is None or looked.opened is not opened:
            return False
        passed_s = self._context.clock.ticks_s() - looked.begun_s
        return 0 <= passed_s <= age_s and looked.changes == self._last_changes()

    def _last_changes(self) -> tuple[int, int]:
        of_index, of_table = self._own_changes
        return of_index.last(), of_table.last()

    def _adopt(self, record: TableRecord) -> OpenTable:
        """Use a new record. Objects that depend on changed properties are opened again."""
        opened = self._opened
        if opened is None or opened.pid != os.getpid():
            opened = self._open(record)
        elif opened.record.properties != record.properties:
            opened = self._open(record, before=opened)
        elif opened.record is not record and opened.record != record:
            opened = replace(opened, record=record, name=record.name, then={})
        # Threads may adopt concurrently: each uses its own result.
        self._record, self._properties, self._opened = record, opened.properties, opened
        if self.schema is not opened.schema:
            text = record.properties[SCHEMA]
            self._use_schema(_ReadSchema(text, opened.schema, opened.arrow_schema))
        return opened

    def _open(self, record: TableRecord, before: OpenTable | None = None) -> OpenTable:
        read = self._read_schema
        if read.text != record.properties[SCHEMA]:
            read = _ReadSchema.of(record.properties[SCHEMA])
        schema = read.schema
        properties = TableProperties(record.properties, self._context.properties)
        files = self._context.objects.under(record.table_id)
        open_reader = _opens_reader(files, schema, properties.processing(schema), self._context)
        if (
            before is not None
            and before.schema == schema  # a store adds it to the log, should that lack it
            and _state_place(before.properties) == _state_place(properties)
        ):
            store = before.store
        else:
            store = store_of(record, self._context)
        return OpenTable(
            pid=os.getpid(),
            record=record,
            name=record.name,
            schema=schema,
            arrow_schema=read.arrow_schema,
            properties=properties,
            files=files,
            store=store,
            reader=open_reader(),
            open_reader=open_reader,
            looks=LooksTogether(),
            context=self._context,
        )

    def close(self) -> None:
        """Close open objects. The next use opens them again."""
        self._opened = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        reopen, arguments = self._context.reopen
        return reopen, (*arguments, self.table_id)

    def __repr__(self) -> str:
        return f"<Table {self.name!r} ({self.table_id}) of {self._context.url}>"


def _are_same(known: tuple[OpenTable, TableState], now: tuple[OpenTable, TableState]) -> bool:
    """Return whether an answer from what was known is the answer from what is there now."""
    (before, before_state), (opened, state) = known, now
    return (
        opened.reader is before.reader
        and opened.store is before.store
        and (state.number, state.digest) == (before_state.number, before_state.digest)
    )


def _state_place(properties: TableProperties) -> tuple[str, StateMove | None]:
    return properties.state_store, properties.state_move


# ---------------------------------------------------------------- looks together
#
# Looks for newer commits that threads share, so that many threads do not look for each query.

T = TypeVar("T")

LOOKS_AT_ONCE: Final = 4
"""Looks of a table that are under way in a process; further queries share the next one."""

Beside = Callable[[Callable[[], T]], Callable[[], T]]


class LooksTogether(Generic[T]):
    """Looks by many threads: a few at a time, and one more for all that ask meanwhile.

    A query may use only a look that begins after the query does. So who asks while enough looks are
    under way waits for the next to begin, which is when one of them ends. No lock is held during a
    look.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._under_way = 0
        self._next: _Next | None = None

    def begin(self, look: Callable[[], T], beside: Beside[T]) -> Callable[[], T]:
        """Return what waits for a look that begins from now on, or raises its error.

        Args:
            look: Looks. One of any callers is used, so all must be equal.
            beside: Begins work beside the caller's.
        """

        def run() -> T:
            with self._lock:
                self._under_way += 1
            try:
                return look()
            finally:
                with self._lock:
                    self._under_way -= 1
                    following, self._next = self._next, None
                if following is not None:
                    following.begin(_begun(run, beside))

        with self._lock:
            if self._under_way < LOOKS_AT_ONCE and self._next is None:
                following = None
            else:
                following = self._next = self._next or _Next()
        return beside(run) if following is None else following.result


def _begun(run: Callable[[], T], beside: Beside[T]) -> Callable[[], T]:
    try:
        return beside(run)
    except RuntimeError:  # no thread begins work while Python ends: who waits looks alone
        return run


class _Next:
    """The look that begins when one of those under way has ended."""

    def __init__(self) -> None:
        self._begun = Event()
        self._wait: Callable[[], Any] | None = None

    def begin(self, wait: Callable[[], Any]) -> None:
        self._wait = wait
        self._begun.set()

    def result(self) -> Any:
        self._begun.wait()
        assert self._wait is not None
        return self._wait()
