"""The plan of a bulk import on Spark, as numbers, and what it will cost. Pure: no Spark, no I/O.

A map task reads a part of the input and cuts it into blocks, one for each bucket. A bucket is some
neighbouring leaves, or a range of keys of one large leaf; a reduce task sorts and writes it. So a
shuffle has as many blocks as map tasks times buckets, and how large tasks are follows from how
small a block may be:

1. One level of shuffle: tasks of s bytes of N make blocks of s * s / N bytes. The smallest s that
   makes blocks of 1.25 MB is the square root of 1.25 MB * N: 35 MB for 1 GB, 1.1 GB for 1 TB. Small
   tasks balance best and need the least memory, so this is taken as long as a task is short.
2. Two levels, where tasks of that size would be too long, or leave cores without work. The first
   brings rows to ranges of about so many buckets as a range has; the second, whose tasks read a
   part of one range, brings them to their buckets. All rows pass the shuffle twice, and blocks are
   larger by the square root of the number of buckets.

A task may read more than fits its memory: it sorts in pieces, and the reduce task spills. So the
memory of a task is bounded whatever the input.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isqrt

from sleeper.state.plans.extend_tree import leaves_wanted

_MB = 1_000_000
_MIB = 1 << 20
_GIB = 1 << 30

BLOCK_BYTES = 1_250_000
"""Bytes of a block of the shuffle, before compression, that are worth a read of their own."""
BLOCK_BYTES_MIN = BLOCK_BYTES // 8
"""The least size of a block where partitions of a DataFrame, and not the plan, make map tasks."""
BLOCKS_FEW, BLOCKS_MAX = 1_000_000, 10_000_000
"""Blocks that one shuffle may have below a terabyte, and from 10 TB on: a driver keeps the size of
each."""
TASK_BYTES_MIN = 32 * _MIB
"""A task costs about 50 ms whatever it reads; this much takes a second."""
TASK_BYTES_MAX = 4 * _GIB
"""This much takes some minutes, which is what a lost executor may cost."""
FRAME_TASKS_MAX = 50_000
"""Partitions of a DataFrame that get a task each; of more, several share one."""
FILES_READ_HERE = 2_000
"""Input files whose footers the driver reads by itself: more are read by tasks."""
FILES_CHECKED = 10_000
"""Written files that the driver looks for before it commits, at most."""

_SHORT_TASK_BYTES = _GIB  # where cores would have no work, tasks are no larger
_TASKS_PER_CORE = 3
_MAP_TASKS_PER_CORE = 8  # they sort in pieces, so that larger ones need no more memory
_LEAF_FAR_LARGER = 1.5  # times a bucket: such a leaf is cut
_PIECE_BLOCK_BYTES = 128 << 10  # of a sorted piece, for one bucket: less is mostly headers
_SORTING = 3  # memory for sorting, as a multiple of the rows
_PIECE_MEMORY_MIN = 64 * _MIB
_WORKER_BYTES = 170 * _MIB  # Python and its libraries
_WRITING_BYTES = 184 * _MIB  # beside the memory of a sort

# Costs on the driver, measured by bench/import_driver.py.
_REQUEST_S = 0.02
_REQUESTS_AT_ONCE = 64
_LISTED_AT_ONCE = 1_000
_SAMPLED_GROUPS = 1_024
_SAMPLE_REQUESTS = 3
_SAMPLE_BYTES = 270 * _MIB  # of keys, whatever the input
_PER_FILE_BYTES = 190  # its name
_PER_GROUP_S, _PER_GROUP_BYTES = 6e-6, 240
_PER_LEAF_S, _PER_LEAF_BYTES = 200e-6, 7_000
_PER_OUTPUT_S, _PER_OUTPUT_BYTES = 55e-6, 1_500
_PER_BLOCK_BYTES = 1.0  # Spark's own record of a block's size
_DRIVER_BYTES = 140 * _MIB
_START_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportInput:
    """What is known of an import before it runs.

    Attributes:
        size_bytes: Bytes of the rows before compression; an estimate for a DataFrame.
        row_count: Rows.
        files: Input files; 0 for a DataFrame.
        row_groups: Row groups of the files, or partitions of the DataFrame: a map task reads at
            least one.
        leaves: Leaves of the table now.
        min_leaves: The least number of leaves, where the table's property says it.
        cores: Tasks that run at the same time.
        memory_bytes: What sorting in a task may need.
        largest_leaf_share: Share of the rows that fall into one leaf, of the leaf that gets most:
            0 to 1; 0 if they are spread evenly.
    """

    size_bytes: int
    row_count: int
    files: int
    row_groups: int
    leaves: int
    cores: int
    memory_bytes: int
    min_leaves: int | None = None
    largest_leaf_share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """How an import is divided, and what it needs.

    Attributes:
        leaves: Leaves that the table is split to first; what it has, if that is more.
        map_tasks: Tasks that read the input.
        map_task_bytes: Bytes that one of them reads.
        buckets: Tasks that write, each a bucket.
        bucket_bytes: Bytes of a bucket.
        bucket_rows: Rows of a bucket.
        levels: Levels of shuffle: 1 or 2.
        ranges: Ranges of buckets that the first of two levels has; 1 where there is one level.
        slots: Tasks that cut the rows of one range into buckets, where there are two levels.
        blocks: Blocks of all levels.
        block_bytes: Bytes of a block, on average, of the level that has the smaller ones.
        shuffle_bytes: Bytes that pass all shuffles, before compression.
        piece_memory_bytes: Memory for sorting a piece of the input in a map task.
        files_written: Data files, about.
        task_memory_bytes: Memory of the Python worker of one task, at most.
        driver_memory_bytes: Memory of the driver's Python process and Spark's records of blocks.
        driver_seconds: Seconds that the driver works alone, with object storage of 20 ms.
        requests: Requests to object storage by the driver.
    """

    leaves: int
    map_tasks: int
    map_task_bytes: int
    buckets: int
    bucket_bytes: int
    bucket_rows: int
    levels: int
    ranges: int
    slots: int
    blocks: int
    block_bytes: int
    shuffle_bytes: int
    piece_memory_bytes: int
    files_written: int
    task_memory_bytes: int
    driver_memory_bytes: int
    driver_seconds: float
    requests: int


def plan_import(known: ImportInput) -> ImportPlan:
    """Divide an import into tasks, buckets and levels of shuffle, and say what it costs."""
    size = max(1, known.size_bytes)
    leaves = max(known.leaves, _leaves(known))
    task_bytes = max(TASK_BYTES_MIN, isqrt(size * BLOCK_BYTES))
    map_tasks = _map_tasks(known, size, task_bytes)
    bucket_bytes = _bucket_bytes(known, size, task_bytes, map_tasks)
    two_levels = _needs_two_levels(size, known.cores, bucket_bytes, map_tasks)
    if two_levels:
        bucket_bytes = min(TASK_BYTES_MAX, max(_SHORT_TASK_BYTES, _balanced(size, known.cores)))
        map_tasks = _map_tasks(known, size, bucket_bytes)
    buckets = _parts(size, bucket_bytes)
    ranges = max(1, isqrt(buckets)) if two_levels else 1
    ranges = _parts(buckets, _parts(buckets, ranges))  # no range is empty
    slots = _parts(size, ranges * bucket_bytes) if two_levels else 1
    first = map_tasks * (ranges if two_levels else buckets)
    second = ranges * slots * _parts(buckets, ranges) if two_levels else 0
    files_written = _files_written(known, leaves, buckets, bucket_bytes)
    piece_memory = _piece_memory(size, map_tasks, buckets, known.memory_bytes)
    return ImportPlan(
        leaves=leaves,
        map_tasks=map_tasks,
        map_task_bytes=ceil(size / map_tasks),
        buckets=buckets,
        bucket_bytes=bucket_bytes,
        bucket_rows=max(1, known.row_count * bucket_bytes // size),
        levels=2 if two_levels else 1,
        ranges=ranges,
        slots=slots,
        blocks=first + second,
        block_bytes=size // max(first, second),
        shuffle_bytes=size * (2 if two_levels else 1),
        piece_memory_bytes=piece_memory,
        files_written=files_written,
        task_memory_bytes=_WORKER_BYTES + _WRITING_BYTES + max(known.memory_bytes, piece_memory),
        driver_memory_bytes=_driver_memory(known, leaves, files_written, first + second),
        driver_seconds=_driver_seconds(known, leaves, files_written),
        requests=_requests(known, files_written),
    )


def _leaves(known: ImportInput) -> int:
    if known.min_leaves is not None:
        return known.min_leaves
    return leaves_wanted(known.row_count, known.size_bytes)


def _map_tasks(known: ImportInput, size: int, task_bytes: int) -> int:
    if known.files == 0:  # Spark has divided a DataFrame already
        return min(max(1, known.row_groups), FRAME_TASKS_MAX)
    share = min(TASK_BYTES_MAX, size // (_MAP_TASKS_PER_CORE * max(1, known.cores)))
    return min(_parts(size, max(task_bytes, share)), max(1, known.row_groups))


def _balanced(size: int, cores: int) -> int:
    """Return the size of tasks of which every core gets three."""
    return size // (_TASKS_PER_CORE * max(1, cores))


def _bucket_bytes(known: ImportInput, size: int, task_bytes: int, map_tasks: int) -> int:
    """Return the size of buckets; larger where a DataFrame comes in many partitions.

    They are as many as leave each core three, and never more than a task may have.
    """
    if known.files:
        return task_bytes
    fair = min(BLOCK_BYTES * map_tasks, _balanced(size, known.cores), TASK_BYTES_MAX)
    return max(task_bytes, fair)


def _needs_two_levels(size: int, cores: int, bucket_bytes: int, map_tasks: int) -> bool:
    """Return whether buckets of this size are too long for a task, or make too many blocks.

    Long buckets are two for each core at least, since the last ones would leave cores idle.
    """
    blocks = map_tasks * _parts(size, bucket_bytes)
    blocks_max = min(BLOCKS_MAX, max(BLOCKS_FEW, size // _MB))
    too_many = blocks > blocks_max or size < blocks * BLOCK_BYTES_MIN
    idle = bucket_bytes > 2 * _SHORT_TASK_BYTES and size < 2 * cores * bucket_bytes
    return size > TASK_BYTES_MAX and (too_many or idle or bucket_bytes > TASK_BYTES_MAX)


def _files_written(known: ImportInput, leaves: int, buckets: int, bucket_bytes: int) -> int:
    """Return about how many files are written: one for each leaf and bucket that share rows."""
    if not known.row_count:
        return 0
    heavy = known.size_bytes * known.largest_leaf_share
    parts = 0
    if heavy > _LEAF_FAR_LARGER * bucket_bytes:
        parts = _parts(round(heavy), bucket_bytes) - 1
    mean = known.size_bytes * (1 - known.largest_leaf_share) / leaves
    each = _parts(round(mean), bucket_bytes) if mean > _LEAF_FAR_LARGER * bucket_bytes else 1
    return min(known.row_count, leaves * each + parts)


def _piece_memory(size: int, map_tasks: int, buckets: int, memory_bytes: int) -> int:
    """Return the memory for sorting a piece: enough that its blocks are not mostly headers.

    A piece comes to its buckets in as many parts, at once or by two levels.
    """
    rows = min(size // map_tasks, buckets * _PIECE_BLOCK_BYTES)
    return min(memory_bytes, max(_PIECE_MEMORY_MIN, _SORTING * rows))


def _driver_memory(known: ImportInput, leaves: int, files_written: int, blocks: int) -> int:
    groups = known.row_groups if known.files else 0
    return round(
        _DRIVER_BYTES
        + (_SAMPLE_BYTES if known.row_count > leaves else 0)
        + known.files * _PER_FILE_BYTES
        + groups * _PER_GROUP_BYTES
        + leaves * _PER_LEAF_BYTES
        + files_written * _PER_OUTPUT_BYTES
        + blocks * _PER_BLOCK_BYTES
    )


def _driver_seconds(known: ImportInput, leaves: int, files_written: int) -> float:
    """Return about how long the driver works alone: sums of what it does, in order."""
    listing = known.files / _LISTED_AT_ONCE * _REQUEST_S
    footers = min(known.files, FILES_READ_HERE) * 2 * _REQUEST_S / _REQUESTS_AT_ONCE
    groups = known.row_groups * _PER_GROUP_S if known.files else 0.0
    sampled = min(known.row_groups, _SAMPLED_GROUPS) if known.files else 0
    sample = sampled * _SAMPLE_REQUESTS * _REQUEST_S / _REQUESTS_AT_ONCE
    checks = min(files_written, FILES_CHECKED) * _REQUEST_S / _REQUESTS_AT_ONCE
    leaves_s, output = leaves * _PER_LEAF_S, files_written * _PER_OUTPUT_S
    return _START_S + listing + footers + groups + sample + leaves_s + checks + output


def _requests(known: ImportInput, files_written: int) -> int:
    footers = 2 * known.files if known.files <= FILES_READ_HERE else 0
    sampled = _SAMPLE_REQUESTS * min(known.row_groups, _SAMPLED_GROUPS) if known.files else 0
    listing = _parts(known.files, _LISTED_AT_ONCE)
    return listing + footers + sampled + min(files_written, FILES_CHECKED)


def _parts(whole: int, part: int) -> int:
    """Return how many parts a whole has, the last one perhaps smaller; at least 1."""
    return max(1, -(-whole // max(1, part)))


# ---------------------------------------------------------------- as text


def explained(known: ImportInput, plan: ImportPlan) -> str:
    """Return an import's plan in lines for a terminal."""
    source = f"{known.files:,} files, {known.row_groups:,} row groups"
    if not known.files:
        source = f"a DataFrame of {known.row_groups:,} partitions"
    share = known.largest_leaf_share
    skew = f"; one leaf gets {share:.0%} of the rows" if 1 > share > 2 / plan.leaves else ""
    size, rows = _size(known.size_bytes), f"{known.row_count:,} rows"
    lines = {
        "input": f"{size} before compression, {rows}: {source}{skew}",
        "leaves": _leaves_line(known, plan),
        "map tasks": f"{plan.map_tasks:,} of {_size(plan.map_task_bytes)}, on {known.cores:,} "
        f"cores; pieces are sorted in {_size(plan.piece_memory_bytes)}",
        "two levels": f"{plan.ranges:,} ranges of buckets, each cut into buckets by {plan.slots:,} "
        "tasks",
        "buckets": f"{plan.buckets:,} of {_size(plan.bucket_bytes)}, a task each, which writes it",
        "blocks": f"{plan.blocks:,} of {_size(plan.block_bytes)}; {_size(plan.shuffle_bytes)} pass "
        "the shuffle before compression",
        "files": f"about {plan.files_written:,}, in one commit",
        "a task": f"at most {_size(plan.task_memory_bytes)} of memory in its Python worker",
        "the driver": f"about {_size(plan.driver_memory_bytes)} of memory, "
        f"{plan.driver_seconds:,.0f} s of its own and {plan.requests:,} requests, of 20 ms each",
    }
    if plan.levels == 1:
        del lines["two levels"]
    return "\n".join(f"{name:<11} {text}" for name, text in lines.items())


def _leaves_line(known: ImportInput, plan: ImportPlan) -> str:
    if plan.leaves > known.leaves:
        return f"{known.leaves:,}, split to {plan.leaves:,} before rows are moved"
    return f"{known.leaves:,}, which are enough"


def _size(count: float) -> str:
    """Return bytes in decimal units, with three digits.

    >>> _size(32 << 20), _size(999), _size(12_500_000_000_000)
    ('33.6 MB', '999 B', '12.5 TB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB" if count < 1000 else f"{count:,.0f} TB"
