"""Bulk import: rows into a table's leaves by block shuffle, written where Spark's workers are.

Spark schedules, shuffles and tries again; rows are read, sorted and written by Arrow and polars
in its Python workers. Nothing is visible before the driver's one commit, which is not made here:
files of attempts that failed are referenced by nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.inputs.input_files import RowGroup
from sleeper.engine.writing.discard import discard_files
from sleeper.engine.writing.write_settings import WriteSettings
from sleeper.errors import DataDamaged, InputRefused, NullKeys, ObjectNotFound, StorageFailed
from sleeper.model.files import FileReference
from sleeper.model.partitions import Partition
from sleeper.model.processing import Processing
from sleeper.model.schema import Schema
from sleeper.ports.ids import NewId
from sleeper.ports.objects import InputStore, Objects
from sleeper.spark.block_shuffle.map_tasks import (
    MapSettings,
    SetAsideFolder,
    checked_frame,
    cut_blocks,
    cut_files,
    cut_rows,
    plan_map_tasks,
    set_aside_folder,
    task_rows,
)
from sleeper.spark.block_shuffle.packed_buckets import (
    NOT_DIVIDED,
    BucketLeaves,
    BucketParts,
    RangeBuckets,
    pack_ranges,
)
from sleeper.spark.block_shuffle.reduce_tasks import (
    ReduceSettings,
    WrittenBucket,
    references_of,
    write_buckets,
)
from sleeper.spark.block_shuffle.shuffle import (
    BLOCK_COLUMNS,
    EqualTasks,
    MapTaskReport,
    hashed_keys,
    one_task_a_row,
    repartition_by_key,
    shuffle_keys_for,
    through_shuffle,
)
from sleeper.spark.block_shuffle.worker_errors import encode_errors
from sleeper.spark.frame_size import FrameSize
from sleeper.spark.import_plan import FILES_CHECKED, ImportInput, ImportPlan, explained, plan_import
from sleeper.spark.progress import StageProgress, stage_progress
from sleeper.state.plans.bulk_imports import (
    Buckets,
    joined_buckets,
    plan_buckets,
    plan_even_buckets,
)
from sleeper.state.plans.extend_tree import LeafSample

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import DataFrame, SparkSession

_TASKS_PER_CORE = 3
_TASKS_IN_CLOSURE = 1000  # which takes 200 kB; of more, each task gets its own part alone
_CHECKS_AT_ONCE = 64
_SPLIT_BYTES_MIN = 256 << 20
_JOINED_BYTES = 8 << 20  # of the shuffle: a task of less costs more for itself than for its rows
_PLACES_MAX = 2000  # beyond, map tasks report the average size of their places
_FRAME_EXPANSION = 3  # of rows, as a multiple of what Spark estimates
_ROW_GROWTH = 20  # of rows, as a multiple of the least that they can have
_TEXT_BYTES = 8  # of a value without a fixed width, at least
_STAGES = ("read and sort", "write")
_STAGES_OF_TWO_LEVELS = ("read and sort", "sort into buckets", "write")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where rows go, and how they are written.

    Attributes:
        files: The table's folder, as every worker reaches it.
        schema: The table's.
        leaves: All leaves, of the state that the import goes by.
        write: How data files are written.
        processing: The table's filters and aggregations.
        memory_bytes: What a worker's sorting may need.
        temp_folder: Where workers spill; None for the system's temporary folder.
        now_ms: The present, in milliseconds since 1970.
        new_id: Fresh random ids; called in workers.
        inputs: Opens input files that are given by URL.
    """

    files: Objects
    schema: Schema
    leaves: Sequence[Partition]
    write: WriteSettings
    processing: Processing
    memory_bytes: int
    temp_folder: Path | None
    now_ms: int
    new_id: NewId
    inputs: InputStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOutput:
    """What an import wrote, to be committed.

    Attributes:
        references: Its files.
        rows_read: Rows of the input.
        rows_written: Rows in the files.
        rows_set_aside: Rows with a null key, in files of their own.
    """

    references: tuple[FileReference, ...]
    rows_read: int
    rows_written: int
    rows_set_aside: int


