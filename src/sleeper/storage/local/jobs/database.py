"""The SQLite file: connections, transactions, and its schema.

A connection is used by one thread at a time and never by two processes: a process that was forked
opens its own. Every transaction that may write takes the write lock at its start.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from sleeper.errors import FormatTooNew, StorageFailed
from sleeper.storage.local.failures import write_failure
from sleeper.storage.local.jobs.failures import job_file_failure
from sleeper.storage.local.jobs.network_disks import MOUNTS, network_file_system
from sleeper.storage.local.jobs.owner import Owner, check_owner, note_owner
from sleeper.storage.local.jobs.schema import APPLICATION_ID, STATEMENTS, VERSION
from sleeper.storage.local.modes import share_folder, share_for_writing

logger = logging.getLogger(__name__)

PATIENCE_S = 60.0
"""How long a locked file is waited for."""

_PAUSE_S = 0.05
_TRY_MS = 3
"""How long SQLite waits for the write lock by itself: it sleeps for 1 ms, then 2."""
_TRIES_LOGGED = 1_000 // _TRY_MS


class JobDatabase:
    """One SQLite file, made at its first use. Safe for threads and for processes.

    Args:
        path: The file.
        sleep: Waits for so many seconds.
        patience_s: How long to wait while others have the file locked.
        mounts: The kernel's list of mounted file systems.
        owner: The instance whose jobs they are. The file remembers the first one that wrote to it,
            and no other may use it. None for any.
        check_instance: Raises `InstanceLost` if the instance whose folder has the file is gone;
            called before the file is made or opened. None for a file outside of an instance.
    """

    def __init__(
        self,
        path: Path,
        *,
        sleep: Callable[[float], None],
        patience_s: float = PATIENCE_S,
        mounts: Path = MOUNTS,
        owner: Owner | None = None,
        check_instance: Callable[[], None] | None = None,
    ) -> None:
        self.path, self._mounts = path, mounts
        self._owner, self._is_noted = owner, False
        self._check_instance = check_instance
        self._sleep, self._patience_s = sleep, patience_s
        self._idle: list[sqlite3.Connection] = []
        self._parents: list[sqlite3.Connection] = []
        self._lock, self._pid = Lock(), os.getpid()
        self._file: tuple[int, int] | None = None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection to read by; each statement sees a state of its own.

        Raises:
            PropertiesInvalid: the file is another instance's.
            StorageFailed: the file cannot be read.
        """
        connection = self._take()
        try:
            yield connection
        except BaseException as error:
            self._end(connection)
            if isinstance(error, sqlite3.Error):
                raise self._failure(error) from error
            raise
        self._give_back(connection)

    @contextmanager
    def writing(self, *, durable: bool) -> Iterator[sqlite3.Connection]:
        """Yield a connection in a transaction that commits at the end, or is undone by an error.

        Args:
            durable: A power cut after the commit does not undo it. One that is not durable becomes
                so with the next that is. The death of a process undoes neither.

        Raises:
            StorageFailed: the file cannot be written to; nothing was changed.
        """
        with self.reading() as connection:
            connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._begin(connection)
            try:
                noted = self._is_noted or self._note_owner(connection)
                yield connection
                connection.execute("COMMIT")
                self._is_noted = noted
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _note_owner(self, connection: sqlite3.Connection) -> bool:
        if self._owner is not None:
            note_owner(connection, self.path, self._owner)
        return True

    def _begin(self, connection: sqlite3.Connection) -> None:
        """Take the write lock. SQLite alone would wait ever longer between tries, and starve."""
        tries = max(1, int(1_000 * self._patience_s / _TRY_MS))
        connection.execute(f"PRAGMA busy_timeout={_TRY_MS}")
        for left in range(tries - 1, -1, -1):
            try:
                connection.execute("BEGIN IMMEDIATE")
                break
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or left == 0:
                    raise
                if tries - left == _TRIES_LOGGED:
                    logger.warning("waiting for a lock of %s that others hold", self.path)
        connection.execute(f"PRAGMA busy_timeout={int(1_000 * self._patience_s)}")

    def close(self) -> None:
        """Close all connections that no thread is using. Another use opens new ones."""
        if self._pid != os.getpid():
            self._begin_in_child()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _begin_in_child(self) -> None:
        """Begin without connections after a fork. Those of the parent are never closed here."""
        self._parents += self._idle
        self._idle = []
        self._lock, self._pid = Lock(), os.getpid()

    def _take(self) -> sqlite3.Connection:
        if self._pid != os.getpid():
            self._begin_in_child()
        if self._file is None or self._identity() != self._file:  # no file yet, or replaced
            self.close()
            self._is_noted = False
            if self._check_instance is not None:
                self._check_instance()
        with self._lock:
            idle = self._idle.pop() if self._idle else None
        return idle or self._open()

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            self._idle.append(connection)

    def _end(self, connection: sqlite3.Connection) -> None:
        """Close a connection whose state is unknown after an error."""
        with suppress(sqlite3.Error):  # what is closed is not wanted
            connection.close()

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)  # noqa: PTH116 - half the time of Path.stat
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _open(self) -> sqlite3.Connection:
        kind = network_file_system(self.path.parent, self._mounts)
        if kind is not None:
            raise StorageFailed(
                f"cannot use {self.path}: it is on a network file system ({kind}), where SQLite "
                "may lose messages. Set sleeper.jobs.url to sqlite:///and/an/absolute/path on a "
                "local disk."
            )
        _make_file(self.path, in_instance=self._check_instance is not None)
        self._file = self._identity()
        try:
            connection = sqlite3.connect(
                self.path, timeout=self._patience_s, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise self._failure(error) from error
        try:
            self._prepare(connection)
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.Error):
                raise self._failure(error) from error
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        self._turn_on_wal(connection)
        connection.execute("BEGIN")  # its reads see one state, though others make the schema
        version = _version(connection, self.path)
        if version and self._owner is not None:
            check_owner(connection, self.path, self._owner)
        connection.execute("COMMIT")
        if version == 0:
            connection.execute("BEGIN IMMEDIATE")
            if _version(connection, self.path) == 0:  # nobody was faster
                for statement in STATEMENTS:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version={VERSION}")
                logger.info("made %s for queues, tracker and batcher", self.path)
            connection.execute("COMMIT")

    def _turn_on_wal(self, connection: sqlite3.Connection) -> None:
        """Set the journal mode, which SQLite does not wait for when others do it as well."""
        mode, waited_s = "", 0.0
        while mode != "wal":
            try:
                mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or waited_s >= self._patience_s:
                    raise
                self._sleep(_PAUSE_S)
                waited_s += _PAUSE_S
            else:
                if mode != "wal":
                    raise StorageFailed(
                        f"{self.path} is on a file system without shared memory for SQLite "
                        f"(journal mode {mode}). Set sleeper.jobs.url to "
                        "sqlite:///and/an/absolute/path on a local disk."
                    )

    def _failure(self, error: sqlite3.Error) -> Exception:
        return job_file_failure(error, self.path, self._patience_s)


def _is_busy(error: sqlite3.Error) -> bool:
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema version of the file; 0 when it is empty."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    application: int = connection.execute("PRAGMA application_id").fetchone()[0]
    if application != APPLICATION_ID:
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if application or version or tables:
            raise StorageFailed(
                f"{path} is a SQLite file of another program. Name another file in "
                "sleeper.jobs.url, or move this one away."
            )
    if version > VERSION:
        raise FormatTooNew(
            f"{path} has schema version {version}, and this Sleeper knows {VERSION}. Upgrade "
            "Sleeper on this machine."
        )
    return version


def _make_file(path: Path, *, in_instance: bool) -> None:
    """Make an empty file if there is none, open to whoever may write to its folder.

    The folder of an instance is never made.
    """
    if path.exists():
        return
    folder = path.parent
    try:
        if not folder.exists():
            folder.mkdir(parents=not in_instance, exist_ok=True)
            share_folder(str(folder), str(folder.parent))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            share_for_writing(descriptor, str(folder))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        for made in (folder, folder.parent):
            _sync_folder(made)
    except OSError as error:
        raise write_failure(error, str(path)) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
