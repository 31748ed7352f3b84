"""What a storage keeps of objects that were replaced or deleted, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OldVersions:
    """What was deleted of the objects that a storage had kept when they were replaced or deleted.

    Attributes:
        deleted: How many of them.
        size_bytes: Their size.
        failures: Why others could not be deleted, by place.
        unknown: Why it is not known whether there are any; None if it is.
    """

    deleted: int = 0
    size_bytes: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    unknown: str | None = None
