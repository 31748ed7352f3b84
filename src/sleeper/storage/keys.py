"""Checks keys of objects: the same keys are valid in a folder, in a bucket and in memory."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sleeper.errors import BadRequest

TEMPORARY = ".tmp-"
"""Prefix of the names of temp files. No part of a key may start with it."""

# An empty name, ".", "..", a name reserved for temp files, NUL, or half of a surrogate
# pair (which UTF-8 cannot encode).
_FORBIDDEN = re.compile(r"(?:^|/)(?:\.{0,2}(?:/|\Z)|\.tmp-)|[\0\ud800-\udfff]")


def is_key(text: str) -> bool:
    """Return whether `text` is a valid key."""
    return _FORBIDDEN.search(text) is None


def check_key(key: str) -> None:
    """Check that `key` is valid, so that it stays inside the store.

    Raises:
        BadRequest: it is not valid.
    """
    if _FORBIDDEN.search(key):
        raise BadRequest(
            f"{key!r} cannot be an object's key. A key is names joined by '/'; none of them may be "
            f"empty, '.', '..', start with {TEMPORARY!r}, contain NUL, or be invalid in UTF-8."
        )


def check_prefix(prefix: str) -> None:
    """Check that `prefix` is a valid folder, followed by the start of a name or nothing.

    Raises:
        BadRequest: its folder is not a valid key.
    """
    folder, slash, _ = prefix.rpartition("/")
    if slash:
        check_key(folder)


def folder_prefix(folder: str) -> str:
    """Return the prefix of every key in `folder`: `a/b/` for `a/b` and for `a/b/`.

    Raises:
        BadRequest: `folder` is not a valid key.
    """
    name = folder.removesuffix("/")
    if not name:
        return ""
    check_key(name)
    return f"{name}/"


def check_ranges(key: str, ranges: Sequence[tuple[int, int]]) -> None:
    """Check that no offset or length is negative.

    Raises:
        BadRequest: one is.
    """
    for offset, length in ranges:
        if offset < 0 or length < 0:
            raise BadRequest(
                f"cannot read {length} bytes at offset {offset} of {key!r}: neither may be negative"
            )
