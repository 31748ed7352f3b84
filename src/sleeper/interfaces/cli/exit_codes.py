"""Exit codes, and the function that runs a command and returns its exit code.

The same error always gives the same code, for every command.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from sleeper.errors import SleeperError
from sleeper.interfaces.cli.stderr import warn

EXIT_REFUSED = 1
EXIT_WRONG_USE = 2
EXIT_TRY_AGAIN = 75
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143

EXIT_CODES = {
    0: "Done.",
    EXIT_REFUSED: "Refused or failed, entirely or in part: the message says what and why.",
    EXIT_WRONG_USE: "The command line is wrong: an unknown option, a value of the wrong form, or "
    "a missing file that an option names.",
    EXIT_TRY_AGAIN: "The call is correct, and the same call may succeed later.",
    EXIT_INTERRUPTED: "Interrupted by Ctrl-C.",
    EXIT_TERMINATED: "Ended by SIGTERM.",
}
"""What each exit code means."""


class Terminated(BaseException):
    """SIGTERM was received. A `BaseException`, so that `except Exception` does not catch it."""


def run_command(command: click.Command, name: str, arguments: list[str] | None) -> int:
    """Run a command, print the error that ends it, and return its exit code."""
    try:
        with _terminated_by_signal():
            code: Any = command.main(args=arguments, prog_name=name, standalone_mode=False)
    except SleeperError as error:
        warn(f"sleeper: {error}")
        return EXIT_TRY_AGAIN if error.retryable else EXIT_REFUSED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        warn("sleeper: interrupted; nothing more was changed")
        return EXIT_INTERRUPTED
    except Terminated:
        warn("sleeper: ended by SIGTERM; nothing more was changed")
        return EXIT_TERMINATED
    except OSError as error:  # of the terminal, or of a file on the command line
        where = f"{error.filename}: " if error.filename else ""
        warn(f"sleeper: {where}{error.strerror or error}")
        return EXIT_REFUSED
    return code if isinstance(code, int) else 0


@contextmanager
def _terminated_by_signal() -> Iterator[None]:
    """Raise `Terminated` in this thread on SIGTERM, so that cleanup code runs."""
    if threading.current_thread() is not threading.main_thread():  # handlers can be set only there
        yield
        return

    def terminate(*_: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
