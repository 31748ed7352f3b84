"""Writes messages and log lines to stderr; `-v` and `--log-format` control log lines.

Names of tables and files may contain any characters, so they are escaped. Logging is configured
only here.
"""

from __future__ import annotations

import json
import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from textwrap import indent
from typing import Any, Literal

import click

from sleeper.errors import SleeperError

LogFormat = Literal["text", "json"]
_LOGGER = "sleeper"
_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


def warn(text: str) -> None:
    """Print a message on stderr; control characters of the terminal are escaped."""
    click.echo("\n".join(map(visible, text.split("\n"))), err=True)


def visible(text: str) -> str:
    """Escape characters that move the cursor, break the line or are not printable."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


class _Stderr(logging.Handler):
    """Writes to the current `sys.stderr`."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            warn(self.format(record))
        except Exception:  # noqa: BLE001 - as logging's own handlers do
            self.handleError(record)


class _Text(logging.Formatter):
    """Formats `sleeper: warning: ...` in commands; with time and level in services.

    In services a message is one line, and the lines of a trace are indented.
    """

    def __init__(self, *, with_time: bool) -> None:
        super().__init__()
        self.with_time = with_time

    def format(self, record: logging.LogRecord) -> str:
        start = f"{_time(record)} {record.levelname:<7}" if self.with_time else "sleeper:"
        level = "" if self.with_time else f"{record.levelname.lower()}: "
        message = record.getMessage()
        text = f"{start} {level}{visible(message) if self.with_time else message}"
        if record.exc_info:
            # Indented, for a text of others in it may look as a line of this log.
            text += "\n" + indent(self.formatException(record.exc_info), "  ", lambda _: True)
        return text


class _Json(logging.Formatter):
    """Formats one JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        text = json.dumps(document, ensure_ascii=False)
        # What is not printable would be escaped as no JSON has it.
        return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


class LogOutput:
    """The log settings of `-v` and `--log-format`."""

    def __init__(self, verbosity: int, form: LogFormat) -> None:
        self._handler = _Stderr()
        self._form = form
        self._verbosity = verbosity
        self._logger = logging.getLogger(_LOGGER)
        self._level = _LEVELS[min(verbosity, len(_LEVELS) - 1)]
        self._set_formatter(with_time=False)

    def serve(self) -> None:
        """Log more, with time and level, for a process that runs for days."""
        self._logger.setLevel(min(self._level, logging.INFO))
        self._set_formatter(with_time=True)

    @property
    def options(self) -> tuple[str, ...]:
        """Return the options by which another command would log the same way."""
        return (*(["-v"] * self._verbosity), "--log-format", self._form)

    def pass_on(self, line: str) -> None:
        """Print a log line of another process, between the lines of this one."""
        with self._handler.lock or nullcontext():
            warn(line)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Write log lines to stderr while the block runs."""
        before = self._logger.level
        self._logger.addHandler(self._handler)
        self._logger.setLevel(self._level)
        try:
            yield
        finally:
            self._logger.removeHandler(self._handler)
            self._logger.setLevel(before)

    def _set_formatter(self, *, with_time: bool) -> None:
        json_lines = self._form == "json"
        self._handler.setFormatter(_Json() if json_lines else _Text(with_time=with_time))


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# ---------------------------------------------------------------- exit codes
#
# Exit codes, and the function that runs a command and returns its exit code.
#
# The same error always gives the same code, for every command.

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
    except (click.Abort, KeyboardInterrupt, Terminated) as error:
        exit_code, text = end_by_signal(error)
        warn(text)
        return exit_code
    except RuntimeError as error:
        # Python 3.11 wraps what comes while a class is made, as at an import.
        if not isinstance(error.__cause__, KeyboardInterrupt | Terminated):
            raise
        exit_code, text = end_by_signal(error.__cause__)
        warn(text)
        return exit_code
    except OSError as error:  # of the terminal, or of a file on the command line
        where = f"{error.filename}: " if error.filename else ""
        warn(f"sleeper: {where}{error.strerror or error}")
        return EXIT_REFUSED
    return code if isinstance(code, int) else 0


def end_by_signal(error: BaseException) -> tuple[int, str]:
    """Return the exit code and the message of a command that a signal ended."""
    if isinstance(error, Terminated):
        return EXIT_TERMINATED, "sleeper: ended by SIGTERM; nothing more was changed"
    return EXIT_INTERRUPTED, "sleeper: interrupted; nothing more was changed"


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
