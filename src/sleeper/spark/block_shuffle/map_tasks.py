"""The first half of a bulk import: tasks that read rows, sort them and cut them into blocks."""

from __future__ import annotations

import hashlib
import pickle
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from sleeper.engine.arrow_schema import check_columns, to_arrow
from sleeper.engine.inputs.input_files import RowGroup, read_row_groups, shown
from sleeper.engine.inputs.validated_input import SetAside, ValidatedInput
from sleeper.engine.writing.export import atomic_directory
from sleeper.errors import InputRefused, NullKeys, StorageFailed
from sleeper.model.schema import Schema
from sleeper.ports.ids import NewId
from sleeper.ports.objects import InputStore
from sleeper.spark.block_shuffle.blocks import BlockCutter
from sleeper.spark.block_shuffle.packed_buckets import NOT_DIVIDED, BucketParts, RangeBuckets
from sleeper.spark.block_shuffle.shuffle import (
    Batches,
    BlockBatches,
    MapTaskReport,
    ShuffledBlocks,
    use_one_thread,
)
from sleeper.spark.data_source.schema import arrow_schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# ---------------------------------------------------------------- set aside folder
#
# Rows with a null key, which the tasks of a bulk import put into files of one folder.
#
# Spark may run a task twice, one after the other or at the same time, and a worker may be killed.
# So each attempt writes files of its own, in a hidden folder. The driver learns from the reports
# of the tasks which files count. Only those are moved, and the folder appears when the import has
# succeeded.
#
# A report goes through Spark's shuffle. From version 4.1 on Spark compares what attempts of a task
# send, and fails the job if they differ. So a complete file is named by its content: another
# attempt that sets the same rows aside reports the same name.


@dataclass(frozen=True, slots=True)
class SetAsideFolder:
    """The folder that the driver makes, and tasks write to.

    Attributes:
        tasks: Where attempts of tasks write; None where rows with a null key are refused.
    """

    tasks: Path | None = None

    def keep(self, names: Iterable[str]) -> None:
        """Keep the files of these names, and delete those of attempts that do not count.

        Raises:
            StorageFailed: a file is not there: workers may have disks of their own.
        """
        if self.tasks is None:
            return
        for number, name in enumerate(sorted(names)):
            try:
                (self.tasks / name).rename(self.tasks.with_name(f"part-{number:05}.parquet"))
            except OSError as error:
                raise StorageFailed(
                    f"Spark's workers set rows aside in {name}, which this process cannot move "
                    f"({error}). Name a folder that the driver and all workers reach"
                ) from error
        shutil.rmtree(self.tasks, ignore_errors=True)


def named_by_content(file: Path, task: int, source: int) -> str:
    """Rename a complete file of an attempt to a name that follows from its bytes; return the name.

    A file of this name, of an earlier attempt, has the same bytes and is replaced.

    Args:
        file: The file, in the folder of the tasks.
        task: The number of the task; each task has its own names.
        source: The number of the input within the task.

    Raises:
        StorageFailed: the file cannot be read or renamed.
    """
    try:
        with file.open("rb") as body:
            digest = hashlib.file_digest(body, "sha256").hexdigest()
        return file.replace(file.with_name(f"{task:05}-{source:03}-{digest}.parquet")).name
    except OSError as error:
        raise StorageFailed(f"cannot rename {file}: {error.strerror or error}") from error


@contextmanager
def set_aside_folder(folder: Path | None, new_id: NewId) -> Iterator[SetAsideFolder]:
    """Yield where tasks set rows aside; `folder` appears at the end of a block that succeeds.

    Args:
        folder: A folder that does not exist yet, or an empty one. The driver and all workers
            reach it. None refuses rows with a null key.
        new_id: Fresh random ids.

    Raises:
        AlreadyExists: there is something in the folder, such as the rows of another job.
        StorageFailed: the folder cannot be made.
    """
    if folder is None:
        yield SetAsideFolder()
        return
    with atomic_directory(folder, new_id()) as unfinished:
        tasks = unfinished / ".tasks"
        try:
            tasks.mkdir(parents=True)
        except OSError as error:
            raise StorageFailed(f"cannot write {folder}: {error.strerror or error}") from error
        yield SetAsideFolder(tasks)


