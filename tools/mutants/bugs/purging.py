"""Bugs in purging row keys."""

from __future__ import annotations

from ..bug import Bug

PURGES = ("tests/stories/test_purges.py",)
"""Row keys are purged, and the test searches for them by itself."""
NOWHERE = (*PURGES, "-k", "nowhere")
"""A thousand people in splits, hidden rows, orphans and results."""
KEYS = "tables/purges/keys.py"
FILES = "tables/purges/files.py"
VERSIONS = "tables/purges/versions.py"
TURNS = "tables/purges/turns.py"
TAKEN = ("tests/unit/tables/test_purge_turns.py",)
"""Two purges take turns, and one comes before each call of the other."""

BUGS = (
    Bug(
        name="opened-while-versions-end",
        breaks="A reader that opens a table while a purge ends its versions fails.",
        module="state/log_store.py",
        right="                if newer[-1:] <= numbers[-1:]:",
        wrong="                if newer:",
        tests=("tests/unit/state/test_log_store.py",),
    ),
    Bug(
        name="old-versions-of-purged-rows",
        breaks="A bucket that keeps old versions has purged keys, and the proof does not say so.",
        module="storage/aws/old_versions.py",
        right='if client.get_bucket_versioning(Bucket=bucket).get("Status") is None:',
        wrong='if client.get_bucket_versioning(Bucket=bucket).get("Status") is not None:',
        tests=("tests/stories/test_purges_of_old_versions.py",),
    ),
    Bug(
        name="purge-of-current-versions",
        breaks="A purge deletes the objects of the table, and not their old versions alone.",
        module="storage/aws/old_versions.py",
        right='if not each["IsLatest"]]',
        wrong="if each]",
        tests=("tests/stories/test_purges_of_old_versions.py",),
    ),
    Bug(
        name="held-versions-are-gone",
        breaks="An old version that could not be deleted counts as deleted.",
        module="storage/aws/old_versions.py",
        right="                if name in refused:\n",
        wrong="                if name in refused and not page:\n",
        tests=("tests/stories/test_purges_of_old_versions.py",),
    ),
    Bug(
        name="purge-of-visible-rows-alone",
        breaks="Files that have yet to obey a deletion which names a key are left.",
        module=FILES,
        right="{*rows, *to_obey, *_parts_below(state, tops)}\n",
        wrong="{*rows, *_parts_below(state, tops)}\n",
        tests=PURGES,
    ),
    Bug(
        name="keys-of-an-upsert-stay-purged",
        breaks="A file that was merged is kept for the keys of an upsert, purged ones among them.",
        module=FILES,
        right="            if any(each.filename in with_keys for each in found):\n",
        wrong="            if False:\n",
        tests=PURGES,
    ),
    Bug(
        name="split-points-stay-purged",
        breaks="Limits of partitions that are purged keys stay in the tree.",
        module=KEYS,
        right="        return value in self.values[dimension]\n",
        wrong="        return False\n",
        tests=NOWHERE,
    ),
    Bug(
        name="older-snapshots-stay",
        breaks="Snapshots of versions that had the rows are left.",
        module="storage/snapshots.py",
        right="        self.objects.delete(old)\n",
        wrong="        self.objects.delete([])\n",
        tests=("tests/stories/test_purges_of_every_store.py", *PURGES),
    ),
    Bug(
        name="entries-of-format-1-stay",
        breaks="Entries from before the upgrade keep the keys.",
        module=VERSIONS,
        right="without_keys(body, here) if written_in > 1 else emptied(body)\n",
        wrong="without_keys(body, here) if written_in > 1 else body\n",
        tests=NOWHERE,
    ),
    Bug(
        name="limits-of-deletions-stay-in-the-log",
        breaks="The value after a key, which has the key in it, is not taken out.",
        module=KEYS,
        right="            values | self._next(place) for place",
        wrong="            values for place",
        tests=NOWHERE,
    ),
    Bug(
        name="orphans-with-keys-stay",
        breaks="A file that no transaction names keeps its rows.",
        module=FILES,
        right="    failures = delete_groups(left, table.files)\n",
        wrong="    failures = delete_groups({}, table.files)\n",
        tests=NOWHERE,
    ),
    Bug(
        name="replaced-files-wait-for-the-collector",
        breaks="Files that had the keys are there until garbage is collected.",
        module=FILES,
        right=" is None or rows_with_keys(table, keys, [name]):\n",
        wrong=" is None:\n",
        tests=NOWHERE,
    ),
    Bug(
        name="a-trace-is-no-finding",
        breaks="A purge that left a key says that it is finished.",
        module="tables/purges/records.py",
        right="        return self.finished_at is not None and not self.findings\n",
        wrong="        return self.finished_at is not None\n",
        tests=(*PURGES, "-k", "trace"),
    ),
    Bug(
        name="others-fail-after-a-purge",
        breaks="A process with an old state takes an entry without keys for another's.",
        module="storage/followed_log.py",
        right='    first = body.partition(b"\\n")[0]\n    if first',
        wrong="    first = body\n    if first",
        tests=(*PURGES, "-k", "elsewhere"),
    ),
    Bug(
        name="others-fail-after-a-purge-of-format-1",
        breaks="A process with an old state takes an emptied entry of format 1 for another's.",
        module="storage/followed_log.py",
        right="    if first.startswith(b'{\"format\":1,'):",
        wrong="    if first.startswith(b'{\"format\":0,'):",
        tests=(*PURGES, "-k", "opened_in_format_1"),
    ),
    Bug(
        name="purges-undo-each-other",
        breaks="A purge puts keys back into an entry that another has taken out of it.",
        module=TURNS,
        right="        if all(_is_over(table, each, purge_id) for each in turns):\n",
        wrong="        if True:\n",
        tests=("tests/stories/test_purges_at_once.py", "-k", "one_entry"),
    ),
    Bug(
        name="overtaken-purge-is-not-waited-for",
        breaks="A purge does not wait for a process that its own purge has overtaken.",
        module=TURNS,
        right="        files.delete([each.key for each in older if _is_over(self._table, each)])\n",
        wrong="        files.delete([each.key for each in older])\n",
        tests=TAKEN,
    ),
    Bug(
        name="one-turn-for-two-purges",
        breaks="Two purges that ask at once both have the turn.",
        module=TURNS,
        right="            if table.files.create(_key(number), _body(purge_id)):\n",
        wrong="            if table.files.create(_key(number), _body(purge_id)) is not None:\n",
        tests=TAKEN,
    ),
    Bug(
        name="turn-that-is-not-renewed",
        breaks="A purge that works for more than a minute loses its turn while it works.",
        module=TURNS,
        right="            self._table.files.put(_key(self._number), _body(self._purge_id))\n",
        wrong="",
        tests=TAKEN,
    ),
    Bug(
        name="turn-of-a-process-that-stood-still",
        breaks="A process that stood still changes entries in the turn of another purge.",
        module=TURNS,
        right="            if begun_s - self._renewed_s <= _SAFE_FOR_S:\n",
        wrong="            if True:\n",
        tests=TAKEN,
    ),
    Bug(
        name="number-of-a-turn-again",
        breaks="The last turn is deleted when it ends, so a later one has its number.",
        module=TURNS,
        right="if _number(each) < self._number]",
        wrong="if _number(each) <= self._number]",
        tests=TAKEN,
    ),
)
