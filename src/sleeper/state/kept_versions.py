"""Finds which versions of a table can be read, and which one was the newest at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from sleeper.errors import VersionNotFound
from sleeper.state.stored_times import last_number
from sleeper.state.table_state import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptVersions:
    """The versions of a table that can be read: from `first` up to `newest`, all of them.

    Attributes:
        first: The first transaction of them.
        first_at: When it was committed (aware, UTC); None if the table keeps no time.
        newest: The last transaction.
        newest_at: When it was committed; None for a table without transactions.
    """

    first: int
    first_at: datetime | None
    newest: int
    newest_at: datetime | None


def first_kept(
    newest: TableState, state_after: Callable[[int], TableState | None], *, unkept: int = 0
) -> KeptVersions:
    """Find the first version from which on all can be read.

    By bisection, because the garbage collector deletes the files of older versions first.

    Args:
        newest: The newest state.
        state_after: Returns the state after a transaction; None if it is not kept.
        unkept: A transaction before the first.
    """
    low, high, first = unkept, newest.number, newest
    while high - low > 1:
        middle = (low + high) // 2
        state = state_after(middle)
        if state is None or state.needs_more_than(newest):
            low = middle
        else:
            high, first = middle, state
    return KeptVersions(
        first=first.number, first_at=first.at, newest=newest.number, newest_at=newest.at
    )


def files_deleted(number: int, kept: KeptVersions) -> VersionNotFound:
    """Return the error for a version whose files were deleted."""
    since = "" if kept.first_at is None else f" (since {time_text(kept.first_at)})"
    return VersionNotFound(
        f"files of transaction {number} were deleted: the table can be read as of {kept.first} and "
        f"later, up to {kept.newest}{since}. To keep versions for longer, set "
        "sleeper.table.versions.kept.minutes."
    )


def number_at(
    time: datetime,
    newest: TableState,
    time_of: Callable[[int], datetime | None],
    *,
    or_none: bool = False,
) -> int:
    """Return the number of the last transaction that was committed at or before a time.

    The newest costs nothing; an older one about 2 log2(n) calls for n transactions since then.

    Args:
        time: The time (aware).
        newest: The newest state.
        time_of: Returns when a transaction was committed; None if that is not kept.
        or_none: Whether to return 0 for a time before the first transaction of all.

    Raises:
        VersionNotFound: there is none, or it is no longer kept.
    """
    newest_at = time_of(newest.number) if newest.at is None else newest.at
    if newest_at is not None and newest_at <= time:
        return newest.number
    times = {newest.number: newest_at}

    def is_early(number: int) -> bool:
        at = times[number] = time_of(number)
        return at is None or at <= time

    low = last_number(newest.number - 1, is_early)
    high = low + 1
    if low > 0 and times.get(low) is not None:
        return low
    if or_none and high == 1 and times[high] is not None:
        return 0
    first_at = times[high]
    kept = "" if first_at is None else f", which was committed at {time_text(first_at)}"
    raise VersionNotFound(
        f"the table has no transaction from {time_text(time)} or before, or no longer; the first "
        f"is {high}{kept}. `sleeper history` and Table.history() list them."
    )


def time_text(time: datetime) -> str:
    """Return a time for messages, which `--as-of` takes: ISO 8601 in UTC, to the microsecond."""
    return f"{time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
