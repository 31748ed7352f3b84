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
    Bug(
        name="attempts-set-aside-twice",
        breaks="Rows without a key are in the folder once for each attempt of a task.",
        module="spark/block_shuffle/map_tasks.py",
        right="enumerate(sorted(names)):",
        wrong="enumerate(sorted({*names, *(p.name for p in self.tasks.glob('[!.]*'))})):",
        tests=("tests/unit/spark/test_set_aside_folder.py",),
    ),
)
