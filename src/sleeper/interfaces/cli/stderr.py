"""What people read on stderr: messages, and log lines as `-v` and `--log-format` ask for them.

Names in it come from tables and files, and may hold anything. Logging is set up here alone.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Literal

import click

LogFormat = Literal["text", "json"]
_LOGGER = "sleeper"
_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


def warn(text: str) -> None:
    """Print a message on stderr; what could move a terminal's cursor is written as escapes."""
    click.echo("\n".join(map(visible, text.split("\n"))), err=True)


def visible(text: str) -> str:
    """Write what would move the cursor, break the line or not print at all as an escape."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


class _Stderr(logging.Handler):
    """Writes to stderr as it is when a line comes."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            warn(self.format(record))
        except Exception:  # noqa: BLE001 - as logging's own handlers do
            self.handleError(record)


class _Text(logging.Formatter):
    """`sleeper: warning: ...` in commands; with the time in services, which run for days."""

    def __init__(self, *, with_time: bool) -> None:
        super().__init__()
        self.with_time = with_time

    def format(self, record: logging.LogRecord) -> str:
        start = f"{_time(record)} {record.levelname:<7}" if self.with_time else "sleeper:"
        level = "" if self.with_time else f"{record.levelname.lower()}: "
        text = f"{start} {level}{record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class _Json(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, ensure_ascii=False)


class LogOutput:
    """What the options `-v` and `--log-format` have chosen; a service asks for more."""

    def __init__(self, verbosity: int, form: LogFormat) -> None:
        self._handler = _Stderr()
        self._form = form
        self._verbosity = verbosity
        self._logger = logging.getLogger(_LOGGER)
        self._level = _LEVELS[min(verbosity, len(_LEVELS) - 1)]
        self._set_formatter(with_time=False)

    def serve(self) -> None:
        """Tell what is done, with time and level, as fits a process that runs for days."""
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
        """Take log lines while the block runs."""
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