Progress = Callable[[int, int | None], None]


def import_files(
    spark: SparkSession,
    groups: Sequence[RowGroup],
    samples: Mapping[str, LeafSample],
    target: Target,
    *,
    ignore_extra_columns: bool,
    set_aside: Path | None,
    progress: Progress,
) -> ImportOutput:
    """Write the rows of Parquet files as data files of the table, and check what was written.

    Args:
        spark: Any session, of Spark 4.0 or later, Connect included.
        groups: The row groups to read; their columns were checked.
        samples: About how many rows each leaf will get, and how their keys are spread.
        target: Where they go.
        ignore_extra_columns: Leave out columns that the table does not have.
        set_aside: A folder to make for rows with a null key; None refuses them.
        progress: Called now and then with about how many rows are done, and their total.

    Raises:
        InputRefused: the input does not fit. Files may be left that nothing references.
        AlreadyExists: there is something where rows are to be set aside.
        StorageFailed: a worker could not read or write, in every attempt of its task.
        DataDamaged: what Spark brought back is not what it was given.
    """
    row_count = sum(group.row_count for group in groups)
    known = known_input(groups, target, samples, cores=cores_of(spark))
    plan = plan_import(replace(known, min_leaves=known.leaves))
    _log.info("the plan of the import:\n%s", explained(known, plan))
    buckets = plan_buckets(target.leaves, samples, plan.bucket_rows)
    tasks = plan_map_tasks(groups, plan.map_task_bytes)
    run = _Run(spark, target, plan, buckets)
    is_long = len(tasks) > _TASKS_IN_CLOSURE
    stages = (*(("share out",) if is_long else ()), *run.stages)
    with set_aside_folder(set_aside, target.new_id) as aside:
        settings = run.map_settings(aside, ignore_extra_columns=ignore_extra_columns)
        rows = task_rows(tasks)
        if is_long:
            numbers, cut = one_task_a_row(spark, rows), cut_files(settings)
        else:
            numbers = spark.range(0, len(tasks), 1, len(tasks))
            cut = cut_files(settings, rows)
        blocks = numbers.mapInArrow(encode_errors(cut), BLOCK_COLUMNS)
        watch = stage_progress(spark, _rows_done(row_count, run.stages, progress), labels=stages)
        imported = run.imported(blocks, watch, aside, map_tasks=len(tasks))
        if imported.rows_read != row_count:
            raise DataDamaged(
                f"the input's footers promise {row_count:,} rows, but {imported.rows_read:,} were "
                "read. Nothing was imported; check whether files are being replaced, and run it "
                "again"
            )
    return imported


def known_input(
    groups: Sequence[RowGroup],
    target: Target,
    samples: Mapping[str, LeafSample],
    *,
    cores: int,
) -> ImportInput:
    """Return what is known of an import of files, for its plan."""
    row_count = sum(group.row_count for group in groups)
    size_bytes = sum(group.size_bytes for group in groups)
    return ImportInput(
        # Columns of a few values are small in a file, and not in memory.
        size_bytes=max(size_bytes, row_count * _least_row_bytes(target.schema)),
        row_count=row_count,
        files=len({group.path for group in groups}),
        row_groups=len(groups),
        leaves=len(target.leaves),
        cores=cores,
        memory_bytes=target.memory_bytes,
        largest_leaf_share=max((each.row_count for each in samples.values()), default=0)
        / max(1, row_count),
    )


