"""A program: processes that use one SQLite file of jobs, and may be killed while they do.

    python processes.py race FOLDER MESSAGES            4 producers and 4 consumers
    python processes.py kill FOLDER ROUNDS SEED         4 processes a round, killed without warning

Every process appends to a file of its own in FOLDER/notes, a line a call: `? ` and what it is
about to do, `! ` and what it was told that it did.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import sys
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from sleeper.model.jobs.events import JobEvent, JobEventType
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.model.jobs.messages import NewMessage, QueueSettings
from sleeper.model.jobs.submitted_files import SubmittedFile
from sleeper.storage.local.jobs.job_stores import SqliteJobStores

LONG_AFTER = datetime(2100, 1, 1, tzinfo=UTC)


def open_stores(folder: Path) -> SqliteJobStores:
    """Open the file in `folder` with real time and ids."""
    return SqliteJobStores(
        folder / "jobs.sqlite",
        {QueueName.INGEST: QueueSettings(receives_max=1_000_000)},
        now=lambda: datetime.now(UTC),
        sleep=time.sleep,
        new_id=lambda: str(uuid.uuid4()),
    )


class Notes:
    """What one process says, kept when it is killed."""

    def __init__(self, folder: Path, name: str) -> None:
        (folder / "notes").mkdir(exist_ok=True)
        self.file = (folder / "notes" / name).open("ab", buffering=0)

    def about_to(self, what: str, *names: str) -> None:
        self.file.write("".join(f"? {what} {name}\n" for name in names).encode())

    def done(self, what: str, *names: str) -> None:
        self.file.write("".join(f"! {what} {name}\n" for name in names).encode())


def read_notes(folder: Path) -> list[tuple[str, str]]:
    """Return what all processes said, as ("! send", "a:1"). A line cut off by a kill is left out."""
    notes = []
    for path in sorted((folder / "notes").iterdir()):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                mark, what, name = line.split()
                notes.append((f"{mark} {what}", name))
    return notes


def produce(stores: SqliteJobStores, notes: Notes, name: str, messages: int) -> None:
    """Send so many messages, some singly and some in tens."""
    queue, sent = stores.queue(QueueName.INGEST), 0
    while sent < messages:
        names = [f"{name}:{n}" for n in range(sent, min(messages, sent + random.choice([1, 10])))]
        queue.send([NewMessage(body=each) for each in names])
        notes.done("send", *names)
        sent += len(names)


def consume(stores: SqliteJobStores, notes: Notes) -> None:
    """Receive and delete until nothing comes for some seconds."""
    queue = stores.queue(QueueName.INGEST)
    while messages := queue.receive(random.choice([1, 10]), wait_s=4):
        notes.done("receive", *(each.body for each in messages))
        deleted = queue.delete([each.receipt for each in messages])
        names = [
            each.body for each, is_deleted in zip(messages, deleted, strict=True) if is_deleted
        ]
        notes.done("delete", *names)


def do_anything(stores: SqliteJobStores, notes: Notes, name: str) -> None:
    """Call everything in any order, for ever."""
    queue, held, n = stores.queue(QueueName.INGEST), [], 0
    while True:
        n += 1
        what = random.choice(
            ["send", "receive", "receive", "use", "use", "redrive", "record", "batch"]
        )
        if what == "send":
            produce(stores, notes, f"{name}.{n}", random.choice([1, 10]))
        elif what == "receive":
            held += queue.receive(random.choice([1, 10]), visibility_s=random.choice([0, 1, 900]))
        elif what == "use" and held:
            use(stores, notes, held.pop(random.randrange(len(held))))
        elif what == "redrive":
            queue.redrive()
        elif what == "record":
            at = datetime.now(UTC)
            event = JobEvent(
                kind=JobKind.INGEST,
                table_id="t",
                job_id=f"{name}.{n}",
                type=JobEventType.STARTED,
                at=at,
            )
            stores.tracker.record([event], expires=LONG_AFTER)
            notes.done("record", event.job_id)
        elif what == "batch":
            submit(stores, notes, f"{name}.{n}")


def use(stores: SqliteJobStores, notes: Notes, message) -> None:
    """Delete, extend, release or bury a message that was received."""
    queue = stores.queue(QueueName.INGEST)
    calls: dict[str, Callable[[], bool]] = {
        "delete": lambda: queue.delete([message.receipt])[0],
        "extend": lambda: queue.extend(message.receipt, 1),
        "release": lambda: queue.release(message.receipt),
        "bury": lambda: queue.bury(message.receipt, "why"),
    }
    what = random.choice([*calls])
    notes.about_to(what, message.body)
    if calls[what]():
        notes.done(what, message.body)


def submit(stores: SqliteJobStores, notes: Notes, name: str) -> None:
    """Submit a file, or send a job of files."""
    batcher = stores.batcher
    if random.random() < 0.5:
        file = SubmittedFile(
            table_id="t", path=name, size_bytes=1, received=datetime.now(UTC), expires=LONG_AFTER
        )
        batcher.save([file])
        notes.done("save", name)
    elif batcher.assign(name, batcher.pending()[:3], QueueName.INGEST):
        notes.done("assign", name)
        if random.random() < 0.5:
            notes.about_to("note-sent", name)
            batcher.note_sent(name)


def fork(folder: Path, name: str, work: Callable[[SqliteJobStores, Notes], None], stores) -> int:
    """Do `work` in a child, with the parent's stores, and return the child's id."""
    of_parent = [*stores._database._idle]
    child = os.fork()
    if child == 0:
        random.seed(name)
        status = 1
        try:
            with stores._database.reading() as connection:
                assert connection not in of_parent
            work(stores, Notes(folder, name))
            status = 0
        finally:
            os._exit(status)
    return child


def race(folder: Path, messages: int) -> None:
    """Let producers and consumers run to their end, and print how they ended."""
    stores = open_stores(folder)
    stores.queue(QueueName.INGEST).depth()  # a connection that children must not use
    children = []
    for n in range(4):
        name = f"producer-{n}"
        children.append(
            fork(
                folder, name, lambda s, notes, name=name: produce(s, notes, name, messages), stores
            )
        )
        children.append(fork(folder, f"consumer-{n}", consume, stores))
    ends = {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children}
    sys.stdout.write(f"{ends}\n")


def kill(folder: Path, rounds: int, seed: str) -> None:
    """Kill all children of each round at some moment; print what is wrong with the file."""
    stores = open_stores(folder)
    for number in range(rounds):
        children = []
        for n in range(4):
            name = f"{seed}-{number}-{n}"
            children.append(
                fork(folder, name, lambda s, notes, name=name: do_anything(s, notes, name), stores)
            )
        random.seed(f"{seed}-{number}")
        for child in children:
            time.sleep(random.uniform(0.01, 0.2))
            os.kill(child, signal.SIGKILL)
        ends = {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children}
        assert ends == {-signal.SIGKILL}, ends
        stores.queue(QueueName.INGEST).depth()
        with sqlite3.connect(folder / "jobs.sqlite") as connection:
            found = connection.execute("PRAGMA integrity_check").fetchall()
        connection.close()
        sys.stdout.write(f"{found}\n")


if __name__ == "__main__":
    if sys.argv[1] == "race":
        race(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        kill(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
