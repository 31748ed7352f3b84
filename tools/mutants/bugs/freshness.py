"""Bugs in how old an answer may be."""

from __future__ import annotations

from ..bug import Bug

MAX_AGE = ("tests/stories/test_max_age.py",)
NEWEST_COPY = ("tests/stories/test_newest_copy.py",)
WITHOUT_LOOK = ("tests/unit/state/test_commit_without_look.py",)

BUGS = (
    Bug(
        name="version-after-its-time",
        breaks="A table as of the time of a transaction is the table before it.",
        module="state/kept_versions.py",
        right="return at is None or at <= time",
        wrong="return at is None or at < time",
        tests=("tests/stories/test_history.py",),
    ),
    Bug(
        name="compacted-rows-are-new",
        breaks="Rows that a compaction wrote anew count as added.",
        module="state/change_feed.py",
        right="        if isinstance(transaction, AddFiles):\n",
        wrong="        if type(transaction).__name__ == 'ReplaceFiles':\n"
        "            row_counts[transaction.output.filename] = transaction.output.row_count\n"
        "        if isinstance(transaction, AddFiles):\n",
        tests=("tests/stories/test_history.py",),
    ),
    Bug(
        name="old-answer-returned",
        breaks="An answer that was begun before a look is returned although the look found a newer "
        "state.",
        module="tables/open_table.py",
        right="        and (state.number, state.digest) == (before_state.number, "
        "before_state.digest)\n",
        wrong="",
        tests=MAX_AGE,
    ),
    Bug(
        name="old-properties-used",
        breaks="An answer that was begun with other properties is returned.",
        module="tables/open_table.py",
        right="        opened.reader is before.reader\n        and ",
        wrong="        ",
        tests=MAX_AGE,
    ),
    Bug(
        name="own-commit-missed",
        breaks="Within the allowed age a process does not see its own commit.",
        module="tables/state_stores.py",
        right="        note_commit=place.changes.note,\n        is_remote",
        wrong="        is_remote",
        tests=MAX_AGE,
    ),
    Bug(
        name="own-change-of-the-index-missed",
        breaks="Within the allowed age a process does not see properties that it has set.",
        module="tables/instance_context.py",
        right="self.index = NotedTableIndex(index, OwnChanges(place.url))",
        wrong="self.index = index",
        tests=MAX_AGE,
    ),
    Bug(
        name="age-counts-from-the-last-query",
        breaks="A reader that asks often never looks again.",
        module="tables/open_table.py",
        right="        if is_young:\n            return found\n",
        wrong="        if is_young:\n            looked = self._looked\n"
        "            self._looked = replace(looked, begun_s=self._context.clock.ticks_s())\n"
        "            return found\n",
        tests=MAX_AGE,
    ),
    Bug(
        name="entries-that-came-meanwhile-end-the-log",
        breaks="Of entries that are read at once, one that was created meanwhile hides later ones.",
        module="storage/transaction_log.py",
        right="            if all(later() is None for later in answers):\n                return\n",
        wrong="            return\n",
        tests=("tests/unit/storage/test_reading_ahead.py",),
    ),
    Bug(
        name="copy-taken-for-the-newest",
        breaks="A reader that opens a table by a copy of its state misses the entries after it.",
        module="state/log_store.py",
        right="                return self._hold(self._caught_up(self._hold_copy(copy)))\n",
        wrong="                return self._hold_copy(copy)\n",
        tests=NEWEST_COPY,
    ),
    Bug(
        name="copy-in-a-store-that-is-not-trusted",
        breaks="Where an entry may be replaced, a copy of it is believed.",
        module="tables/state_stores.py",
        right="place.files.beside if is_remote and checks.read_back else None",
        wrong="None",
        tests=NEWEST_COPY,
    ),
    Bug(
        name="copy-of-tables-in-a-store-that-is-not-trusted",
        breaks="Where an entry of the table index may be replaced, a copy of it is believed.",
        module="storage/table_index.py",
        right="objects.beside if objects.is_remote and checks.read_back else None",
        wrong="None",
        tests=NEWEST_COPY,
    ),
    Bug(
        name="answer-from-the-copy-of-a-lost-entry",
        breaks="An answer from a copy is returned, though another entry has its number.",
        module="tables/open_table.py",
        right="        and (state.number, state.digest) == (before_state.number, "
        "before_state.digest)\n",
        wrong="        and state.number == before_state.number\n",
        tests=NEWEST_COPY,
    ),
    Bug(
        name="copy-of-a-lost-entry-compared-late",
        breaks="A handle that waited takes the copy of a lost entry for a replaced instance.",
        module="tables/state_stores.py",
        right="        state = store.compared()\n",
        wrong="        state = store.known()\n",
        tests=NEWEST_COPY,
    ),
    Bug(
        name="entry-of-a-copy-not-compared-before-an-append",
        breaks="An entry is appended after one that was replaced since it confirmed a copy.",
        module="storage/followed_log.py",
        right="last.is_read_alone and not is_before_append",
        wrong="last.is_read_alone",
        tests=("tests/unit/storage/test_followed_log.py",),
    ),
    Bug(
        name="nothing-to-do-without-a-look",
        breaks="A commit is dropped because it would not change a state that is not the newest.",
        module="state/commit.py",
        right="            if entry.body is not None:  # if",
        wrong="            if True:  # if",
        tests=WITHOUT_LOOK,
    ),
    Bug(
        name="looks-not-shared",
        breaks="Each of many threads looks for newer commits by requests of its own.",
        module="tables/open_table.py",
        right="if self._under_way < LOOKS_AT_ONCE and self._next is None:",
        wrong="if True:",
        tests=("tests/unit/tables/test_looks_together.py",),
    ),
    Bug(
        name="look-begun-before-is-used",
        breaks="A query uses a look for newer commits that began before it did.",
        module="tables/open_table.py",
        right="following, self._next = self._next, None",
        wrong="following = self._next",
        tests=("tests/unit/tables/test_looks_together.py",),
    ),
)
