"""The SQLite file is locked, full, damaged, replaced, another program's, or in a wrong place."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sleeper.errors import DataDamaged, FormatTooNew, StorageFailed, StorageReadOnly
from sleeper.model.csv_options import CsvOptions
from sleeper.model.jobs.kinds import QueueName
from sleeper.storage.local.jobs.database import (
    VERSION,
    JobDatabase,
    lock_holders,
    network_file_system,
)
from sleeper.storage.local.jobs.job_stores import SqliteJobStores
from tests.contracts.jobs.batcher_store_contract import file
from tests.contracts.jobs.clock import Clock, numbered
from tests.contracts.jobs.job_queue_contract import bodies_of, receive_all, send
from tests.contracts.test_folder_refusals import run_where_mounts_are_private

SMALL = "x" * 1_000


@pytest.fixture
def path(tmp_path):
    return tmp_path / "services" / "jobs.sqlite"


@pytest.fixture
def open_stores(path):
    """Open the file, as often as one likes, with the patience that is asked for."""
    opened = []

    def open_again(at=path, patience_s=60.0, clock=None):
        clock = clock or Clock()
        how = {"now": clock.now, "sleep": clock.sleep, "new_id": numbered(f"{len(opened)}-")}
        opened.append(SqliteJobStores(at, {}, **how, patience_s=patience_s))
        return opened[-1]

    yield open_again
    for stores in opened:
        stores.close()


@pytest.fixture
def queue(open_stores):
    return open_stores().queue(QueueName.INGEST)


@contextmanager
def locked(path):
    """Let another process hold the write lock of the file; yield that process."""
    program = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "c.execute('BEGIN IMMEDIATE'); print('locked', flush=True); sys.stdin.readline()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "locked\n"
        yield process
    finally:
        process.communicate("")


class TestALockedFile:
    """Another process holds the write lock."""

    def test_a_lock_of_seconds_is_waited_for(self, path, queue):
        """Calls return when it is gone, and nothing is lost."""
        send(queue, "a", "b")
        [first, second] = queue.receive(2)

        with ThreadPoolExecutor(3) as threads:
            with locked(path):
                calls = [
                    threads.submit(send, queue, "c"),
                    threads.submit(queue.delete, [first.receipt]),
                    threads.submit(queue.extend, second.receipt, 900),
                ]
                time.sleep(2)
                still_waiting = not any(call.done() for call in calls)
            answers = [call.result() for call in calls]

        assert still_waiting
        assert answers == [None, [True], True]
        assert bodies_of(receive_all(queue)) == ["c"]

    def test_a_lock_that_does_not_end_is_an_error_that_names_the_process(
        self, path, open_stores, caplog
    ):
        """Nothing was changed, and the next call may go well. The wait is logged before."""
        queue = open_stores(patience_s=1.2).queue(QueueName.INGEST)
        send(queue, "a")

        with locked(path) as process:
            with pytest.raises(StorageFailed, match="was locked by another process") as raised:
                send(queue, "b")
            holders = lock_holders(path)

        assert raised.value.retryable
        assert [f"waiting for a lock of {path} that others hold"] == [
            record.getMessage() for record in caplog.records if record.levelname == "WARNING"
        ]
        assert str(path) in str(raised.value)
        if holders:  # where the kernel tells
            assert holders == [process.pid]
            assert f"Process {process.pid} " in str(raised.value)
        else:
            assert "fuser" in str(raised.value)
        assert bodies_of(receive_all(queue)) == ["a"]

    def test_who_only_looks_does_not_wait(self, path, open_stores):
        """Counting and listing, and receiving where nothing is ready."""
        stores = open_stores(patience_s=0.2)
        queue = stores.queue(QueueName.INGEST)
        send(queue, "late", delay_s=900)

        with locked(path):
            assert queue.receive(10) == []
            assert queue.depth().hidden == 1
            assert queue.dead_letters() == []
            assert stores.batcher.pending() == []

    def test_holders_are_read_from_the_list_of_locks(self, path, queue, tmp_path):
        """Waiting processes, locks to read and locks of other files are left out."""
        send(queue, "a")
        file, other = path.stat().st_ino, path.parent.stat().st_ino
        locks = tmp_path / "locks"
        locks.write_text(
            f"1: POSIX  ADVISORY  WRITE 4711 08:01:{file} 120 120\n"
            f"1: -> POSIX  ADVISORY  WRITE 4712 08:01:{file} 120 120\n"
            f"2: POSIX  ADVISORY  READ 4713 08:01:{file} 124 124\n"
            f"3: FLOCK  ADVISORY  WRITE 4714 08:01:{other} 0 EOF\n"
            f"4: POSIX  ADVISORY  WRITE {os.getpid()} 08:01:{file} 120 120\n"
        )

        assert lock_holders(path, locks) == [4711]
        assert lock_holders(path, tmp_path / "missing") == []


class TestWaiting:
    """An idle poller."""

    def test_an_idle_poller_looks_ever_more_seldom(self, open_stores):
        """At last 2.5 times a second; it waits exactly as long as it was asked to."""
        clock = Clock()
        pauses = []
        sleep, clock.sleep = clock.sleep, lambda seconds: (pauses.append(seconds), sleep(seconds))
        queue = open_stores(clock=clock).queue(QueueName.INGEST)

        assert queue.receive(wait_s=20) == []

        assert sum(pauses) == pytest.approx(20)
        assert pauses[0] == pytest.approx(0.01)
        assert pauses[:-1] == sorted(pauses[:-1])
        assert len(pauses) < 100


class TestAnotherFile:
    """What lies at the path is not what was expected."""

    def test_a_newer_schema_is_refused(self, path, queue):
        """A newer Sleeper made it; the message says what to do."""
        send(queue, "a")
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version={VERSION + 1}")

        with pytest.raises(FormatTooNew, match="Upgrade"):
            JobDatabase(path, sleep=time.sleep).reading().__enter__()

    @pytest.mark.parametrize(("version", "lacks"), [(1, ["csv", "upsert"]), (2, ["upsert"])])
    def test_an_earlier_schema_is_brought_up_by_one_of_many(
        self, path, open_stores, version, lacks
    ):
        """Submitted files of version 1 have no options of CSV, those of 2 add their rows.

        What waits stays where it is.
        """
        stores = open_stores()
        send(stores.queue(QueueName.INGEST), "a")
        stores.batcher.save([file("a.parquet")])
        stores.close()
        with closing(sqlite3.connect(path)) as connection:
            for column in lacks:
                connection.execute(f"ALTER TABLE submitted_file DROP COLUMN {column}")
            connection.execute(f"PRAGMA user_version={version}")
            connection.commit()

        with ThreadPoolExecutor(8) as threads:
            found = [*threads.map(lambda _: open_stores().batcher.pending(), range(8))]

        assert found == [[file("a.parquet")]] * 8
        written = replace(file("b.csv", 1), csv=CsvOptions(separator=";"), upsert=True)
        open_stores().batcher.save([written])
        assert open_stores().batcher.pending() == [file("a.parquet"), written]
        assert bodies_of(receive_all(open_stores().queue(QueueName.INGEST))) == ["a"]

    @pytest.mark.parametrize("statement", ["CREATE TABLE t(x)", "PRAGMA application_id=1"])
    def test_a_database_of_another_program_is_refused(self, tmp_path, open_stores, statement):
        """It is left as it is."""
        path = tmp_path / "other.sqlite"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(statement)
            connection.commit()

        with pytest.raises(StorageFailed, match="another program"):
            open_stores(path).queue(QueueName.INGEST).depth()

        with closing(sqlite3.connect(path)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_schema").fetchall()
        assert tables == ([("t",)] if "t(x)" in statement else [])

    def test_what_is_no_database_is_damage(self, tmp_path, open_stores):
        """The message names the file and says what to do."""
        path = tmp_path / "jobs.sqlite"
        path.write_bytes(b"no database, but long enough to be looked at" * 100)

        with pytest.raises(DataDamaged, match=r"jobs\.sqlite.*restore it"):
            send(open_stores(path).queue(QueueName.INGEST), "a")

    def test_a_damaged_page_is_damage(self, path, open_stores):
        """Found when it is read."""
        stores = open_stores()
        send(stores.queue(QueueName.INGEST), *[SMALL] * 100)
        stores.close()
        body = bytearray(path.read_bytes())
        body[4_096:] = b"\xff" * (len(body) - 4_096)
        path.write_bytes(body)

        with pytest.raises(DataDamaged):
            receive_all(open_stores().queue(QueueName.INGEST))

    def test_a_file_that_is_replaced_is_opened_again(self, path, queue):
        """No message goes into a file that nobody finds any more."""
        send(queue, "old")
        for each in path.parent.iterdir():
            each.unlink()

        send(queue, "new")

        assert bodies_of(receive_all(queue)) == ["new"]
        assert path.exists()

    def test_a_closed_file_can_be_used_again(self, path, open_stores):
        """And closing leaves one file behind."""
        stores = open_stores()
        send(stores.queue(QueueName.INGEST), "a")

        stores.close()
        alone = [file.name for file in path.parent.iterdir()]

        assert alone == ["jobs.sqlite"]
        assert bodies_of(receive_all(stores.queue(QueueName.INGEST))) == ["a"]


class TestTheWrongPlace:
    """File systems where SQLite cannot work, or this user may not."""

    def test_a_folder_that_may_not_be_written_to_is_told_apart(self, open_stores):
        """The message says what to do."""
        queue = open_stores(Path("/sys/sleeper/jobs.sqlite")).queue(QueueName.INGEST)

        with pytest.raises(StorageReadOnly, match="Allow this user"):
            queue.depth()

    def test_a_network_file_system_is_refused(self, tmp_path, path):
        """SQLite's shared memory does not reach other machines."""
        mounts = tmp_path / "mounts"
        mounts.write_text(f"none / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n")
        database = JobDatabase(path, sleep=time.sleep, mounts=mounts)

        with pytest.raises(StorageFailed, match=r"nfs4.*sleeper\.jobs\.url"):
            database.reading().__enter__()

        assert not path.exists()

    @pytest.mark.parametrize(
        ("folder", "kind"),
        [("/a", None), ("/net/x", "nfs4"), ("/net b/x", "cifs"), ("/net/local/x", None)],
    )
    def test_the_mount_nearest_to_a_path_counts(self, tmp_path, folder, kind):
        """The longest, and of two at one place the last."""
        mounts = tmp_path / "mounts"
        mounts.write_text(
            "none / ext4 rw 0 0\nserver:/x /net ext4 rw 0 0\nserver:/x /net nfs4 rw 0 0\n"
            "//server/b /net\\040b cifs rw 0 0\nnone /net/local xfs rw 0 0\nbad line\n"
        )

        assert network_file_system(Path(folder), mounts) == kind
        assert network_file_system(Path(folder), tmp_path / "missing") is None

    def test_a_file_without_shared_memory_is_refused(self, tmp_path, monkeypatch):
        """SQLite says which journal mode it took instead."""
        monkeypatch.chdir(tmp_path)
        database = JobDatabase(Path(":memory:"), sleep=time.sleep)

        with pytest.raises(StorageFailed, match=r"journal mode memory.*sleeper\.jobs\.url"):
            database.reading().__enter__()

    def test_who_may_write_to_the_folder_may_write_to_the_file(self, tmp_path, open_stores):
        """Whatever the umask of who made it."""
        folder = tmp_path / "shared"
        folder.mkdir()
        folder.chmod(0o770)
        umask = os.umask(0o077)
        try:
            send(open_stores(folder / "services" / "jobs.sqlite").queue(QueueName.INGEST), "a")
        finally:
            os.umask(umask)

        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in sorted(folder.rglob("*"))}
        assert modes == {
            "services": 0o770,
            "jobs.sqlite": 0o660,
            "jobs.sqlite-shm": 0o660,
            "jobs.sqlite-wal": 0o660,
        }


