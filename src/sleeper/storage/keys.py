"""Which strings may be an object's key: the same ones in a folder, in a bucket and in memory."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sleeper.errors import BadRequest

TEMPORARY = ".tmp-"
"""What the name of an unfinished file starts with, so no key has a name that does."""

# An empty name, ".", "..", a name reserved for unfinished files, NUL, or half a character
# (which UTF-8 cannot hold).
_FORBIDDEN = re.compile(r"(?:^|/)(?:\.{0,2}(?:/|\Z)|\.tmp-)|[\0\ud800-\udfff]")


def is_key(text: str) -> bool:
    """Say whether `text` may be a key."""
    return _FORBIDDEN.search(text) is None


def check_key(key: str) -> None:
    """Make sure that `key` may be a key, and so stays inside the store.

    Raises:
        BadRequest: it may not.
    """
    if not is_key(key):
        raise BadRequest(
            f"{key!r} cannot be an object's key. A key is names joined by '/'; none of them may be "
            f"empty, '.', '..' or start with {TEMPORARY!r}, hold a NUL, or be unfit for UTF-8."
        )


def check_prefix(prefix: str) -> None:
    """Make sure that `prefix` is whole names, then any start of a name.

    Raises:
        BadRequest: its folder may not be a key.
    """
    folder, slash, _ = prefix.rpartition("/")
    if slash:
        check_key(folder)


def folder_prefix(folder: str) -> str:
    """Return what every key in `folder` starts with: `a/b` and `a/b/` both give `a/b/`.

    Raises:
        BadRequest: `folder` may not be a key.
    """
    name = folder.removesuffix("/")
    if not name:
        return ""
    check_key(name)
    return f"{name}/"


def check_ranges(key: str, ranges: Sequence[tuple[int, int]]) -> None:
    """Make sure that no (offset, length) is negative.

    Raises:
        BadRequest: one is.
    """
    for offset, length in ranges:
        if offset < 0 or length < 0:
            raise BadRequest(
                f"cannot read {length} bytes at offset {offset} of {key!r}: neither may be negative"
            )
