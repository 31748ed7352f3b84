"""Bugs in deleting files."""

from __future__ import annotations

from ..bug import Bug

ANY_ORDER = ("tests/any_order/test_instance.py", "-k", "times")
"""Two processes do anything to tables of two row keys and a sort key."""
KILLED = ("tests/any_order/test_crash_points.py", "-k", "death and collect")
"""A process that collects garbage dies at each of its calls."""
SWEPT = ("tests/unit/tables/test_sweep_and_ingest.py",)
"""A sweep comes between a job and its commit."""
UPKEEP = ("tests/stories/test_maintenance.py",)
_NEW_FILES = "state/new_files.py"

ROWS = ("tests/stories/test_deleted_rows.py",)
"""Rows are deleted by their keys, and asked for by every way."""

BUGS = (
    Bug(
        name="deletion-of-later-rows",
        breaks="A deletion applies to rows that are added later.",
        module="model/row_deletes.py",
        right="        return sequence is None or sequence < self.number\n",
        wrong="        return True\n",
        tests=(*ROWS, "-k", "added_later"),
    ),
    Bug(
        name="deletion-forgotten-with-its-first-file",
        breaks="A deletion ends with the first compaction, though other files have its rows.",
        module="state/table_state.py",
        right="                if any(delete.applies_to(each.sequence) for each in references):\n",
        wrong="                if all(delete.applies_to(each.sequence) for each in references):\n",
        tests=ROWS,
    ),
    Bug(
        name="all-keys-deleted",
        breaks="A region of every key deletes all rows.",
        module="tables/delete_rows.py",
        right="    if whole_region(table.schema) in regions:\n",
        wrong="    if not asked:\n",
        tests=ROWS,
    ),
    Bug(
        name="null-is-any-value",
        breaks="A null in a key stands for any value of its field.",
        module="model/ranges.py",
        right="    known = checked_value(field, value)\n",
        wrong="    known = value\n",
        tests=ROWS,
    ),
    Bug(
        name="deletions-beyond-an-item",
        breaks="Deletions of long keys are sent to DynamoDB, which refuses them.",
        module="storage/aws/state/dynamo_revisions.py",
        right="if after.deletes != before.deletes and self._deletes_bytes(after)",
        wrong="if after is before and self._deletes_bytes(after)",
        tests=("tests/contracts/state/test_dynamodb_items.py", "-k", "deletions_of"),
    ),
    Bug(
        name="deleted-key-looked-up",
        breaks="The look-up of many keys finds deleted rows.",
        module="state/plans/queries.py",
        right="        found = [part for each in parts for part in each]\n",
        wrong="",
        tests=(*ROWS, "-k", "leaves_them_out"),
    ),
    Bug(
        name="count-of-deleted-rows",
        breaks="A count has rows that were deleted.",
        module="state/plans/queries.py",
        right="            if whole and not reference.row_count_estimated and not hidden:\n",
        wrong="            if whole and not reference.row_count_estimated:\n",
        tests=(*ROWS, "-k", "leaves_them_out"),
    ),
    Bug(
        name="compaction-keeps-deleted-rows",
        breaks="A compaction writes deleted rows, with a number that says they were left out.",
        module="state/plans/claims.py",
        right="self.hidden.get(filename, ()))\n",
        wrong="())\n",
        tests=(*ROWS, "-k", "TestCompaction"),
    ),
    Bug(
        name="format-1-with-deleted-rows",
        breaks="A table goes back to format 1, whose readers show its deleted rows.",
        module="state/transactions/formats.py",
        right="        if state.deletes and self.format < 2:\n",
        wrong="        if state.deletes and self.format < 1:\n",
        tests=(*ROWS, "-k", "goes_back"),
    ),
    Bug(
        name="delay-ignored",
        breaks="The collector deletes files that queries may still read.",
        module="tables/garbage.py",
        right="    kept_since = table.store.time() - timedelta(minutes=kept)\n",
        wrong="    kept_since = table.store.time() + 0 * timedelta(minutes=kept)\n",
        tests=UPKEEP,
    ),
    Bug(
        name="deleted-versions-are-damage",
        breaks="A version whose files the collector has deleted is reported as damaged.",
        module="tables/versions.py",
        right="    with deletions_reported(version, store=store, files=files):\n"
        "        rows = answer(table.as_of(version), version)\n    if rows.in_memory:\n",
        wrong="    rows = answer(table.as_of(version), version)\n    if True:\n",
        tests=("tests/stories/test_time_travel.py",),
    ),
    Bug(
        name="dates-believed",
        breaks="The collector takes an entry's date for the time at which it was stored.",
        module="tables/garbage.py",
        right="    return store.dates_stored_before(kept_since)\n",
        wrong="    return kept_since\n",
        tests=("tests/unit/tables/test_late_entries.py",),
    ),
    Bug(
        name="named-later-than-written",
        breaks="A log entry counts as stored when its bytes were written, before it had its name.",
        module="storage/local/folder.py",
        right="max(found.st_mtime, found.st_ctime)",
        wrong="found.st_mtime",
        tests=("tests/contracts/test_folder_storage.py",),
    ),
    Bug(
        name="forgotten-before-deleted",
        breaks="A collector that is killed leaves files that nobody knows of.",
        module="tables/garbage.py",
        right="    failures = delete_data_files(names, files)\n"
        "    gone = [name for name in names if name not in failures]\n"
        "    number = _forget(gone, store) if gone else state.number\n",
        wrong="    gone = [*names]\n"
        "    number = _forget(gone, store) if gone else state.number\n"
        "    failures = delete_data_files(names, files)\n",
        tests=KILLED,
    ),
    Bug(
        name="swept-and-acknowledged",
        breaks="A job commits files that a sweep has deleted.",
        module="state/transactions/files.py",
        right="        self._check_swept(state)\n",
        wrong="",
        tests=SWEPT,
    ),
    Bug(
        name="old-files-not-looked-at",
        breaks="A job that took very long commits files that are gone.",
        module=_NEW_FILES,
        right="            if modified is None or modified < oldest:\n",
        wrong="            if modified is None:\n                continue\n            if False:\n",
        tests=SWEPT,
    ),
    Bug(
        name="local-clock",
        breaks="The clock of a machine that is wrong counts as the time of the storage.",
        module="storage/storage_clock.py",
        right="        storage_time = self._objects.storage_time()\n",
        wrong="        storage_time = self._now()\n",
        tests=("tests/any_order/test_clocks.py",),
    ),
    Bug(
        name="jobs-forgotten-by-time",
        breaks="One commit from the future makes a table forget its jobs.",
        module="state/table_state.py",
        right="_ENTRIES_MIN = 10_000 ",
        wrong="_ENTRIES_MIN = 1 ",
        tests=("tests/unit/state/test_committed_jobs.py",),
    ),
    Bug(
        name="young-swept",
        breaks="A sweep deletes what a running job has just written.",
        module="state/plans/garbage.py",
        right="        if modified < before\n        and ",
        wrong="        if ",
        tests=ANY_ORDER,
    ),
    Bug(
        name="waiting-swept",
        breaks="A sweep deletes files that wait for the collector.",
        module="state/plans/garbage.py",
        right="        and not state.files.is_tracked(filename)\n",
        wrong="        and not state.files.references_to(filename)\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="output-swept",
        breaks="A sweep deletes the output of a job that may still be committed.",
        module="state/plans/garbage.py",
        right="        if filename not in outputs and job_output(filename) not in outputs\n",
        wrong="        if job_output(filename) not in outputs\n",
        tests=UPKEEP,
    ),
    Bug(
        name="attempt-swept",
        breaks="A sweep deletes what an attempt of a job on Spark wrote before it is committed.",
        module="state/plans/garbage.py",
        right="        if filename not in outputs and job_output(filename) not in outputs\n",
        wrong="        if filename not in outputs\n",
        tests=UPKEEP,
    ),
    Bug(
        name="rounds-end-after-the-first",
        breaks="On Spark, compact(all_files=True) leaves several files in leaves with many.",
        module="tables/claims.py",
        right=" for job in jobs if inputs_remain(state, job)}\n",
        wrong=" for job in jobs}\n",
        tests=("tests/unit/tables/test_claims.py",),
    ),
    Bug(
        name="pieces-lost-with-their-job",
        breaks="One piece that Spark cannot run takes the other pieces of its job along.",
        module="spark/piece_jobs.py",
        right="    if job.is_lone or isinstance(error, SleeperError):",
        wrong="    if job.is_lone or isinstance(error, Exception):",
        tests=("tests/unit/spark/test_piece_jobs.py",),
    ),
    Bug(
        name="jobs-of-any-size",
        breaks="Each task on Spark gets the pieces of a whole table.",
        module="spark/piece_jobs.py",
        right="            if taken and size > _JOB_BYTES:\n",
        wrong="            if taken and size < 0:\n",
        tests=("tests/unit/spark/test_piece_jobs.py",),
    ),
    Bug(
        name="clusters-of-64-cores",
        breaks="A cluster of any size gets the work of 64 cores.",
        module="spark/piece_jobs.py",
        right="    wanted = _PIECES_PER_CORE * max(1, cores)\n",
        wrong="    wanted = _PIECES_PER_CORE * min(64, max(1, cores))\n",
        tests=("tests/unit/spark/test_piece_jobs.py",),
    ),
    Bug(
        name="lease-ignored",
        breaks="Files are taken from compaction jobs that still have time.",
        module="state/plans/claims.py",
        right="if each.lease_ends < now)\n",
        wrong=")\n",
        tests=UPKEEP,
    ),
    Bug(
        name="renewal-ignored",
        breaks="Files are taken from compaction jobs that run longer than their first lease.",
        module="state/plans/claims.py",
        right="        renewed = max(since, record.renewed) if record else since\n",
        wrong="        renewed = since\n",
        tests=("tests/unit/state/transactions/test_claims.py",),
    ),
    Bug(
        name="workers-outlive-their-parent",
        breaks="Worker processes of a compaction that was killed stay for ever.",
        module="tables/worker_processes.py",
        right="    threading.Thread(target=exit_with, args=(parent_id,), daemon=True).start()\n",
        wrong="",
        tests=("tests/unit/tables/test_worker_processes.py",),
    ),
    Bug(
        name="claims-kept-after-an-interrupt",
        breaks="A run that is interrupted keeps its claims until their lease ends.",
        module="tables/claims.py",
        right="            if left:\n",
        wrong="            if left and state is None:\n",
        tests=("tests/unit/tables/test_claims.py",),
    ),
    Bug(
        name="all-jobs-claimed-at-once",
        breaks="A run that is killed keeps the files of all its jobs from others.",
        module="tables/claims.py",
        right="min(room, self._jobs_max)",
        wrong="min(room, 10_000)",
        tests=("tests/unit/tables/test_claims.py",),
    ),
    Bug(
        name="whole-files-written-again",
        breaks="compact(all_files=True) writes every file anew, each time.",
        module="state/plans/compactions.py",
        right="    return len(files) > 1 or not files[0].whole_file\n",
        wrong="    return True\n",
        tests=("tests/unit/state/plans/test_compactions.py",),
    ),
    Bug(
        name="most-rows-of-the-least-key",
        breaks="A leaf whose least key is its median is never split.",
        module="state/plans/splits_and_merges.py",
        right="        if above is not None:\n",
        wrong="        if above is not None and least < median:\n",
        tests=("tests/unit/state/plans/test_splits_and_merges.py",),
    ),
    Bug(
        name="collectors-race-once",
        breaks="A collector that is overtaken twice ends with a refusal.",
        module="tables/garbage.py",
        right="            if still == left:\n",
        wrong="            if still:\n",
        tests=("tests/unit/tables/test_collectors_at_once.py",),
    ),
)
