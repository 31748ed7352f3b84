"""A table that is open in one process: the value that every verb of this package takes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from sleeper.engine.read_leaves import TableReader
from sleeper.errors import StorageFailed, TableNotFound
from sleeper.model.known_properties.typed import TableProperties
from sleeper.model.schema import Schema
from sleeper.model.tables import TableRecord
from sleeper.ports.objects import Objects
from sleeper.state.commit import SweepGuard
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState
from sleeper.tables.instance_context import InstanceContext

if TYPE_CHECKING:  # the handle opens tables
    from sleeper.tables.handle import LooksTogether

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

    def now_ms(self) -> int:
        """Return the time of this machine in milliseconds since 1970, for filters by age."""
        return int(self.context.clock.now().timestamp() * 1000)

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
            from sleeper.tables.state_stores import delete_states

            try:
                delete_states(self.record, self.context)
                delete_objects(self.record.table_id, self.context.objects)
            except StorageFailed as failure:
                _log.warning("files of deleted table %s are left behind: %s", self.name, failure)
            raise


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