_QUICK = 1  # of zlib: names of files are much alike
_BATCH_ROWS_MIN = 8192  # Spark 4.0 gives tasks 64 rows at a time: see `shuffle`


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSettings:
    """How map tasks check rows and cut them into blocks.

    Attributes:
        schema: The table's.
        inputs: Opens input files that are given by URL.
        buckets: Where each row goes.
        places: What brings a block to each bucket's task; the notes' place last. Where a bucket has
            several tasks, their places follow each other.
        slots: Tasks of each bucket, of which a map task uses one.
        is_outer: Whether this is the first of two levels of shuffle.
        parts: How buckets with far more rows than others are sent.
        memory_bytes: What sorting a piece may need.
        ignore_extra_columns: Leave out columns that the table does not have.
        new_id: Fresh random ids, different in every attempt of a task.
        set_aside: The folder where attempts write rows with a null key; None refuses such rows.
    """

    schema: Schema
    inputs: InputStore
    buckets: RangeBuckets
    places: Sequence[int]
    memory_bytes: int
    new_id: NewId
    slots: int = 1
    is_outer: bool = False
    parts: BucketParts = NOT_DIVIDED
    ignore_extra_columns: bool = False
    set_aside: Path | None = None


@dataclass(frozen=True, slots=True)
class FilePart:
    """Row groups of one input file, which one task reads.

    Attributes:
        path: The file, or its URL.
        indexes: Places of the row groups in it.
        row_count: Rows of these row groups.
    """

    path: str
    indexes: tuple[int, ...]
    row_count: int


MapTask = tuple[FilePart, ...]


def plan_map_tasks(groups: Iterable[RowGroup], size_bytes: int) -> list[MapTask]:
    """Share row groups out to tasks of about so many bytes before compression."""
    tasks: list[list[RowGroup]] = []
    room = 0
    for group in groups:
        if not tasks or room < group.size_bytes:
            tasks.append([])
            room = size_bytes
        tasks[-1].append(group)
        room -= group.size_bytes
    return [_file_parts(task) for task in tasks]


def _file_parts(groups: Iterable[RowGroup]) -> MapTask:
    parts = []
    for path, same in groupby(groups, key=attrgetter("path")):
        inside = [*same]
        rows = sum(group.row_count for group in inside)
        parts.append(FilePart(path, tuple(group.index for group in inside), rows))
    return tuple(parts)


def task_rows(tasks: Sequence[MapTask]) -> pa.Table:
    """Return a row for each task, for `cut_files`: its number, and what it reads."""
    packed = [zlib.compress(pickle.dumps(task), _QUICK) for task in tasks]
    return pa.table({"number": pa.array(range(len(tasks)), pa.int32()), "task": packed})


def cut_files(settings: MapSettings, tasks: pa.Table | None = None) -> Callable[[Batches], Batches]:
    """Return a function for `mapInArrow` over rows of `task_rows`.

    Args:
        settings: How rows are cut.
        tasks: All rows, if those that come are only their numbers.
    """

    def run(batches: Batches) -> Batches:
        use_one_thread()
        for batch in batches:
            own = batch if tasks is None else tasks.take(batch.column(0))
            for number, packed in zip(
                own["number"].to_pylist(), own["task"].to_pylist(), strict=True
            ):
                parts: MapTask = pickle.loads(zlib.decompress(packed))  # noqa: S301 - our own
                sources = (_FilePart(part, settings) for part in parts)
                yield from _cut(sources, settings, number)

    return run


def cut_rows(settings: MapSettings, name: str) -> Callable[[Batches], Batches]:
    """Return a function for `mapInArrow` over rows; `name` is what to call them in messages."""

    def run(batches: Batches) -> Batches:
        from pyspark import TaskContext  # noqa: PLC0415 - an extra, and slow to import

        use_one_thread()
        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        yield from _cut([_Stream(name, _gathered(batches))], settings, number)

    return run


def cut_blocks(
    schema: Schema, buckets: RangeBuckets, places: Sequence[int]
) -> Callable[[Batches], Batches]:
    """Return a function for `mapInArrow` over blocks: the second level of a shuffle.

    Each block is cut by itself, so that attempts of a task send the same blocks, in whatever order
    theirs arrive.
    """

    def run(batches: Batches) -> Batches:
        use_one_thread()
        arrived = ShuffledBlocks(batches)
        cutter = BlockCutter(schema, to_arrow(schema), buckets, memory_bytes=0)
        out = BlockBatches(places)
        yield from out.with_blocks(cutter.recut(arrived.blocks()))
        yield from out.rest()
        for notes in arrived.notes.values():
            for note in notes:
                yield from out.with_note(note)

    return run


