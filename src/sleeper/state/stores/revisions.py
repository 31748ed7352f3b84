"""Revisions: the whole state of a table, which each commit replaces."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

from sleeper.errors import DataDamaged
from sleeper.state.state_store import SweepLimits, SweptStates
from sleeper.state.table_state import TableState
from sleeper.state.value_json import time_from_json, time_to_json

_COMMITS_KEPT = 32
_LOOKS_KEPT = 32
_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class RevisionHistory:
    """What a revision remembers of the commits before it. A store keeps it as JSON.

    Attributes:
        commit_ids: The ids of the last commits, the newest last.
        looks: Pairs of a time by the storage's clock and a date: every commit that is dated up to
            this date was stored before that time. Ascending; the older they are, the fewer.
    """

    commit_ids: tuple[str, ...] = ()
    looks: tuple[tuple[datetime, datetime], ...] = ()

    def followed_by(
        self, commit_id: str, *, before: datetime | None, now: datetime
    ) -> RevisionHistory:
        """Return the history after one more commit.

        Args:
            commit_id: Its id.
            before: The date of the commit before it, which its writer has read; None for none.
            now: The storage's time, at which its writer looked after that.
        """
        looked = self if before is None else self.looked_at(before, now)
        return RevisionHistory((*self.commit_ids, commit_id)[-_COMMITS_KEPT:], looked.looks)

    def looked_at(self, date: datetime, now: datetime) -> RevisionHistory:
        """Return the history with one more look, which found the commit of this date.

        Clocks differ by seconds, and the storage's may be set back. Older looks at a later time,
        at an older commit, prove nothing that this one does not prove, so they are dropped.
        """
        proving = (look for look in self.looks if look[0] < now or look[1] > date)
        return RevisionHistory(self.commit_ids, _thinned((*proving, (now, date))))

    def has_seen(self, date: datetime) -> bool:
        """Return whether a look has found the commit of this date."""
        return any(date <= seen for _, seen in self.looks)

    def commit_id(self, number: int, newest: int) -> str | None:
        """Return the id of commit `number`, if `newest` is the last one; None if it is not kept."""
        back = newest - number
        return self.commit_ids[-1 - back] if 0 <= back < len(self.commit_ids) else None

    def dates_stored_before(self, time: datetime) -> datetime:
        """Return a date: every commit that is dated before it was stored before `time`."""
        dates = [date for looked, date in self.looks if looked <= time]
        return min(time, max(dates) + _MOMENT) if dates else datetime.min.replace(tzinfo=UTC)

    def to_json(self) -> str:
        """Return it as JSON."""
        looks = [[time_to_json(looked), time_to_json(date)] for looked, date in self.looks]
        return json.dumps({"commits": self.commit_ids, "looks": looks}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> RevisionHistory:
        """Parse what `to_json` wrote.

        Raises:
            DataDamaged: it is something else.
        """
        try:
            found = json.loads(text)
            looks = (
                (time_from_json(looked), time_from_json(date)) for looked, date in found["looks"]
            )
            return cls(tuple(found["commits"]), tuple(looks))
        except (ValueError, TypeError, LookupError) as error:
            raise DataDamaged(f"the history of a table's revisions is damaged: {error}") from error


@dataclass(frozen=True, slots=True)
class Revision:
    """The state of a table after a commit, with the history up to it.

    Attributes:
        state: The state; its number is the revision's number.
        history: The commits before it, and its own.
    """

    state: TableState = field(default_factory=TableState.empty)
    history: RevisionHistory = field(default_factory=RevisionHistory)


class StateRevisions(Protocol):
    """The interface of a store of revisions of one table; `storage.aws.state` has adapters."""

    @property
    def changes_max(self) -> int | None:
        """How many changes one commit may make, as `StateStore` counts them; None for any."""
        ...

    @property
    def limit(self) -> str | None:
        """What one commit may hold at most, as a clause for errors; None for no limit."""
        ...

    def refresh(self, known: Revision) -> Revision:
        """Return the newest revision: `known` itself if it is, which costs one read.

        If only the history is another, the state is that of `known`.

        Raises:
            DataDamaged: it cannot be read.
            StorageFailed: the storage did not answer.
        """
        ...

    def fits(self, before: TableState, after: TableState) -> bool:
        """Return whether one commit can replace `before` by `after`. Reads nothing."""
        ...

    def replace(self, before: Revision, after: Revision) -> bool:
        """Make `after` the newest revision if `before` is; return False if it is not.

        All or nothing, durably. The last commit id of `after` is its own, so that the call can be
        repeated after a lost reply.

        Raises:
            StorageFailed: there was no answer; it may or may not be the newest.
        """
        ...

    def begin(self, first: Revision) -> None:
        """Make the first revision of a table whose state comes from another state store.

        There is no revision yet, and nobody else reads or writes them before this returns, so it
        need not be all or nothing: a state of any size may be written in many requests. What tells
        `refresh` the revision is written last. It keeps its number, which may be any.

        Raises:
            StorageFailed: it may be there in part. It is not begun again, only deleted.
        """
        ...

    def remember(self, known: Revision) -> None:
        """Replace the history of a revision, if it is the newest, and not its state.

        Raises:
            StorageFailed: there was no answer.
        """
        ...

    def at(self, number: int) -> TableState | None:
        """Return the state of an older revision; None if it is not kept."""
        ...

    def sweep(self, limits: SweepLimits, *, delete: bool) -> SweptStates:
        """Delete old revisions, and what killed writers left, as `StateStore.sweep` says.

        Here a revision was replaced before `limits.kept_since` if the next one is dated before it.
        """
        ...

    def delete(self) -> None:
        """Delete all revisions, as far as they are not objects in the table's folder."""
        ...


def _thinned(
    looks: tuple[tuple[datetime, datetime], ...],
) -> tuple[tuple[datetime, datetime], ...]:
    """Drop one look if there are too many: the one whose neighbours are closest, for its age."""
    if len(looks) <= _LOOKS_KEPT:
        return looks
    newest = looks[-1][0]

    def gap(n: int) -> float:
        age = max(newest - looks[n][0], timedelta()) + timedelta(seconds=1)
        return (looks[n + 1][0] - looks[n - 1][0]) / age

    dropped = min(range(1, len(looks) - 1), key=gap)
    return looks[:dropped] + looks[dropped + 1 :]
