"""A program: fork writers that commit to the state of one table, and tell of each commit.

    python commit_until_killed.py CLASS FOLDER INSTANCE_ID TABLE_ID WRITERS COMMITS

Each writer opens the state for itself. When a line comes on the standard input, all begin. A writer
adds `COMMITS` files, one by a commit, and writes `writer-n number` once the commit is acknowledged.
Nothing on the machine makes them take turns: the objects have no lock.
"""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from uuid import uuid4

from sleeper.errors import CommitContended
from sleeper.state.state_store import StateStore
from sleeper.state.transactions.files import AddFiles
from sleeper.storage.local.folder import FolderObjects
from tests.contracts.state.places import RealClock, StatePlace
from tests.unit.state.small_tables import ref


class UnlockedFolder(FolderObjects):
    """A folder whose writers do not take turns, as those of a bucket."""

    def writer_lock(self, key, meanwhile):
        return nullcontext()


def commit_all(store: StateStore, writer: str, commits: int) -> None:
    """Commit files one by one, and tell of each."""
    for n in range(commits):
        for attempt in count():
            try:
                state = store.commit(AddFiles(references=(ref(f"{writer}-{n}"),)))
                break
            except CommitContended:  # nothing was written
                StatePlace.pause(attempt)
        os.write(1, f"{writer}-{n} {state.number}\n".encode())  # short, so it is written whole


def main(
    class_name: str, folder: str, instance_id: str, table_id: str, writers: str, commits: str
) -> None:
    """Fork the writers and wait until all have ended."""
    place = StatePlace(class_name, UnlockedFolder(Path(folder)), RealClock())
    place.instance_id, place.table_id = instance_id, table_id
    os.write(1, b"ready\n")
    sys.stdin.readline()
    for _ in range(int(writers)):
        if os.fork() == 0:
            try:
                commit_all(place.open(), uuid4().hex, int(commits))
            except BaseException:  # noqa: BLE001 - a fork must not go on as its parent would
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
    failed = [status for _, status in (os.wait() for _ in range(int(writers))) if status]
    sys.exit(len(failed))


if __name__ == "__main__":
    main(*sys.argv[1:])
