"""A program: append entries to the log in a folder, and print each number once it is acknowledged.

    python append_in_a_loop.py FOLDER WRITER COUNT

An entry is `writer:n:` and filling up to a few kilobytes, so that a torn one would show.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sleeper.storage.local.folder import FolderObjects
from sleeper.storage.transaction_log import ObjectTransactionLog

BODY_SIZE_BYTES = 5_000


def body(writer: str, n: int) -> bytes:
    """Return the `n`th entry of `writer`."""
    return f"{writer}:{n}:".encode().ljust(BODY_SIZE_BYTES, b".")


def main(folder: str, writer: str, entries: int) -> None:
    """Append `entries` of them, each at the first free number."""
    log = ObjectTransactionLog(FolderObjects(Path(folder)))
    number = 1
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    for n in range(entries):
        while not log.append(number, body(writer, n)):
            number += 1
        sys.stdout.write(f"{number}:{writer}:{n}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