def import_frame(
    rows: DataFrame,
    target: Target,
    *,
    size: FrameSize,
    samples: Mapping[str, LeafSample] | None,
    ignore_extra_columns: bool,
    set_aside: Path | None,
    progress: Progress,
) -> ImportOutput:
    """Write the rows of a DataFrame as data files of the table, and check what was written.

    Args: as `import_files`; `size` is what is known of the DataFrame, and `samples` is None where
        its keys were not sampled, because the table has enough leaves.

    Raises:
        InputRefused: the rows do not fit. Files may be left that nothing references.
        AlreadyExists: there is something where rows are to be set aside.
        StorageFailed: a worker could not read or write, in every attempt of its task.
        DataDamaged: what Spark brought back is not what it was given.
    """
    spark, name = rows.sparkSession, "the DataFrame"
    known = known_frame(size, target, samples, cores=cores_of(spark))
    plan = plan_import(replace(known, min_leaves=known.leaves))
    _log.info("the plan of the import:\n%s", explained(known, plan))
    if samples is None:
        buckets = plan_even_buckets(target.leaves, plan.buckets)
    else:
        buckets = plan_buckets(target.leaves, samples, plan.bucket_rows)
    fitting = checked_frame(
        rows, target.schema, ignore_extra_columns=ignore_extra_columns, name=name
    )
    if plan.map_tasks < size.partitions:
        fitting = fitting.coalesce(plan.map_tasks)
    run = _Run(spark, target, plan, buckets, is_sampled=samples is not None)
    with set_aside_folder(set_aside, target.new_id) as aside:
        settings = run.map_settings(aside, ignore_extra_columns=ignore_extra_columns)
        blocks = fitting.mapInArrow(encode_errors(cut_rows(settings, name)), BLOCK_COLUMNS)
        report = _rows_done(size.row_count, run.stages, progress)
        watch = stage_progress(spark, report, labels=run.stages)
        return run.imported(blocks, watch, aside, map_tasks=None)


