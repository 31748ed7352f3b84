"""Bugs in writing files."""

from __future__ import annotations

from ..bug import Bug

MEMORY = ("tests/stories/test_bounded_memory.py", "tests/unit/engine/test_memory_limit.py")

ANY_ORDER = ("tests/any_order/test_instance.py", "-k", "times")
"""Two processes do anything to tables of two row keys and a sort key."""

BUGS = (
    Bug(
        name="sort-in-more-than-there-is",
        breaks="An ingest in a container uses its setting, and the process is killed.",
        module="engine/sorting/sort.py",
        right="            self._memory_bytes = found.room_bytes - _BESIDE_BYTES\n",
        wrong="            pass\n",
        tests=MEMORY,
    ),
    Bug(
        name="sort-that-cannot-work-begins",
        breaks="An ingest with too little memory ends the process, without an error.",
        module="engine/memory_limit.py",
        right="    if found is not None and found.room_bytes < least_bytes:\n",
        wrong="    if found is not None and found.room_bytes < 0:\n",
        tests=MEMORY,
    ),
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
        right="    slices = []\n    for each in job.inputs:\n",
        wrong="    slices, rows_by_file = [], {}\n    for each in job.inputs[1:] or job.inputs:\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="input-merged-twice",
        breaks="A compaction reads the first of its inputs twice.",
        module="engine/writing/compaction_output.py",
        right="    slices = []\n    for each in job.inputs:\n",
        wrong="    slices, rows_by_file = [], {}\n    for each in (*job.inputs, job.inputs[0]):\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="region-not-cut",
        breaks="A compaction takes rows of other leaves from files that they share.",
        module="engine/writing/compaction_output.py",
        right="FileSlice(reading.files.url(each), regions)",
        wrong="FileSlice(reading.files.url(each))",
        tests=ANY_ORDER,
    ),
    Bug(
        name="attempts-set-aside-twice",
        breaks="Rows without a key are in the folder once for each attempt of a task.",
        module="spark/block_shuffle/map_tasks.py",
        right="enumerate(sorted(names)):",
        wrong="enumerate(sorted({*names, *(p.name for p in self.tasks.glob('[!.]*'))})):",
        tests=("tests/unit/spark/test_set_aside_folder.py",),
    ),
    Bug(
        name="buckets-of-one-size",
        breaks="The buckets of a terabyte are as small as those of a gigabyte.",
        module="spark/import_plan.py",
        right="max(TASK_BYTES_MIN, isqrt(size * BLOCK_BYTES))",
        wrong="TASK_BYTES_MIN",
        tests=("tests/unit/spark/test_import_plan.py", "-k", "Blocks"),
    ),
    Bug(
        name="tasks-without-end",
        breaks="A task of a large import writes tens of gigabytes.",
        module="spark/import_plan.py",
        right="too_many or idle or bucket_bytes > TASK_BYTES_MAX",
        wrong="too_many or idle",
        tests=("tests/unit/spark/test_import_plan.py", "-k", "Tasks"),
    ),
    Bug(
        name="leaves-of-256",
        breaks="A table is split to at most 256 leaves, whatever it is to get.",
        module="state/plans/extend_tree.py",
        right="return min(small, max(_SMALL_LEAVES, -(-small // _LARGE_LEAF)))",
        wrong="return min(small, 256)",
        tests=("tests/unit/state/plans/test_extend_tree.py", "-k", "follow_its_size"),
    ),
    Bug(
        name="range-of-the-bucket-before",
        breaks="The first of two levels of shuffle brings rows to a range that lacks their bucket.",
        module="state/plans/bulk_imports.py",
        right="return bucket // count",
        wrong="return (bucket + 1) // count",
        tests=("tests/unit/spark/block_shuffle/test_blocks.py", "-k", "two_levels"),
    ),
    Bug(
        name="last-blocks-of-the-second-level",
        breaks="The last blocks of a task of the second level of shuffle are lost.",
        module="spark/block_shuffle/map_tasks.py",
        right="yield from out.rest()",
        wrong="pass",
        tests=("tests/unit/spark/block_shuffle/test_map_tasks.py", "-k", "second_level"),
    ),
    Bug(
        name="estimate-of-a-join-believed",
        breaks="A join of a thousand rows is divided as if it had terabytes.",
        module="spark/bulk_import.py",
        right="max(least, min(size_bytes, _ROW_GROWTH * least))",
        wrong="max(least, size_bytes)",
        tests=("tests/unit/spark/test_known_frame.py",),
    ),
    Bug(
        name="files-of-one-machine-not-looked-for",
        breaks="A machine with a disk of its own is not noticed where another wrote more files.",
        module="spark/bulk_import.py",
        right="by_host.setdefault(bucket.host, [])",
        wrong="by_host.setdefault('any', [])",
        tests=("tests/unit/spark/test_files_to_check.py",),
    ),
    Bug(
        name="statistics-by-row-groups",
        breaks="A small row group counts as much as a large one where keys come from statistics.",
        module="engine/inputs/key_sample.py",
        right="np.cumsum([group.row_count for group in groups])",
        wrong="np.cumsum([groups[0].row_count for group in groups])",
        tests=("tests/unit/engine/inputs/test_key_sample.py", "-k", "statistics"),
    ),
)
