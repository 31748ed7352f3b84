"""The bugs that tests must catch: what is replaced by what, and which tests are to notice.

Each is one slip of the kind that people make: a check left out, a bound off by one, one input too
few. Most are to be caught by tests that know nothing of the line: commits, or whole instances, in
any order.
"""

from __future__ import annotations

from dataclasses import dataclass

COMMITS = ("tests/any_order/test_state.py",)
"""Three processes commit to one table in any order."""

ANY_ORDER = ("tests/any_order/test_instance.py", "-k", "times")
"""Two processes do anything to tables of two row keys and a sort key."""

OVERTAKEN = ("tests/any_order/test_crash_points.py", "-k", "overtaken and ingest")
"""One process ingests, and another does something whole between two of its calls."""

KILLED = ("tests/any_order/test_crash_points.py", "-k", "death and collect")
"""A process that collects garbage dies at each of its calls."""

UPKEEP = ("tests/stories/test_maintenance.py",)
NUMBERS = ("tests/stories/test_special_numbers.py",)
PROCESSING = ("tests/stories/test_aggregation_and_age.py", "tests/unit/engine/processing")
SETTINGS = ("tests/stories/test_setting_properties.py", "tests/unit/model/test_given_properties.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One bug.

    Attributes:
        name: What it is called; each has a name of its own.
        breaks: What goes wrong, in a short sentence.
        module: The file, from `src/sleeper` on.
        right: The text that is replaced; it occurs once in the file.
        wrong: What comes in its place.
        tests: Arguments of pytest: the tests that must fail.
    """

    name: str
    breaks: str
    module: str
    right: str
    wrong: str
    tests: tuple[str, ...]


IN_COMMITS = (
    Bug(
        name="entry-overwritten",
        breaks="An entry takes its number whether or not it is taken.",
        module="storage/object_log.py",
        right="        return self.objects.create(key, body) or self.objects.read(key) == body\n",
        wrong="        self.objects.put(key, body)\n        return True\n",
        tests=OVERTAKEN,
    ),
    Bug(
        name="own-entry-not-known",
        breaks="After a lost reply the own entry is taken for another's.",
        module="state/append_entry.py",
        right="            return found == body\n",
        wrong="            return False\n",
        tests=COMMITS,
    ),
    Bug(
        name="replay-judges",
        breaks="Replay refuses an entry that was committed under other rules.",
        module="state/commit.py",
        right="            applied = transaction.fold(applied, entry.at)\n",
        wrong="            applied = transaction.apply(applied, entry.at)\n",
        tests=COMMITS,
    ),
    Bug(
        name="index-goes-back",
        breaks="A reader that is late puts the table index back to what it read.",
        module="state/table_index/log_index.py",
        right="            if self._held is None or self._held.number < records.number:\n",
        wrong="            if records is not None:\n",
        tests=("tests/unit/storage/test_index_threads.py",),
    ),
    Bug(
        name="index-change-unchecked",
        breaks="A change of the table index is not checked against the newest entries.",
        module="state/table_index/log_index.py",
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
)

IN_TREES = (
    Bug(
        name="upper-leaf-forgotten",
        breaks="A merge of two leaves forgets the references of the upper one.",
        module="state/transactions/merges.py",
        right="for each in self.child_ids for ref in",
        wrong="for each in self.child_ids[:1] for ref in",
        tests=ANY_ORDER,
    ),
    Bug(
        name="odd-part-merged",
        breaks="Leaves are merged though one has compacted its part of a file, and rows double.",
        module="state/transactions/merges.py",
        right="    return (parts[0] | parts[1])[odd[0]] if odd else None\n",
        wrong="    return None\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="merged-leaf-kept",
        breaks="What was written for a leaf is not placed on the one it was merged into.",
        module="state/transactions/files.py",
        right="        placed = _in_place(self.references, state.partitions)\n",
        wrong="        placed = self.references\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="leaf-not-pushed-to",
        breaks="References are pushed down to the lower half alone.",
        module="planning/push_down.py",
        right="        waiting += [(upper, row_count - below), (lower, below)]\n",
        wrong="        waiting += [(lower, below)]\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="median-not-clipped",
        breaks="The median of whole files splits a leaf that has parts of them.",
        module="engine/writing/sketch.py",
        right="            last = bisect_left(known.values, _number(known.kind, inside.max))\n",
        wrong="            pass\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="bound-looked-up-below",
        breaks="The least key of a leaf is looked up in the leaf below.",
        module="model/partitions.py",
        right="            here = lower if key[here.dimension] < bound else upper\n",
        wrong="            here = lower if key[here.dimension] <= bound else upper\n",
        tests=ANY_ORDER,
    ),
)

IN_WRITING = (
    Bug(
        name="bound-written-below",
        breaks="Rows with the least key of a leaf are written into the leaf below.",
        module="engine/sorting/key_order.py",
        right='self._bounds[first:last], side="left")',
        wrong='self._bounds[first:last], side="right")',
        tests=ANY_ORDER,
    ),
    Bug(
        name="bound-in-two-leaves",
        breaks="Where leaves interleave, rows at their bound are written into both.",
        module="engine/writing/leaf_files.py",
        right="            rows = rows.filter(pc.less(rows[field.name], ",
        wrong="            rows = rows.filter(pc.less_equal(rows[field.name], ",
        tests=ANY_ORDER,
    ),
    Bug(
        name="bound-in-no-leaf",
        breaks="Where leaves interleave, rows at their bound are written into neither.",
        module="engine/writing/leaf_files.py",
        right="            rows = rows.filter(pc.greater_equal(rows[field.name], low))\n",
        wrong="            rows = rows.filter(pc.greater(rows[field.name], low))\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="input-not-merged",
        breaks="A compaction does not read the first of its inputs.",
        module="engine/writing/compaction_output.py",
        right="        for name in job.inputs\n    ]\n",
        wrong="        for name in (job.inputs[1:] or job.inputs)\n    ]\n"
        "    whole_files = frozenset()\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="input-merged-twice",
        breaks="A compaction reads the first of its inputs twice.",
        module="engine/writing/compaction_output.py",
        right="        for name in job.inputs\n    ]\n",
        wrong="        for name in (*job.inputs, job.inputs[0])\n    ]\n"
        "    whole_files = frozenset()\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="region-not-cut",
        breaks="A compaction takes rows of other leaves from files that they share.",
        module="engine/writing/compaction_output.py",
        right="() if name in whole_files else (claimed.partition.region,)",
        wrong="()",
        tests=ANY_ORDER,
    ),
)

IN_READING = (
    Bug(
        name="ancestors-passed-over",
        breaks="Files of partitions that were split are not read.",
        module="planning/leaf_queries.py",
        right="        names += state.files.filenames_on(ancestor.partition_id)\n",
        wrong="        pass\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="leaf-not-cut",
        breaks="Each leaf answers from a shared file for all of the leaves.",
        module="planning/leaf_queries.py",
        right="    asked = (region.intersection(leaf.region) for region in regions)\n",
        wrong="    asked = iter(regions)\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="range-end-included",
        breaks="A range takes in its end.",
        module="engine/scan/predicates.py",
        right="        conditions.append(key < _literal(key_range.max, arrow_type))\n",
        wrong="        conditions.append(key <= _literal(key_range.max, arrow_type))\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="first-file-only",
        breaks="A look-up stops at the first file.",
        module="operations/query.py",
        right="            leaf.filenames, keys, reading.arrow_schema, self.read_columns\n",
        wrong="            leaf.filenames[:1], keys, reading.arrow_schema, self.read_columns\n",
        tests=ANY_ORDER,
    ),
)

IN_NUMBERS = (
    Bug(
        name="column-folded",
        breaks="A column whose limits are equal is read as one value, NaN included.",
        module="engine/scan/session.py",
        right='"datafusion.execution.collect_statistics": "false"',
        wrong='"datafusion.execution.collect_statistics": "true"',
        tests=NUMBERS,
    ),
    Bug(
        name="floats-with-limits",
        breaks="Files say between which values a column with NaN lies.",
        module="engine/writing/column_statistics.py",
        right="if not pa.types.is_floating(field.type)]",
        wrong="if not pa.types.is_float32(field.type)]",
        tests=NUMBERS,
    ),
)

VALUES = ("tests/stories/test_values_unchanged.py",)
IN_INPUTS = (
    Bug(
        name="classes-unchecked",
        breaks="pyarrow cuts 1.5 down to 1, in rows and in keys.",
        module="columns/python_values.py",
        right="        if not holds(cls, kind):\n",
        wrong="        if cls is object:\n",
        tests=VALUES,
    ),
    Bug(
        name="nanoseconds-dropped",
        breaks="A pandas timestamp loses its nanoseconds.",
        module="model/keys.py",
        right='    if getattr(value, "nanosecond", 0):\n',
        wrong='    if getattr(value, "nanoseconds", 0):\n',
        tests=VALUES,
    ),
    Bug(
        name="zone-ignored",
        breaks="A clock time without a zone is taken for UTC.",
        module="columns/python_values.py",
        right="        if None in offsets:\n",
        wrong="        if None in present:\n",
        tests=VALUES,
    ),
)

IN_DELETING = (
    Bug(
        name="delay-ignored",
        breaks="The collector deletes files that queries may still read.",
        module="table/maintenance.py",
        right="        return self._context.now() - timedelta(minutes=kept)\n",
        wrong="        return self._context.now() + 0 * timedelta(minutes=kept)\n",
        tests=UPKEEP,
    ),
    Bug(
        name="forgotten-before-deleted",
        breaks="A collector that is killed leaves files that nobody knows of.",
        module="operations/maintenance/collect_garbage.py",
        right="    failures = delete_groups("
        "{name: [name, paths.sketch_file(name)] for name in names}, files)\n"
        "    gone = [name for name in names if name not in failures]\n"
        "    number = _forget(gone, store) if gone else state.number\n",
        wrong="    gone = [*names]\n"
        "    number = _forget(gone, store) if gone else state.number\n"
        "    failures = delete_groups("
        "{name: [name, paths.sketch_file(name)] for name in names}, files)\n",
        tests=KILLED,
    ),
    Bug(
        name="young-swept",
        breaks="A sweep deletes what a running job has just written.",
        module="planning/orphans.py",
        right="        if modified < before\n        and ",
        wrong="        if ",
        tests=ANY_ORDER,
    ),
    Bug(
        name="waiting-swept",
        breaks="A sweep deletes files that wait for the collector.",
        module="planning/orphans.py",
        right="        and not state.files.is_tracked(filename)\n",
        wrong="        and not state.files.references_to(filename)\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="output-swept",
        breaks="A sweep deletes the output of a job that may still be committed.",
        module="planning/orphans.py",
        right=" if filename not in outputs)\n",
        wrong=")\n",
        tests=UPKEEP,
    ),
    Bug(
        name="lease-ignored",
        breaks="Files are taken from compaction jobs that still have time.",
        module="planning/leases.py",
        right="            if max(claimed, renewed) < before:\n",
        wrong="            if True:\n",
        tests=UPKEEP,
    ),
    Bug(
        name="renewal-ignored",
        breaks="Files are taken from compaction jobs that run longer than their first lease.",
        module="planning/leases.py",
        right="            renewed = record.renewed if record else claimed\n",
        wrong="            renewed = claimed\n",
        tests=("tests/unit/state/transactions/test_claims.py",),
    ),
    Bug(
        name="workers-outlive-their-parent",
        breaks="Worker processes of a compaction that was killed stay for ever.",
        module="operations/maintenance/worker_processes.py",
        right="    threading.Thread(target=_exit_with, args=(parent_id,), daemon=True).start()\n",
        wrong="",
        tests=("tests/unit/operations/test_worker_processes.py",),
    ),
)

IN_PROCESSING = (
    Bug(
        name="old-row-kept",
        breaks="A row exactly as old as the limit is kept.",
        module="engine/processing/filters.py",
        right="    return pc.greater(instants, pa.scalar(limit, pa.int64()))\n",
        wrong="    return pc.greater_equal(instants, pa.scalar(limit, pa.int64()))\n",
        tests=PROCESSING,
    ),
    Bug(
        name="group-cut-off",
        breaks="A group that goes on in the next batch loses its rows so far.",
        module="engine/processing/aggregations.py",
        right="        rows = known if held is None else pa.concat_batches([held, known])\n",
        wrong="        rows = known\n",
        tests=PROCESSING,
    ),
    Bug(
        name="last-is-first",
        breaks="The aggregation `last` takes the first value.",
        module="engine/processing/aggregations.py",
        right="            return column.take(groups.last)\n",
        wrong="            return column.take(groups.first)\n",
        tests=PROCESSING,
    ),
    Bug(
        name="counted-again",
        breaks="A compaction counts rows that stand for many as one.",
        module="engine/processing/aggregations.py",
        right='_reduce(column, "sum", groups.starts)',
        wrong='_reduce(pc.is_valid(column).cast(column.type), "sum", groups.starts)',
        tests=PROCESSING,
    ),
)

IN_PROPERTIES = (
    Bug(
        name="slip-accepted",
        breaks="A property's name with a letter too many is stored, without effect.",
        module="model/known_properties/given.py",
        right="left[1:] == right or left == right[1:]",
        wrong="left == right[1:]",
        tests=SETTINGS,
    ),
    Bug(
        name="stored-name-judged",
        breaks="A misspelt name that is stored stops every other change of the table.",
        module="operations/change_table.py",
        right="given=set_now)",
        wrong="given=after)",
        tests=SETTINGS,
    ),
)

BUGS = (
    *IN_COMMITS,
    *IN_TREES,
    *IN_WRITING,
    *IN_READING,
    *IN_DELETING,
    *IN_PROCESSING,
    *IN_PROPERTIES,
    *IN_NUMBERS,
    *IN_INPUTS,
)
