"""Who commits, and why: entries of a table's log say it, and the history of a table shows it.

A process commits as its user. Code that commits for somebody else, or for a stated reason, does so
in a block of `committing`, which goes to other threads with the context of Python's `contextvars`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Final

from sleeper.errors import BadRequest

TEXT_MAX: Final = 500
"""The longest name of an author, and the longest reason, in characters."""


@dataclass(frozen=True, slots=True)
class Author:
    """Who commits a transaction, and why.

    Attributes:
        by: Who: `user@host`, the name of a token of the REST server, or a role in AWS. None where
            nobody said.
        reason: Why, in the words of whoever asked for it; None where nobody said.

    Raises:
        BadRequest: a text is empty, longer than 500 characters, or no valid Unicode.
    """

    by: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        for name, text in (("by", self.by), ("reason", self.reason)):
            if text is not None:
                _check(name, text)


def _check(name: str, text: str) -> None:
    if type(text) is not str or not text.strip():
        raise BadRequest(f"{name} is a text that says something, not {text!r}; leave it out")
    if len(text) > TEXT_MAX:
        raise BadRequest(
            f"{name} has {len(text):,} characters, and may have {TEXT_MAX}; name a document that "
            "says the rest"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"{name} is not valid Unicode: {text!r}") from None


_NOBODY: Final = Author()
_committing: ContextVar[Author] = ContextVar("sleeper_author", default=_NOBODY)


@contextmanager
def committing(*, by: str | None = None, reason: str | None = None) -> Iterator[None]:
    """Commit in this block as somebody, for a reason; what is None is as outside of the block.

    Raises:
        BadRequest: a text cannot be recorded.
    """
    outside = _committing.get()
    commit_from_here_on(by=by, reason=reason)
    try:
        yield
    finally:
        _committing.set(outside)


def commit_from_here_on(*, by: str | None = None, reason: str | None = None) -> None:
    """As `committing`, for the rest of a context that ends by itself, such as a request's."""
    outside = _committing.get()
    _committing.set(
        Author(
            by=outside.by if by is None else by,
            reason=outside.reason if reason is None else reason,
        )
    )


def author_now(user: str | None = None) -> Author:
    """Return who commits here and now.

    Args:
        user: The user of this process, who commits unless somebody else was named.
    """
    author = _committing.get()
    return author if author.by is not None or user is None else replace(author, by=user)
