"""The SQLite file: connections, transactions, and its schema.

A connection is used by one thread at a time and never by two processes: a process that was forked
opens its own. Every transaction that may write takes the write lock at its start.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock, RLock
from typing import Final

from sleeper.errors import (
    DataDamaged,
    FormatTooNew,
    PropertiesInvalid,
    SleeperError,
    StorageFailed,
    StorageFull,
    StorageReadOnly,
)
from sleeper.storage.local.failures import write_failure
from sleeper.storage.local.unfinished import share_folder, share_for_writing

# ---------------------------------------------------------------- failures
#
# What SQLite's errors mean to us, and who holds a lock of its file.

_FREE_BYTES_MIN = 1_000_000
_PRIMARY = 0xFF
"""The bits of an error code that say its kind; those above say more."""


def job_file_failure(error: sqlite3.Error, path: Path, waited_s: float) -> SleeperError:
    """Translate an error of SQLite for the file at `path`."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return _locked(path, waited_s)
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(path)):
        return StorageFull(
            f"cannot write {path}: {error}. Nothing was changed. Free some space on its disk or "
            "raise the quota, then try again."
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH) or (
        code == sqlite3.SQLITE_CANTOPEN and not os.access(path.parent, os.W_OK)
    ):
        return StorageReadOnly(
            f"cannot write {path}: {error}. Allow this user to write to the file and its folder, "
            "or set sleeper.jobs.url to sqlite:///and/another/absolute/path."
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return DataDamaged(
            f"{path}, which has queues, tracker and batcher, is damaged: {error}. No table is "
            "touched by this. Stop what uses the file, restore it from a backup or move it away "
            "with its -wal and -shm files, and send again what was not done."
        )
    return StorageFailed(
        f"cannot use {path}: {error}. Repair the disk or correct the path, then try again."
    )


def _is_full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < _FREE_BYTES_MIN
    except OSError:
        return False


def _locked(path: Path, waited_s: float) -> StorageFailed:
    holders = lock_holders(path)
    if holders:
        who = f"Process {', '.join(map(str, holders))} has a lock of it"
    else:
        who = f"`fuser -v {path}` may tell who has it open"
    return StorageFailed(
        f"{path} was locked by another process for {waited_s:.0f} seconds. {who}: end that "
        "process if it hangs, then try again."
    )


def lock_holders(path: Path, locks: Path = Path("/proc/locks")) -> list[int]:
    """Return the ids of other processes that hold write locks of the file; none where unknown."""
    inodes = {str(file.stat().st_ino) for file in _files_of(path) if file.exists()}
    try:
        lines = locks.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    found = set()
    for line in lines:  # 1: POSIX  ADVISORY  WRITE 4711 08:01:123456 120 120
        words = line.split()  # that of a process that waits has an arrow, and so another word
        if len(words) > 5 and words[3] == "WRITE" and words[5].rpartition(":")[2] in inodes:
            found.add(int(words[4]))
    return sorted(found - {os.getpid()})


def _files_of(path: Path) -> tuple[Path, Path]:
    return path, path.with_name(f"{path.name}-shm")


# ---------------------------------------------------------------- schema
#
# The tables of the file. Times are microseconds since 1970 (UTC).

VERSION: Final = 3
"""`PRAGMA user_version` of the file."""

APPLICATION_ID: Final = 0x534C5052
"""`PRAGMA application_id` of the file: SLPR in ASCII."""

STATEMENTS: Final = (
    # The largest `since` of a queue's messages: when it is far ahead, the clock was set back.
    "CREATE TABLE clock(queue TEXT PRIMARY KEY, latest INTEGER NOT NULL) WITHOUT ROWID",
    # A message is hidden from `since` to `visible`.
    """CREATE TABLE message(
        number INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, message_id TEXT NOT NULL,
        body TEXT NOT NULL, message_group TEXT, sent INTEGER NOT NULL, since INTEGER NOT NULL,
        visible INTEGER NOT NULL, receives INTEGER NOT NULL DEFAULT 0, receipt TEXT)""",
    "CREATE INDEX message_visible ON message(queue, visible, sent, since)",
    "CREATE INDEX message_order ON message(queue) WHERE message_group IS NOT NULL",
    """CREATE TABLE dead_letter(
        number INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, message_id TEXT NOT NULL,
        body TEXT NOT NULL, message_group TEXT, sent INTEGER NOT NULL, reason TEXT NOT NULL,
        receives INTEGER NOT NULL, buried INTEGER NOT NULL)""",
    "CREATE INDEX dead_letter_queue ON dead_letter(queue)",
    """CREATE TABLE deduplication(
        queue TEXT NOT NULL, id TEXT NOT NULL, since INTEGER NOT NULL,
        PRIMARY KEY(queue, id)) WITHOUT ROWID""",
    "CREATE INDEX deduplication_since ON deduplication(queue, since)",
    # `body` is the event as JSON, `digest` its hash.
    """CREATE TABLE job_event(
        number INTEGER PRIMARY KEY AUTOINCREMENT, job INTEGER NOT NULL, task_id TEXT,
        at INTEGER NOT NULL, expires INTEGER NOT NULL, digest BLOB NOT NULL, body TEXT NOT NULL,
        UNIQUE(job, digest))""",
    "CREATE INDEX job_event_task ON job_event(task_id) WHERE task_id IS NOT NULL",
    "CREATE INDEX job_event_expires ON job_event(expires)",
    # `newest` and `oldest` are those of the job's events.
    """CREATE TABLE job(
        number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, job_id TEXT NOT NULL,
        table_id TEXT NOT NULL, newest INTEGER NOT NULL, oldest INTEGER NOT NULL,
        UNIQUE(kind, job_id, table_id))""",
    "CREATE INDEX job_newest ON job(kind, newest)",
    """CREATE TABLE task_event(
        number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, task_id TEXT NOT NULL,
        at INTEGER NOT NULL, expires INTEGER NOT NULL, digest BLOB NOT NULL, body TEXT NOT NULL,
        UNIQUE(kind, task_id, digest))""",
    "CREATE INDEX task_event_expires ON task_event(expires)",
    # A file without a job has an empty job id.
    """CREATE TABLE submitted_file(
        number INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL, table_id TEXT NOT NULL,
        path TEXT NOT NULL, size_bytes INTEGER NOT NULL, received INTEGER NOT NULL,
        expires INTEGER NOT NULL, csv TEXT NOT NULL DEFAULT '',
        upsert INTEGER NOT NULL DEFAULT 0,
        UNIQUE(job_id, table_id, path))""",
    "CREATE INDEX submitted_file_received ON submitted_file(received)",
    "CREATE INDEX submitted_file_path ON submitted_file(table_id, path)",
    "CREATE INDEX submitted_file_expires ON submitted_file(expires)",
    """CREATE TABLE unsent_job(
        number INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL UNIQUE,
        table_id TEXT NOT NULL, queue TEXT NOT NULL)""",
)

CHANGES: Final = {
    1: ("ALTER TABLE submitted_file ADD COLUMN csv TEXT NOT NULL DEFAULT ''",),
    2: ("ALTER TABLE submitted_file ADD COLUMN upsert INTEGER NOT NULL DEFAULT 0",),
}
"""What makes the tables of each earlier version those of the next."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def as_number(time: datetime) -> int:
    """Return an aware time as the file has it."""
    return (time - _EPOCH) // _MICROSECOND


def as_time(number: int) -> datetime:
    """Return a time of the file (aware, UTC)."""
    return _EPOCH + timedelta(microseconds=number)


# ---------------------------------------------------------------- network disks
#
# Which file systems reach over a network: SQLite's shared memory does not work there.

MOUNTS: Final = Path("/proc/self/mounts")
"""Where Linux lists what is mounted."""

_NETWORKS = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs", "ceph", "lustre", "gpfs", "beegfs"),
    *("fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.juicefs"),
}


def network_file_system(path: Path, mounts: Path = MOUNTS) -> str | None:
    """Return the kind of network file system that `path` is on; None for local and unknown ones."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    target = os.path.realpath(path)
    kind, length = "", -1
    for line in lines:  # SERVER FOLDER nfs4 rw,... 0 0
        words = line.split()
        if len(words) < 3:
            continue
        folder = _unescaped(words[1])
        is_above = target == folder or target.startswith(folder.rstrip("/") + "/")
        if is_above and len(folder) >= length:  # the last of two at one place is what is seen
            kind, length = words[2], len(folder)
    return kind if kind in _NETWORKS else None


def _unescaped(text: str) -> str:
    for escaped, plain in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        text = text.replace(escaped, plain)
    return text


# ---------------------------------------------------------------- owner
#
# Which instance a file of jobs belongs to: two that shared one would take each other's jobs.

logger = logging.getLogger(__name__)

_MAKE: Final = "CREATE TABLE IF NOT EXISTS owner(instance_id TEXT NOT NULL, url TEXT NOT NULL)"


@dataclass(frozen=True, slots=True)
class Owner:
    """An instance, as its file of jobs remembers it.

    Attributes:
        instance_id: Its `sleeper.id`.
        url: Where it was when it last used the file from a new place.
    """

    instance_id: str
    url: str


def check_owner(connection: sqlite3.Connection, path: Path, owner: Owner) -> bool:
    """Return whether the file is known to belong to an instance, at its place; else no one's yet.

    Raises:
        PropertiesInvalid: it belongs to another one.
    """
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'owner'").fetchone():
        return False
    found = connection.execute("SELECT instance_id, url FROM owner").fetchone()
    if found is None:
        return False
    known = Owner(*found)
    if known.instance_id != owner.instance_id:
        raise PropertiesInvalid(
            {
                "sleeper.jobs.url": f"{path} has the jobs of instance {known.instance_id!r} at "
                f"{known.url}, so instance {owner.instance_id!r} at {owner.url} cannot keep its "
                "own there: each would take the other's. Set sleeper.jobs.url of the second to "
                "another file. If the first is no more, move the file away, with its -wal and "
                "-shm files."
            }
        )
    return known == owner


def note_owner(connection: sqlite3.Connection, path: Path, owner: Owner) -> None:
    """Write down whose file it is, in a transaction that may write.

    Raises:
        PropertiesInvalid: it is another instance's.
    """
    if check_owner(connection, path, owner):
        return
    connection.execute(_MAKE)
    before = connection.execute("DELETE FROM owner RETURNING url").fetchall()
    connection.execute("INSERT INTO owner VALUES(?, ?)", (owner.instance_id, owner.url))
    if before:
        logger.warning(
            "%s was used by instance %r at %s before, and now by the one of that id at %s: if the "
            "instance was moved, all is well; if there are two, give each a file of its own by "
            "sleeper.jobs.url",
            path,
            owner.instance_id,
            before[0][0],
            owner.url,
        )


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
        if version < VERSION:
            connection.execute("BEGIN IMMEDIATE")
            self._bring_up(connection, _version(connection, self.path))  # or another was faster
            connection.execute("COMMIT")

    def _bring_up(self, connection: sqlite3.Connection, version: int) -> None:
        """Make the tables, or change those of an earlier version, inside a transaction."""
        if version == 0:
            for statement in STATEMENTS:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            logger.info("made %s for queues, tracker and batcher", self.path)
        for earlier in range(version or VERSION, VERSION):
            for statement in CHANGES[earlier]:
                connection.execute(statement)
            logger.info("changed %s to schema version %d", self.path, earlier + 1)
        connection.execute(f"PRAGMA user_version={VERSION}")

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


class MemoryJobDatabase(JobDatabase):
    """The same in the memory of this process: one connection, which threads use in turn.

    Args:
        sleep: Waits for so many seconds.
    """

    def __init__(self, *, sleep: Callable[[float], None]) -> None:
        super().__init__(Path(":memory:"), sleep=sleep)
        self._turn = RLock()
        self._only: sqlite3.Connection | None = None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection, while no other thread has it."""
        with self._turn:
            if self._only is None:
                self._only = sqlite3.connect(
                    ":memory:", isolation_level=None, check_same_thread=False
                )
                self._prepare(self._only)
            try:
                yield self._only
            except sqlite3.Error as error:
                raise self._failure(error) from error

    def close(self) -> None:
        """Forget all that was kept."""
        with self._turn:
            if self._only is not None:
                self._only.close()
                self._only = None

    def _turn_on_wal(self, connection: sqlite3.Connection) -> None:
        """Do nothing: there is no journal in a file."""


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
