"""Everything that jobs need, in one SQLite file, or in memory by the same statements."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from sleeper.errors import DataDamaged, StorageFailed
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.messages import QueueSettings
from sleeper.ports.ids import NewId
from sleeper.storage.local.jobs.batcher_store import SqliteBatcherStore
from sleeper.storage.local.jobs.database import (
    PATIENCE_S,
    JobDatabase,
    MemoryJobDatabase,
    Owner,
)
from sleeper.storage.local.jobs.job_queue import SqliteQueue
from sleeper.storage.local.jobs.job_tracker import SqliteTracker

_log = logging.getLogger(__name__)


class SqliteJobStores:
    """Queues, tracker and batcher store of one instance. The file is made at the first use.

    Args:
        path: The file, on a local disk; None for memory, which `close` frees.
        settings: How queues deliver; one that is missing has the default settings.
        now: The clock (aware, UTC).
        sleep: Waits for so many seconds.
        new_id: Makes ids of messages and receipts.
        patience_s: How long to wait while other processes have the file locked.
        owner: The instance; another one's file is refused.
        check_instance: See `JobDatabase`.
    """

    def __init__(
        self,
        path: Path | None,
        settings: Mapping[QueueName, QueueSettings],
        *,
        now: Callable[[], datetime],
        sleep: Callable[[float], None],
        new_id: NewId,
        patience_s: float = PATIENCE_S,
        owner: Owner | None = None,
        check_instance: Callable[[], None] | None = None,
    ) -> None:
        self._database = (
            MemoryJobDatabase(sleep=sleep)
            if path is None
            else JobDatabase(
                path, sleep=sleep, patience_s=patience_s, owner=owner, check_instance=check_instance
            )
        )
        self._tracker = SqliteTracker(self._database)
        self._batcher = SqliteBatcherStore(self._database)
        self._queues = {
            name: SqliteQueue(
                self._database,
                name,
                settings.get(name, QueueSettings()),
                now=now,
                sleep=sleep,
                new_id=new_id,
            )
            for name in QueueName
        }

    are_charged = False
    """Nothing is."""

    @property
    def tracker(self) -> SqliteTracker:
        """The events of jobs and tasks."""
        return self._tracker

    @property
    def batcher(self) -> SqliteBatcherStore:
        """The files that were submitted to the ingest batcher."""
        return self._batcher

    def queue(self, name: QueueName) -> SqliteQueue:
        """Return one of the queues, the same each time."""
        return self._queues[name]

    def erase_deleted(self) -> None:
        """Write the file anew without what was deleted, and empty its log."""
        with self._database.reading() as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def check_owner(self) -> None:
        """Look whether the file is another instance's, if it is there.

        Raises:
            PropertiesInvalid: it is.
        """
        if not self._database.path.exists():
            return
        try:
            with self._database.reading():
                pass
        except (StorageFailed, DataDamaged) as failure:  # whoever uses it gets the error
            _log.warning("whose file of jobs it is cannot be seen now: %s", failure)

    def close(self) -> None:
        """Close connections that no thread is using. Another use opens the file again."""
        self._database.close()