def known_frame(
    size: FrameSize,
    target: Target,
    samples: Mapping[str, LeafSample] | None,
    *,
    cores: int,
) -> ImportInput:
    """Return what is known of an import of a DataFrame, for its plan.

    Spark's estimate counts files as they are compressed, so rows are taken to be three times as
    large; where they were counted, within what so many rows can have.
    """
    row_bytes = _least_row_bytes(target.schema)
    size_bytes = _FRAME_EXPANSION * size.size_bytes if size.is_estimated else size.size_bytes
    row_count = size.row_count
    if row_count is None:
        row_count = max(1, size_bytes // row_bytes)
    else:
        least = row_count * row_bytes
        size_bytes = max(least, min(size_bytes, _ROW_GROWTH * least))
    heaviest = max((each.row_count for each in (samples or {}).values()), default=0)
    return ImportInput(
        size_bytes=size_bytes,
        row_count=row_count,
        files=0,
        row_groups=size.partitions,
        leaves=len(target.leaves),
        cores=cores,
        memory_bytes=target.memory_bytes,
        largest_leaf_share=heaviest / max(1, row_count),
    )


def equal_tasks(plan: ImportPlan, buckets: int) -> tuple[BucketParts, EqualTasks]:
    """Return how tasks get equal shares of a DataFrame whose keys were not sampled.

    A bucket may have as many parts as tasks are wanted, so that one task never needs to write more
    than its share. There are fewer where Spark would know the sizes of all places only on average.
    With two levels of shuffle, and many buckets, Spark splits buckets by map tasks alone.
    """
    count = 1 if plan.levels > 1 else max(1, min(plan.buckets, (_PLACES_MAX - 1) // buckets))
    parts = BucketParts(
        count=count, buckets=buckets, tasks=plan.buckets, task_bytes=plan.bucket_bytes
    )
    split_bytes = max(_SPLIT_BYTES_MIN, 2 * plan.bucket_bytes)
    if count == 1:
        return parts, EqualTasks(split_bytes=split_bytes)
    return parts, EqualTasks(
        split_bytes=split_bytes,
        tasks=plan.buckets,
        joined_bytes=min(plan.bucket_bytes // 4, _JOINED_BYTES),
    )


class _Run:
    """One import by Spark: its levels of shuffle, and what they brought.

    Attributes:
        stages: Names of Spark's stages.
    """

    def __init__(
        self,
        spark: SparkSession,
        target: Target,
        plan: ImportPlan,
        buckets: Buckets,
        *,
        is_sampled: bool = True,
    ) -> None:
        self._spark, self._target, self._plan = spark, target, plan
        self._leaves = BucketLeaves.of(buckets)
        self._count = len(buckets)
        self._parts, self._equal = NOT_DIVIDED, None
        if not is_sampled:
            self._parts, self._equal = equal_tasks(plan, self._count)
        self._place_count = self._count * self._parts.count + 1
        self._places = (
            shuffle_keys_for(spark, self._place_count)
            if self._equal is None
            else hashed_keys(self._place_count)
        )
        first_key = to_arrow(target.schema).field(target.schema.row_key_names[0]).type
        self._ranges = pack_ranges(buckets, first_key)
        self._outer: RangeBuckets | None = None
        if plan.levels == 2 and len(buckets) > 1:
            self._each = -(-len(buckets) // min(plan.ranges, len(buckets)))
            self._outer = pack_ranges(joined_buckets(buckets, self._each), first_key)
        self.stages = _STAGES if self._outer is None else _STAGES_OF_TWO_LEVELS

    @property
    def _outer_count(self) -> int:
        """Tasks of the second level: those of each range, one after the other."""
        return -(-self._count // self._each) * self._plan.slots

    def map_settings(self, aside: SetAsideFolder, *, ignore_extra_columns: bool) -> MapSettings:
        """Return what map tasks need."""
        target, outer = self._target, self._outer
        return MapSettings(
            schema=target.schema,
            inputs=target.inputs,
            buckets=self._ranges if outer is None else outer,
            places=self._places
            if outer is None
            else shuffle_keys_for(self._spark, self._outer_count + 1),
            slots=1 if outer is None else self._plan.slots,
            is_outer=outer is not None,
            parts=self._parts,
            memory_bytes=min(target.memory_bytes, self._plan.piece_memory_bytes),
            new_id=target.new_id,
            ignore_extra_columns=ignore_extra_columns,
            set_aside=aside.tasks,
        )

    def imported(
        self,
        blocks: DataFrame,
        watch: AbstractContextManager[str],
        aside: SetAsideFolder,
        *,
        map_tasks: int | None,
    ) -> ImportOutput:
        """Run the job, and check that no row was lost.

        Args:
            blocks: What map tasks send.
            watch: Follows the job.
            aside: Where rows are set aside.
            map_tasks: How many map tasks there are; None if Spark alone knows.
        """
        target = self._target
        if self._outer is not None:
            recut = cut_blocks(target.schema, self._ranges, self._places)
            blocks = repartition_by_key(blocks, self._outer_count + 1).mapInArrow(
                encode_errors(recut), BLOCK_COLUMNS
            )
        write = ReduceSettings(
            files=target.files,
            schema=target.schema,
            leaves=self._leaves,
            notes_bucket=self._count,
            ranges=self._ranges if self._parts.count > 1 else None,
            write=target.write,
            processing=target.processing,
            memory_bytes=target.memory_bytes,
            temp_folder=target.temp_folder,
            now_ms=target.now_ms,
            new_id=target.new_id,
        )
        notes: list[MapTaskReport] = []
        written: list[WrittenBucket] = []
        with watch:
            results = through_shuffle(
                blocks, self._place_count, write_buckets(write), equal=self._equal
            )
            for _, result in sorted(results, key=itemgetter(0)):
                if isinstance(result, WrittenBucket):
                    written.append(result)
                else:
                    notes += result
        return _checked(notes, written, target, aside, map_tasks)


def _checked(
    notes: Sequence[MapTaskReport],
    written: Sequence[WrittenBucket],
    target: Target,
    aside: SetAsideFolder,
    map_tasks: int | None,
) -> ImportOutput:
    """Return what was imported, after a check that every row arrived in a file that is there."""
    imported = ImportOutput(
        references=references_of(written),
        rows_read=sum(note.rows_read for note in notes),
        rows_written=sum(bucket.rows_written for bucket in written),
        rows_set_aside=sum(note.rows_set_aside for note in notes),
    )
    try:
        _refuse(notes, imported)
    except InputRefused:
        # Not all tasks know of a refusal before they write.
        discard_files((each.filename for each in imported.references), target.files)
        raise
    rows_in = sum(bucket.rows_in for bucket in written)
    if map_tasks not in (None, len(notes)) or rows_in != (
        imported.rows_read - imported.rows_set_aside
    ):
        raise DataDamaged(
            f"Spark's tasks read {imported.rows_read:,} rows, set {imported.rows_set_aside:,} of "
            f"them aside and wrote {rows_in:,}. Nothing was imported; run it again"
        )
    check_files(written, target)
    aside.keep(name for note in notes for name in note.files_set_aside)
    return imported


def _rows_done(
    row_count: int | None, stages: Sequence[str], progress: Progress
) -> Callable[[StageProgress], None]:
    """Return what turns ended tasks into rows: a row is done when every stage has done its part."""
    shares = dict.fromkeys(stages, 0.0)

    def report(stage: StageProgress) -> None:
        if stage.label in shares and row_count is not None:
            shares[stage.label] = stage.tasks_done / max(1, stage.tasks_total) / len(stages)
            progress(round(row_count * sum(shares.values())), row_count)

    return report


def _refuse(notes: Iterable[MapTaskReport], imported: ImportOutput) -> None:
    """Raise the errors that tasks found in their input."""
    nulls: dict[str, int] = {}
    for note in notes:
        if note.refusal is not None:
            raise note.refusal
        for name, count in note.null_counts:
            nulls[name] = nulls.get(name, 0) + count
    if nulls:
        counts = ", ".join(f"{count:,} without {name!r}" for name, count in nulls.items())
        raise NullKeys(
            f"{imported.rows_set_aside:,} of {imported.rows_read:,} rows have a null in a key "
            f"field: {counts}. Nothing was imported. Fill the keys in, leave such rows out, or "
            "set them aside: set_aside=FOLDER, --set-aside FOLDER.",
            nulls,
        )


def check_files(written: Sequence[WrittenBucket], target: Target) -> None:
    """Check that this process finds the files: workers may have disks of their own."""
    leaves = {leaf.partition_id for leaf in target.leaves}
    strange = [
        reference
        for bucket in written
        for reference in bucket.references
        if reference.partition_id not in leaves
    ]
    assert not strange, f"tasks wrote files for partitions that are no leaves: {strange[:3]}"
    try:
        with ThreadPoolExecutor(_CHECKS_AT_ONCE) as pool:
            for _ in pool.map(target.files.size, files_to_check(written)):
                pass
    except ObjectNotFound as error:
        raise StorageFailed(
            f"Spark's workers wrote files that this process does not find ({error}). Workers and "
            "driver must reach the instance at the same place: use an object store, a shared "
            "file system, or local mode"
        ) from None


def files_to_check(
    written: Sequence[WrittenBucket], count_max: int = FILES_CHECKED
) -> Sequence[str]:
    """Return the names of all files, or of `count_max` of them, some of every machine.

    All tasks of a machine write to the same place, so that a few of its files tell where.
    """
    by_host: dict[str, list[str]] = {}
    for bucket in written:
        names = by_host.setdefault(bucket.host, [])
        names += (reference.filename for reference in bucket.references)
    if sum(map(len, by_host.values())) <= count_max:
        return [name for names in by_host.values() for name in names]
    each = max(1, count_max // len(by_host))
    return [name for names in by_host.values() for name in names[:: -(-len(names) // each) or 1]]


def _least_row_bytes(schema: Schema) -> int:
    """Return how many bytes a row has in memory at least."""
    widths = []
    for field in to_arrow(schema):
        try:
            widths.append(field.type.bit_width // 8)
        except ValueError:  # text, lists and maps
            widths.append(_TEXT_BYTES)
    return sum(widths)


def cores_of(spark: SparkSession) -> int:
    """Return about how many tasks run at once; for Connect, a guess by its shuffle setting."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001 - Connect raises an error of its own, in each version another
        return max(1, int(spark.conf.get("spark.sql.shuffle.partitions") or 8) // _TASKS_PER_CORE)
