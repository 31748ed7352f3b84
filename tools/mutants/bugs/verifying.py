"""Bugs in the checks of what is stored."""

from __future__ import annotations

from ..bug import Bug

DAMAGE = ("tests/stories/test_verify.py", "-k", "damage or overlap or hides")
"""Each kind of damage is made, and must be found by its name."""

BUGS = (
    Bug(
        name="order-within-batches",
        breaks="Rows are compared with the one before only inside of a batch of keys.",
        module="engine/reading/check_file.py",
        right="keys if self.last is None else pa.concat_batches([self.last, keys])",
        wrong="keys",
        tests=("tests/unit/engine/reading/test_check_file.py", "-k", "batches"),
    ),
    Bug(
        name="parts-not-counted",
        breaks="The row count of a reference to a part of a file is not compared.",
        module="engine/reading/check_file.py",
        right="        elif not reference.row_count_estimated and inside != reference.row_count:\n",
        wrong="        elif reference.whole_file and inside != reference.row_count:\n",
        tests=DAMAGE,
    ),
    Bug(
        name="rows-outside-accepted",
        breaks="Rows outside of the leaf that has the whole file are not reported.",
        module="engine/reading/check_file.py",
        right="        if reference.whole_file and inside != keys.row_count:\n",
        wrong="        if reference.whole_file and inside > keys.row_count:\n",
        tests=DAMAGE,
    ),
    Bug(
        name="sums-between-pages-unread",
        breaks="A damaged sum between two pages is not found.",
        module="engine/reading/check_file.py",
        right="verify_pages(self._lookup, file.filename, every_sum=True)",
        wrong="verify_pages(self._lookup, file.filename)",
        tests=("tests/unit/engine/reading/test_check_file.py",),
    ),
    Bug(
        name="log-read-twice",
        breaks="A check reads each entry twice: for the state, and for the chain.",
        module="tables/verify_state.py",
        right="                self._chain.look_at(number, body)\n",
        wrong="",
        tests=("tests/requests/test_requests.py", "-k", "entry_of_a_log_once"),
    ),
    Bug(
        name="snapshots-only-opened",
        breaks="A snapshot is read, and not compared with the log.",
        module="tables/verify_state.py",
        right="            differing = _differing(stored.load(), replayed)\n",
        wrong="            differing = _differing(stored.load(), stored.load())\n",
        tests=DAMAGE,
    ),
    Bug(
        name="replayed-from-the-newest-snapshot",
        breaks="Entries that a snapshot hides are not missed.",
        module="tables/verify_state.py",
        right="            number = at.number + 1\n            missing",
        wrong="            return\n            missing",
        tests=DAMAGE,
    ),
    Bug(
        name="collected-files-are-missing",
        breaks="A file that was compacted and deleted meanwhile is reported as missing.",
        module="tables/verify.py",
        right="        state = store.refresh()\n        now",
        wrong="        break\n        now",
        tests=("tests/stories/test_verify.py", "-k", "collected_since"),
    ),
    Bug(
        name="index-read-from-its-checkpoint",
        breaks="A gap in the table index that a checkpoint hides is not found.",
        module="state/table_index.py",
        right="            if replayed.number < checkpoint.number:\n",
        wrong="            if replayed.number < 0:\n",
        tests=("tests/stories/test_verify.py", "-k", "table_index"),
    ),
)
