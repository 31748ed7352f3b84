"""A program: runs a server, and kills it when the process that started this has ended.

    python keeper.py COMMAND ARGUMENT...

Its standard input is a pipe that only that process holds: it ends with it, however that ends.
"""

from __future__ import annotations

import subprocess
import sys
from threading import Thread


def main(command: list[str]) -> int:
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def wait_for_the_end() -> None:
        sys.stdin.buffer.read()
        server.kill()

    Thread(target=wait_for_the_end, daemon=True).start()
    return server.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
