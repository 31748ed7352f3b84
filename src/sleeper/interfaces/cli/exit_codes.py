"""How commands end: one table of exit codes, and one function that runs a command and ends by it.

The same error always gives the same code, whichever command it ends.
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
    EXIT_REFUSED: "Refused or failed, or done in part: the message says what and why.",
    EXIT_WRONG_USE: "The command line is wrong: an unknown option, a value of the wrong form, or "
    "a missing file that an option names.",
    EXIT_TRY_AGAIN: "Nothing is wrong with the call: the very same may succeed later.",
    EXIT_INTERRUPTED: "Interrupted by Ctrl-C.",
    EXIT_TERMINATED: "Ended by SIGTERM.",
}
"""What each exit code means."""


class Terminated(BaseException):
    """SIGTERM has come. Whoever catches nothing but errors lets it through."""


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
    except OSError as error:  # of the terminal, or of a file that the command line named
        where = f"{error.filename}: " if error.filename else ""
        warn(f"sleeper: {where}{error.strerror or error}")
        return EXIT_REFUSED
    return code if isinstance(code, int) else 0


@contextmanager
def _terminated_by_signal() -> Iterator[None]:
    """Raise `Terminated` where SIGTERM finds this thread, so that nothing is left half done."""
    if threading.current_thread() is not threading.main_thread():  # only there can it be done
        yield
        return

    def terminate(*_: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
