"""Bugs in commits."""

from __future__ import annotations

from ..bug import Bug

COMMITS = ("tests/any_order/test_state.py",)
"""Three processes commit to one table in any order."""
ANY_ORDER = ("tests/any_order/test_instance.py", "-k", "times")
"""Two processes do anything to tables of two row keys and a sort key."""
REVISIONS = ("tests/unit/state/test_revision_store.py",)
"""The store that replaces whole states."""
OVERTAKEN = ("tests/any_order/test_crash_points.py", "-k", "overtaken and ingest")
"""One process ingests, and another does something whole between two of its calls."""
_APPEND = "state/append.py"

BUGS = (
    Bug(
        name="newer-types-are-damage",
        breaks="A reader that does not know a type of transaction goes on from a later snapshot.",
        module="state/log_entry.py",
        right="        _check_types(transactions, where)\n",
        wrong="",
        tests=("tests/unit/state/test_log_store.py",),
    ),
    Bug(
        name="chain-not-followed",
        breaks="A reader goes on after an entry that was changed.",
        module="state/commit.py",
        right="    if state.digest is not None and entry.prev != state.digest:\n",
        wrong="    if state.digest is not None and entry.prev is None:\n",
        tests=("tests/unit/state/test_commit.py", "-k", "TestChain"),
    ),
    Bug(
        name="salt-of-a-removed-key-stays",
        breaks="The salt of a key that was taken out stays: the key can be guessed by its digest.",
        module="state/log_entry.py",
        right="            keys.values[place], keys.salts[place] = None, _NO_SALT\n",
        wrong="            keys.values[place] = None\n",
        tests=("tests/unit/state/test_log_entry.py", "-k", "TestFormat2"),
    ),
    Bug(
        name="one-salt-for-all-keys",
        breaks="Keys of an entry have one salt, which stays while any of them does.",
        module="state/log_entry.py",
        right='f"{seed}{len(places)}"',
        wrong='f"{seed}"',
        tests=("tests/unit/state/test_log_entry.py", "-k", "TestFormat2"),
    ),
    Bug(
        name="format-1-without-a-snapshot",
        breaks="A table goes back to format 1, and earlier versions meet entries of format 2.",
        module="tables/upgrade.py",
        right="        change = _set_format(table, 1)\n        table.store.write_snapshot()\n",
        wrong="        change = _set_format(table, 1)\n",
        tests=("tests/stories/test_format_2.py", "-k", "taken_back"),
    ),
    Bug(
        name="entry-overwritten",
        breaks="An entry takes its number whether or not it is taken.",
        module="storage/transaction_log.py",
        right="            appended = self.objects.create(key, body) or "
        "self.objects.read(key) == body\n",
        wrong="            self.objects.put(key, body)\n            appended = True\n",
        tests=OVERTAKEN,
    ),
    Bug(
        name="own-entry-not-known",
        breaks="After a lost reply the own entry is taken for another's.",
        module=_APPEND,
        right="            return found == body\n",
        wrong="            return False\n",
        tests=COMMITS,
    ),
    Bug(
        name="replay-judges",
        breaks="Replay refuses an entry that was committed under other rules.",
        module="state/commit.py",
        right="    return fold_added(added, state, at) if added else "
        "transactions[0].fold(state, at)\n",
        wrong="    for each in added or transactions:\n        state = each.apply(state, at)\n"
        "    return state\n",
        tests=("tests/unit/state/test_commit.py", "-k", "todays_rules"),
    ),
    Bug(
        name="index-goes-back",
        breaks="A reader that is late puts the table index back to what it read.",
        module="state/table_index.py",
        right="            if self._held is None or self._held.number < records.number:\n",
        wrong="            if records is not None:\n",
        tests=("tests/unit/storage/test_index_threads.py",),
    ),
    Bug(
        name="index-change-unchecked",
        breaks="A change of the table index is not checked against the newest entries.",
        module="state/table_index.py",
        right="            check(records)\n",
        wrong="",
        tests=("tests/contracts/test_memory_storage.py",),
    ),
    Bug(
        name="job-id-ignored",
        breaks="A job that was committed meanwhile adds its files again.",
        module="state/transactions/files.py",
        right="        self._check_job(state)\n",
        wrong="",
        tests=ANY_ORDER,
    ),
    Bug(
        name="claim-unchecked",
        breaks="A compaction replaces files that another job has claimed.",
        module="state/transactions/files.py",
        right="            self._check_claim(_reference(state, filename, partition_id))\n",
        wrong="            _reference(state, filename, partition_id)\n",
        tests=COMMITS,
    ),
    Bug(
        name="input-stays",
        breaks="A compaction leaves the reference to its first input.",
        module="state/transactions/files.py",
        right="[(filename, self.output.partition_id) for filename in self.inputs]",
        wrong="[(filename, self.output.partition_id) for filename in self.inputs[1:]]",
        tests=ANY_ORDER,
    ),
    Bug(
        name="pushed-reference-stays",
        breaks="A reference that was pushed down stays above as well.",
        module="state/transactions/files.py",
        right="        files = state.files.changed(removed=removed, added=added, at=at)\n",
        wrong="        files = state.files.changed(added=added, at=at)\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="freed-too-soon",
        breaks="A file waits for the collector as soon as one of its references goes.",
        module="state/file_references.py",
        right="(name for name in touched if not self._is_referenced(name, to_file.get(name, {})))",
        wrong="[name for (name, _), new in changes.items() if new is None]",
        tests=ANY_ORDER,
    ),
    Bug(
        name="values-of-revisions-unchecked",
        breaks="A store of whole states takes values that no entry could hold.",
        module="state/revision_store.py",
        right="        check_storable(accepted, self._schema)\n",
        wrong="",
        tests=REVISIONS,
    ),
    Bug(
        name="looks-out-of-order",
        breaks="Looks at a clock that was set back stand after those at later times.",
        module="state/revision_store.py",
        right="(look for look in self.looks if look[0] < now or look[1] > date)\n",
        wrong="self.looks\n",
        tests=REVISIONS,
    ),
    Bug(
        name="group-loses-its-rest",
        breaks="Of a group that is too large for one revision only the first part is committed.",
        module="state/revision_store.py",
        right="            while len(refusals) < len(transactions):\n",
        wrong="            while not refusals:\n",
        tests=COMMITS,
    ),
    Bug(
        name="own-revision-not-known",
        breaks="After a lost reply the own revision is taken for another's.",
        module="state/revision_store.py",
        right="self._revisions.replace(self.before, self.after) or self.read(number) == body",
        wrong="self._revisions.replace(self.before, self.after)",
        tests=("tests/unit/state/test_revision_store.py", "-k", "repeated"),
    ),
)
