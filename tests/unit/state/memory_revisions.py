"""Revisions in memory, for tests of the store that replaces whole states."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from sleeper.errors import StorageFailed
from sleeper.state.revision_store import Revision
from sleeper.state.state_difference import state_difference
from sleeper.state.state_store import SweptStates


class MemoryRevisions:
    """Keeps the newest revision; counts what it is asked, and can lose replies.

    `files_max` is the largest number of references one commit may change, and `changes_max` of
    anything.
    """

    def __init__(self, files_max=None, changes_max=None):
        self.changes_max = changes_max
        self.newest, self.kept = Revision(), {}
        self.files_max = files_max
        self.asked = Counter()
        self.lose_reply, self.fail, self.rival = False, False, None

    @property
    def limit(self):
        if self.changes_max is not None:
            return f"it takes {self.changes_max} changes"
        return f"it takes {self.files_max} references"

    def refresh(self, known):
        self.asked["refresh"] += 1
        if self.fail:
            raise StorageFailed("no answer")
        if known.state.number == self.newest.state.number:
            return (
                known
                if known.history == self.newest.history
                else replace(self.newest, state=known.state)
            )
        return self.newest

    def fits(self, before, after):
        if self.changes_max is not None:
            return state_difference(before, after).changes <= self.changes_max
        changed = set(before.references()) ^ set(after.references())
        return self.files_max is None or len(changed) <= self.files_max

    def replace(self, before, after):
        self.asked["replace"] += 1
        if self.rival is not None:
            rival, self.rival = self.rival, None
            rival()
        if self.newest.state.number != before.state.number:
            return False
        self.newest = after
        self.kept[after.state.number] = after.state
        if self.lose_reply:
            self.lose_reply = False
            raise StorageFailed("no reply")
        return True

    def begin(self, first):
        self.asked["begin"] += 1
        self.newest = first
        self.kept[first.state.number] = first.state

    def remember(self, known):
        self.asked["remember"] += 1
        if self.newest.state.number == known.state.number:
            self.newest = replace(self.newest, history=known.history)

    def at(self, number):
        return self.kept.get(number)

    def sweep(self, limits, *, delete):
        self.asked["sweep"] += 1
        self.limits = limits
        return SweptStates()

    def delete(self):
        self.newest = Revision()
