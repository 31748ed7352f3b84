"""A program: runs a server, and kills it when the process that started this has ended.

    python keeper.py COMMAND ARGUMENT...

Its standard input is a pipe that the process holds: it ends with it, however that ends. SIGTERM
ends both as well, for a fork of the process may hold the pipe longer.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from threading import Thread


def main(command: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def wait_for_the_end() -> None:
        sys.stdin.buffer.read()
        server.kill()

    Thread(target=wait_for_the_end, daemon=True).start()
    try:
        return server.wait()
    finally:
        server.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
