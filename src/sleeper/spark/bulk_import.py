"""Bulk import: rows into a table's leaves by block shuffle, written where Spark's workers are.

Spark schedules, shuffles and tries again; rows are read, sorted and written by Arrow and polars
in its Python workers. Nothing is visible before the driver's one commit, which is not made here:
files of attempts that failed are referenced by nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sleeper.engine.inputs.input_files import RowGroup
from sleeper.engine.writing.data_file import WriteSettings
from sleeper.errors import DataDamaged, NullKeys, ObjectNotFound, StorageFailed
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
    cut_files,
    cut_rows,
    plan_map_tasks,
    set_aside_folder,
)
from sleeper.spark.block_shuffle.reduce_tasks import (
    ReduceSettings,
    WrittenBucket,
    references_of,
    write_buckets,
)
from sleeper.spark.block_shuffle.shuffle import (
    BLOCK_COLUMNS,
    MapTaskReport,
    shuffle_keys_for,
    through_shuffle,
)
from sleeper.spark.block_shuffle.worker_errors import encode_errors
from sleeper.spark.progress import StageProgress, stage_progress
from sleeper.state.plans.bulk_imports import Buckets, plan_buckets, plan_even_buckets
from sleeper.state.plans.extend_tree import LeafSample

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import DataFrame, SparkSession

_BUCKET_BYTES = 32 << 20
_BUCKET_ROWS_MAX = 1_000_000  # rows may be few bytes in a file and many in memory
_PIECE_BYTES_MAX = 64 << 20  # what sorting a piece of the input may need
_TASKS_PER_CORE = 3
_FRAME_BUCKETS_MIN = 48  # the size of a DataFrame is not known: many, so that each is small
_CHECKS_AT_ONCE = 16
_STAGES = ("read and sort", "write")


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
    size_bytes = sum(group.size_bytes for group in groups)
    wanted = _rows_of_a_bucket(row_count, size_bytes)
    buckets = plan_buckets(target.leaves, samples, wanted)
    tasks = plan_map_tasks(groups)
    places = shuffle_keys_for(spark, len(buckets) + 1)
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    watch = stage_progress(spark, _rows_done(row_count, progress), labels=_STAGES)
    with set_aside_folder(set_aside, target.new_id) as aside:
        settings = _map_settings(
            target, buckets, places, aside, ignore_extra_columns=ignore_extra_columns
        )
        blocks = numbers.mapInArrow(encode_errors(cut_files(tasks, settings)), BLOCK_COLUMNS)
        imported = _import(blocks, buckets, target, watch, aside, notes_expected=len(tasks))
        if imported.rows_read != row_count:
            raise DataDamaged(
                f"the input's footers promise {row_count:,} rows, but {imported.rows_read:,} were "
                "read. Nothing was imported; check whether files are being replaced, and run it "
                "again"
            )
    return imported


def import_frame(
    rows: DataFrame,
    target: Target,
    *,
    samples: Mapping[str, LeafSample] | None,
    row_count: int | None,
    ignore_extra_columns: bool,
    set_aside: Path | None,
    progress: Progress,
) -> ImportOutput:
    """Write the rows of a DataFrame as data files of the table, and check what was written.

    Args: as `import_files`; `samples` and `row_count` are None where nothing is known.

    Raises:
        InputRefused: the rows do not fit. Files may be left that nothing references.
        AlreadyExists: there is something where rows are to be set aside.
        StorageFailed: a worker could not read or write, in every attempt of its task.
        DataDamaged: what Spark brought back is not what it was given.
    """
    cores = _cores(rows.sparkSession)
    if samples is None or row_count is None:
        buckets = plan_even_buckets(target.leaves, max(_FRAME_BUCKETS_MIN, _TASKS_PER_CORE * cores))
    else:
        buckets = plan_buckets(target.leaves, samples, _BUCKET_ROWS_MAX // 2)
    places = shuffle_keys_for(rows.sparkSession, len(buckets) + 1)
    name = "the DataFrame"
    fitting = checked_frame(
        rows, target.schema, ignore_extra_columns=ignore_extra_columns, name=name
    )
    watch = stage_progress(rows.sparkSession, _rows_done(row_count, progress), labels=_STAGES)
    with set_aside_folder(set_aside, target.new_id) as aside:
        settings = _map_settings(
            target, buckets, places, aside, ignore_extra_columns=ignore_extra_columns
        )
        blocks = fitting.mapInArrow(encode_errors(cut_rows(settings, name)), BLOCK_COLUMNS)
        return _import(blocks, buckets, target, watch, aside, notes_expected=None)


def _map_settings(
    target: Target,
    buckets: Buckets,
    places: Sequence[int],
    aside: SetAsideFolder,
    *,
    ignore_extra_columns: bool,
) -> MapSettings:
    return MapSettings(
        schema=target.schema,
        inputs=target.inputs,
        buckets=buckets,
        places=places,
        memory_bytes=min(target.memory_bytes, _PIECE_BYTES_MAX),
        new_id=target.new_id,
        ignore_extra_columns=ignore_extra_columns,
        set_aside=aside.tasks,
    )


def _import(
    blocks: DataFrame,
    buckets: Buckets,
    target: Target,
    watch: AbstractContextManager[str],
    aside: SetAsideFolder,
    *,
    notes_expected: int | None,
) -> ImportOutput:
    write = ReduceSettings(
        files=target.files,
        schema=target.schema,
        buckets=buckets,
        write=target.write,
        processing=target.processing,
        memory_bytes=target.memory_bytes,
        temp_folder=target.temp_folder,
        now_ms=target.now_ms,
        new_id=target.new_id,
    )
    with watch:
        results = through_shuffle(blocks, len(buckets) + 1, write_buckets(write))
    notes: Sequence[MapTaskReport] = results.pop(len(buckets), ())
    written = [result for result in results.values() if isinstance(result, WrittenBucket)]
    imported = ImportOutput(
        references=references_of(written),
        rows_read=sum(note.rows_read for note in notes),
        rows_written=sum(bucket.rows_written for bucket in written),
        rows_set_aside=sum(note.rows_set_aside for note in notes),
    )
    _refuse(notes, imported)
    rows_in = sum(bucket.rows_in for bucket in written)
    if notes_expected not in (None, len(notes)) or rows_in != (
        imported.rows_read - imported.rows_set_aside
    ):
        raise DataDamaged(
            f"Spark's tasks read {imported.rows_read:,} rows, set {imported.rows_set_aside:,} of "
            f"them aside and wrote {rows_in:,}. Nothing was imported; run it again"
        )
    _check_files(imported.references, target)
    aside.keep(name for note in notes for name in note.files_set_aside)
    return imported


def _rows_done(row_count: int | None, progress: Progress) -> Callable[[StageProgress], None]:
    """Return what turns ended tasks into rows: half a row is done when it is read and sorted."""
    shares = dict.fromkeys(_STAGES, 0.0)

    def report(stage: StageProgress) -> None:
        if stage.label in shares and row_count is not None:
            shares[stage.label] = stage.tasks_done / max(1, stage.tasks_total) / len(_STAGES)
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


def _check_files(references: Sequence[FileReference], target: Target) -> None:
    """Check that this process finds every file: workers may have disks of their own."""
    leaves = {leaf.partition_id for leaf in target.leaves}
    strange = [reference for reference in references if reference.partition_id not in leaves]
    assert not strange, f"tasks wrote files for partitions that are no leaves: {strange[:3]}"
    names = [reference.filename for reference in references]
    try:
        with ThreadPoolExecutor(_CHECKS_AT_ONCE) as pool:
            list(pool.map(target.files.size, names))
    except ObjectNotFound as error:
        raise StorageFailed(
            f"Spark's workers wrote files that this process does not find ({error}). Workers and "
            "driver must reach the instance at the same place: use an object store, a shared "
            "file system, or local mode"
        ) from None


def _rows_of_a_bucket(row_count: int, size_bytes: int) -> int:
    return max(1, min(_BUCKET_ROWS_MAX, row_count * _BUCKET_BYTES // max(1, size_bytes)))


def _cores(spark: SparkSession) -> int:
    """Return about how many tasks run at once; for Connect, a guess by its shuffle setting."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001 - Connect raises an error of its own, in each version another
        return max(1, int(spark.conf.get("spark.sql.shuffle.partitions") or 8) // _TASKS_PER_CORE)