def _gathered(batches: Batches) -> Batches:
    """Join small batches, because each batch has a fixed cost."""
    waiting: list[pa.RecordBatch] = []
    row_count = 0
    for batch in batches:
        waiting.append(batch)
        row_count += batch.num_rows
        if row_count >= _BATCH_ROWS_MIN:
            yield from _joined(waiting)
            waiting, row_count = [], 0
    yield from _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    if len(batches) <= 1:
        return batches
    joined: Sequence[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _cut(sources: Iterable[_FilePart | _Stream], settings: MapSettings, number: int) -> Batches:
    """Yield the blocks of some sources, then a note of what was read."""
    arrow_schema = to_arrow(settings.schema)
    cutter = BlockCutter(
        settings.schema,
        arrow_schema,
        settings.buckets,
        memory_bytes=settings.memory_bytes,
        parts=settings.parts,
        number=number,
    )
    # Of two levels, the second one sends refusals on.
    out = BlockBatches(
        settings.places, refusals_to_all=not settings.is_outer, parts=settings.parts.count
    )
    taken = _MapTaskInput(settings, number)
    try:
        blocks = cutter.blocks(taken.rows(sources))
        slots, slot = settings.slots, number % settings.slots
        yield from out.with_blocks((bucket * slots + slot, block) for bucket, block in blocks)
    except InputRefused as refusal:
        yield from out.with_note(taken.note(refusal))
        return
    yield from out.with_note(taken.note())


class _MapTaskInput:
    """Checks and counts the rows of one task."""

    def __init__(self, settings: MapSettings, number: int) -> None:
        self._settings = settings
        self._number = number
        self._nulls: dict[str, int] = {}
        self._rows_read = 0
        self._rows_set_aside = 0
        self._files_aside: list[str] = []

    def rows(self, sources: Iterable[_FilePart | _Stream]) -> Iterator[pa.Table]:
        """Yield the rows that fit. All null keys are counted, for the report of the task."""
        for place, source in enumerate(sources):
            aside = self._file_aside(place)
            intake = ValidatedInput(
                source,
                self._settings.schema,
                to_arrow(self._settings.schema),
                ignore_extra_columns=self._settings.ignore_extra_columns,
                set_aside=aside,
            )
            try:
                yield from intake.batches()
            except NullKeys as refusal:
                for name, count in refusal.null_counts.items():
                    self._nulls[name] = self._nulls.get(name, 0) + count
            except BaseException:
                intake.abandon()
                raise
            intake.finish()
            self._rows_read += intake.rows_read
            self._rows_set_aside += intake.rows_set_aside
            if aside is not None and intake.rows_set_aside:
                self._files_aside.append(named_by_content(aside.path, self._number, place))

    def note(self, refusal: InputRefused | None = None) -> MapTaskReport:
        """Return the task's report for the driver."""
        return MapTaskReport(
            rows_read=self._rows_read,
            rows_set_aside=self._rows_set_aside,
            files_set_aside=tuple(self._files_aside),
            null_counts=tuple((name, count) for name, count in self._nulls.items() if count),
            refusal=refusal,
        )

    def _file_aside(self, place: int) -> SetAside | None:
        """A file of this attempt alone."""
        folder = self._settings.set_aside
        if folder is None:
            return None
        name = f"{self._number:05}-{place:03}-{self._settings.new_id()}.parquet"
        return SetAside(folder / name)


class _Stream:
    """Rows that Spark gives to a task, as a source for `ValidatedInput`."""

    def __init__(self, name: str, batches: Batches) -> None:
        self.name = name
        self.origin = name
        self.row_count: int | None = None
        self.schema: pa.Schema | None = None
        self.files: tuple[str, ...] = ()
        self._batches = batches

    def check(self, *, ignore_extra_columns: bool) -> None:
        """Do nothing: rows are checked while they are read."""

    def batches(
        self, columns: Sequence[str] | None = None, rows_per_file_max: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows."""
        yield from self._batches


class _FilePart(_Stream):
    """Row groups of one input file, as a source for `ValidatedInput`."""

    def __init__(self, part: FilePart, settings: MapSettings) -> None:
        names = to_arrow(settings.schema).names
        rows = read_row_groups(part.path, part.indexes, names, remote=settings.inputs)
        super().__init__(shown(part.path), rows)
        self.row_count = part.row_count
        self.files = (part.path,)


def checked_frame(
    rows: DataFrame, schema: Schema, *, ignore_extra_columns: bool, name: str
) -> DataFrame:
    """Return a DataFrame of the table's columns only, after a check that they fit.

    Raises:
        InputSchemaMismatch: columns are missing, too many, or of a type that does not fit.
    """
    arrow_schema = to_arrow(schema)
    check_columns(
        arrow_schema_of(rows.schema),
        arrow_schema,
        ignore_extra_columns=ignore_extra_columns,
        origin=name,
    )
    present = [field for field in arrow_schema.names if field in rows.columns]
    return rows.select([rows[f"`{field.replace('`', '``')}`"] for field in present])
