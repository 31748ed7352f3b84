"""Checks what callers of `instance.jobs` give: tables, ids, kinds, states, times and files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeVar

from sleeper.errors import BadRequest
from sleeper.jobs.job_tables import absolute
from sleeper.model.jobs.kinds import ANSWERS, JobKind, QueueName
from sleeper.model.queries import checked_transaction
from sleeper.ports.ids import JOB_ID_MAX

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_LIMIT_MAX: Final = 10_000

Member = TypeVar("Member", bound=StrEnum)


def member(kind: type[Member], value: object, argument: str) -> Member:
    """Return one of an enum's members by its value.

    Raises:
        BadRequest: it has none of this value; names those that it has.
    """
    if isinstance(value, str) and value in [*kind]:
        return kind(value)
    raise BadRequest(f"{argument} is {value!r:.100}, but it must be one of {', '.join(kind)}")


def job_kind(value: object) -> JobKind:
    """Return a kind of jobs.

    Raises:
        BadRequest: there is none of this name.
    """
    return member(JobKind, value, "kind")


def answer_kind(value: object) -> JobKind:
    """Return a kind of jobs that answer a question: `query` or `export`.

    Raises:
        BadRequest: it is another.
    """
    if isinstance(value, str) and value in ANSWERS:
        return JobKind(value)
    raise BadRequest(f"kind is {value!r:.100}, but it must be {' or '.join(ANSWERS)}")


def queue_name(value: object) -> QueueName:
    """Return a queue by its name.

    Raises:
        BadRequest: there is none of this name.
    """
    if isinstance(value, str) and value in [*QueueName]:
        return QueueName(value)
    raise BadRequest(f"there is no queue {value!r:.100}; the queues are {', '.join(QueueName)}")


def id_text(value: object, argument: str) -> str:
    """Return an id of something that was submitted.

    Raises:
        BadRequest: it is no text, or blank, or longer than any id.
    """
    if not isinstance(value, str) or not value.strip() or len(value) > JOB_ID_MAX:
        raise BadRequest(
            f"{argument} is {value!r:.100}, but it must be a text of 1 to {JOB_ID_MAX} characters"
        )
    return value


def table_text(value: object) -> str:
    """Return the name of a table.

    Raises:
        BadRequest: it is no text, or blank.
    """
    if not isinstance(value, str) or not value.strip():
        raise BadRequest(f"table is {value!r:.100}, but it must be the name of a table")
    return value


def check_times(**times: object) -> None:
    """Check times that a caller gave, by the names of their arguments. None is no time.

    Raises:
        BadRequest: one is no datetime, or has no time zone.
    """
    for name, time in times.items():
        if time is None:
            continue
        if not isinstance(time, datetime):
            raise BadRequest(
                f"{name} is {time!r:.100}, but it must be a datetime with a time zone, such as "
                "datetime(2026, 6, 1, tzinfo=UTC)"
            )
        if time.tzinfo is None:
            raise BadRequest(f"{name}={time} has no time zone: add one, such as tzinfo=UTC")


def checked_paths(files: object) -> tuple[str, ...]:
    """Return files as a worker finds them: those of this machine by their whole path.

    Raises:
        BadRequest: there is none, or something is no path.
    """
    given: object = [files] if isinstance(files, str | os.PathLike) else files
    if isinstance(given, bytes | Mapping) or not isinstance(given, Iterable):
        raise BadRequest(f"files is {files!r:.100}, but it must be a path, or a list of paths")
    paths = tuple(given)
    for path in paths:
        is_path = isinstance(path, str | os.PathLike) and isinstance(os.fspath(path), str)
        if not is_path or not os.fspath(path).strip():
            raise BadRequest(
                f"files has {path!r:.100}, but each must be the path or URL of a file or a folder"
            )
    if not paths:
        raise BadRequest("files is empty: name at least one file or folder")
    return tuple(map(absolute, paths))


def message_text(value: object) -> str:
    """Return the text of a message.

    Raises:
        BadRequest: it is no text.
    """
    if not isinstance(value, str):
        raise BadRequest(f"a message is a text of JSON, not {type(value).__name__}")
    return value


def message_ids_of(values: object) -> list[str] | None:
    """Return ids of messages; None for all.

    Raises:
        BadRequest: they are no list of texts.
    """
    if values is None:
        return None
    return _texts(values, "message_ids", "a list of ids", "the id of a message")


def job_ids_of(values: object) -> list[str] | None:
    """Return ids of jobs; None for all.

    Raises:
        BadRequest: they are no list of ids.
    """
    if values is None:
        return None
    ids = _texts(values, "job_ids", "a list of ids", "the id of a job")
    return [id_text(each, "job_ids") for each in ids]


def checked_limit(value: object) -> int:
    """Return how many are wanted at most.

    Raises:
        BadRequest: it is no whole number from 1 to 10,000.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LIMIT_MAX:
        raise BadRequest(
            f"limit is {value!r:.100}, but it must be a whole number from 1 to {_LIMIT_MAX:,}"
        )
    return value


def checked_flag(value: object, argument: str) -> bool:
    """Return whether something is so.

    Raises:
        BadRequest: it is neither True nor False.
    """
    if not isinstance(value, bool):
        raise BadRequest(f"{argument} is {value!r:.100}, but it must be True or False")
    return value


def checked_since(number: object) -> int | None:
    """Return the number of the transaction that a job relies on; None for none.

    Raises:
        BadRequest: it is none.
    """
    if number is None:
        return None
    return checked_transaction(number)


def checked_settings(values: object, argument: str) -> dict[str, str]:
    """Return settings by their names; None for none.

    Raises:
        BadRequest: they are no mapping of texts to texts.
    """
    if values is None:
        return {}
    fits = isinstance(values, Mapping) and all(
        isinstance(each, str) for item in values.items() for each in item
    )
    if not fits or not isinstance(values, Mapping):
        raise BadRequest(f"{argument} is {values!r:.100}, but it must map names to texts")
    return dict(values)


def checked_columns(values: object) -> tuple[str, ...] | None:
    """Return names of columns; None for all.

    Raises:
        BadRequest: they are no list of texts.
    """
    if values is None:
        return None
    return tuple(_texts(values, "columns", "a list of names", "the name of a field"))


def _texts(values: object, argument: str, whole: str, part: str) -> list[str]:
    """Return texts; `whole` and `part` say what the argument and each of them must be."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise BadRequest(f"{argument} is {values!r:.100}, but it must be {whole}")
    texts = [*values]
    for each in texts:
        if not isinstance(each, str):
            raise BadRequest(f"{argument} has {each!r:.100}, but each must be {part}")
    return texts