PRELUDE = """
import os, sys, time, uuid
from datetime import UTC, datetime
from pathlib import Path
from sleeper.errors import *
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.messages import NewMessage
from sleeper.storage.local.jobs.job_stores import SqliteJobStores
folder = Path(os.environ["FOLDER"])
stores = SqliteJobStores(folder / "jobs.sqlite", {}, now=lambda: datetime.now(UTC),
    sleep=time.sleep, new_id=lambda: str(uuid.uuid4()))
queue = stores.queue(QueueName.INGEST)
def attempt(call, *arguments):
    try:
        return call(*arguments)
    except StorageFailed as error:
        return f"{type(error).__name__}: {error}"
"""


class TestOtherFileSystems:
    """File systems that are made for the occasion."""

    def test_a_disk_fills_up(self, tmp_path):
        """What was acknowledged is there; with some space, messages are received and deleted."""
        script = f"""
            mount -t tmpfs -o size=16m none "$FOLDER"
            "$PYTHON" - <<'END'
{PRELUDE}
(folder / "filler").write_bytes(bytes(8_000_000))
sent = 0
while (answer := attempt(queue.send, [NewMessage(body=f"{{sent}} {SMALL}")] * 10)) is None:
    sent += 10
print(answer)
print(attempt(queue.send, [NewMessage(body="{SMALL}" * 99)]).split(":")[0])
depth = queue.depth()
print(depth.ready == sent > 100, depth.hidden, depth.dead)
(folder / "filler").unlink()
received = []
while messages := queue.receive(10):
    assert all(queue.delete([each.receipt for each in messages]))
    received += [each.body.split()[0] for each in messages]
print(received == [str(n) for n in range(0, sent, 10) for _ in range(10)])
print(queue.send([NewMessage(body="a")]), queue.depth().ready)
END
"""

        answer, again, *rest = run_where_mounts_are_private(script, tmp_path).splitlines()

        assert answer.startswith("StorageFull: ")
        assert "Free some space" in answer
        assert again == "StorageFull"
        assert rest == ["True 0 0", "True", "None 1"]

    def test_a_disk_without_any_space_is_full(self, tmp_path):
        """The file cannot even be made, or SQLite cannot make its own beside it."""
        script = f"""
            mount -t tmpfs -o size=64k none "$FOLDER"
            "$PYTHON" - <<'END'
{PRELUDE}
try:
    (folder / "filler").write_bytes(bytes(100_000))
except OSError as error:
    print(error.strerror)
print(attempt(queue.send, [NewMessage(body="a")]).split(":")[0])
(folder / "filler").unlink()
END
"""

        lines = run_where_mounts_are_private(script, tmp_path).splitlines()

        assert lines == ["No space left on device", "StorageFull"]

    def test_a_read_only_file_system_is_told_apart(self, tmp_path):
        """The message says what to do."""
        script = f"""
            mount -t tmpfs none "$FOLDER"
            "$PYTHON" - <<'END'
{PRELUDE}
queue.send([NewMessage(body="a")])
stores.close()
END
            mount -o remount,ro "$FOLDER"
            "$PYTHON" - <<'END'
{PRELUDE}
print(attempt(queue.send, [NewMessage(body="b")]))
END
"""

        [answer] = run_where_mounts_are_private(script, tmp_path).splitlines()

        assert answer.startswith("StorageReadOnly: ")
        assert "Allow this user" in answer


def test_many_threads_open_a_file_that_is_not_there_yet(open_stores):
    """Several connections make it at the same time: one does, and all can use it."""
    several = [open_stores() for _ in range(8)]

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda stores: send(stores.queue(QueueName.INGEST), "a"), several))

    assert len(receive_all(several[0].queue(QueueName.INGEST))) == 8


def test_a_new_file_may_be_opened_by_many_at_once(tmp_path):
    """Whoever looks while another makes the schema does not take the file for another program's."""

    def look(number):
        database = JobDatabase(tmp_path / f"jobs-{number // 8}", sleep=time.sleep)
        with database.reading() as connection:
            found = connection.execute("PRAGMA user_version").fetchone()[0]
        database.close()
        return found

    with ThreadPoolExecutor(8) as threads:
        versions = list(threads.map(look, range(1_600)))

    assert set(versions) == {VERSION}
