"""Bugs in open handles."""

from __future__ import annotations

from ..bug import Bug

FOLLOWED = ("tests/contracts/test_folder_storage.py", "-k", "FollowedLog")
"""A log in a folder, as one process follows it."""
REPLACED = ("tests/contracts/test_replaced_instances.py", "-k", "InFolder")
"""Open handles of a folder that is moved, deleted or replaced."""
UNREAD = ("tests/unit/storage/test_table_index.py", "-k", "known_again")
"""Handles that know the index from a checkpoint, and have read no entry of it."""
LOST = ("tests/unit/workers/test_lost_instances.py",)
_FOLLOWED_LOG = "storage/followed_log.py"
_APPEND = "state/append.py"

BUGS = (
    Bug(
        name="old-properties",
        breaks="An open handle goes on with filters and aggregations that were changed since.",
        module="tables/open_table.py",
        right="        elif opened.record.properties != record.properties:\n",
        wrong="        elif opened.record.table_id != record.table_id:\n",
        tests=("tests/stories/test_changed_properties.py",),
    ),
    Bug(
        name="appended-after-nothing",
        breaks="A commit is appended after an entry that is not there.",
        module=_FOLLOWED_LOG,
        right="            self._begin_check(number - 1)()\n",
        wrong="            pass\n",
        tests=FOLLOWED,
    ),
    Bug(
        name="read-after-nothing",
        breaks="A state is read after an entry that is not there.",
        module=_FOLLOWED_LOG,
        right="        check()\n",
        wrong="",
        tests=FOLLOWED,
    ),
    Bug(
        name="another-entry-is-the-same",
        breaks="An entry that somebody else wrote under the same number is taken for the own one.",
        module=_FOLLOWED_LOG,
        right="            is_same = digest == entry.digest\n",
        wrong="            is_same = True\n",
        tests=FOLLOWED,
    ),
    Bug(
        name="unread-entry-of-the-index-is-any",
        breaks="A handle takes the index of another instance for its own, then refuses its own.",
        module="state/table_index.py",
        right="            return change.entry_id == self.entry_id\n",
        wrong="            return True\n",
        tests=UNREAD,
    ),
    Bug(
        name="checkpoint-without-id-is-any",
        breaks="After a checkpoint of an earlier version the index of any instance is the own.",
        module="state/table_index.py",
        right="        return self.by_id.get(change.table_id) == change.record\n",
        wrong="        return True\n",
        tests=UNREAD,
    ),
    Bug(
        name="late-first-look-compares-nothing",
        breaks="A handle that first looks an hour after it was opened trusts what is there.",
        module=_FOLLOWED_LOG,
        right="            last = _SeenEntry(number, None, None, self._opened_s)\n",
        wrong="            last = _SeenEntry(number, None, None, self._following.ticks_s())\n",
        tests=("tests/contracts/test_memory_storage.py", "-k", "late_first_look"),
    ),
    Bug(
        name="snapshot-does-not-cover",
        breaks="An entry that a snapshot covers must be there.",
        module=_FOLLOWED_LOG,
        right="            if covered < entry.number:\n",
        wrong="            if covered <= entry.number:\n",
        tests=FOLLOWED,
    ),
    Bug(
        name="folder-not-looked-at",
        breaks="A write makes the folder of an instance anew that was moved away.",
        module="storage/local/folder.py",
        right="        if folder == str(self.root):\n            self._check_opened()\n",
        wrong="",
        tests=REPLACED,
    ),
    Bug(
        name="moved-commit-not-unknown",
        breaks="A commit whose folder was moved right after it counts as not written.",
        module=_APPEND,
        right="            if certain:\n                raise\n",
        wrong="            raise\n",
        tests=REPLACED,
    ),
    Bug(
        name="any-instance-is-the-own",
        breaks="A handle writes into another instance that was put in the place.",
        module="model/formats/properties_file.py",
        right="    if found != instance_id:\n",
        wrong="    if not found:\n",
        tests=REPLACED,
    ),
    Bug(
        name="jobs-made-anew",
        breaks="Queues are made anew where an instance was moved away.",
        module="storage/local/jobs/database.py",
        right="            if self._check_instance is not None:\n"
        "                self._check_instance()\n",
        wrong="",
        tests=REPLACED,
    ),
    Bug(
        name="worker-goes-on-without-instance",
        breaks="A worker goes on for ever whose instance is gone.",
        module="workers/worker.py",
        right=" or is_lasting or isinstance(failure, InstanceLost):",
        wrong=" or is_lasting:",
        tests=LOST,
    ),
    Bug(
        name="replaced-instance-not-opened-again",
        breaks="`serve` refuses a restored instance for ever.",
        module="workers/instance_changes.py",
        right="            if not self._look() and not isinstance(self.lost, InstanceReplaced):\n",
        wrong="            if not self._look():\n",
        tests=LOST,
    ),
)
