"""Bugs that show where other processes come in between: simulated worlds must catch them."""

from __future__ import annotations

from ..bug import Bug

WORLDS = ("tests/simulator", "-k", "whatever_stops")
"""Several processes ingest, upsert, delete, change columns, compact, split and merge at once."""

BUGS = (
    Bug(
        name="upsert-deletes-its-own-rows",
        breaks="The deletion of an upsert applies to the files that come with it.",
        module="model/row_deletes.py",
        right="        return sequence is None or sequence < self.number\n",
        wrong="        return sequence is None or sequence <= self.number\n",
        tests=WORLDS,
    ),
    Bug(
        name="leaves-not-compared",
        breaks="An upsert leaves rows of its keys that others have added while it wrote leaves.",
        module="state/transactions/preconditions.py",
        right="        for leaf_id, known in self.known.items():\n",
        wrong="        for leaf_id, known in {**self.known}.fromkeys((), frozenset()).items():\n",
        tests=WORLDS,
    ),
    Bug(
        name="compacted-later-than-deletions",
        breaks="A compaction that read before a deletion counts as written after it.",
        module="engine/writing/compaction_output.py",
        right="        sequence=claimed.sequence,\n",
        wrong="        sequence=None,\n",
        tests=WORLDS,
    ),
    Bug(
        name="upserted-without-a-deletion",
        breaks="An upsert adds its rows although its deletion is refused.",
        module="tables/upsert.py",
        right="commit_group(both, together=True)",
        wrong="commit_group(both, together=False)",
        tests=WORLDS,
    ),
)
