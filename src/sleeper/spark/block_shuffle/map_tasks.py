"""The first half of a bulk import: tasks that read rows, sort them and cut them into blocks."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
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
from sleeper.spark.block_shuffle.shuffle import Batches, BlockBatches, MapTaskReport, use_one_thread
from sleeper.spark.data_source.schema import arrow_schema_of
from sleeper.state.plans.bulk_imports import Buckets

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


_INPUT_BYTES = 256 << 20
_BATCH_ROWS_MIN = 8192  # Spark 4.0 gives tasks 64 rows at a time: see `shuffle`


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSettings:
    """How map tasks check rows and cut them into blocks.

    Attributes:
        schema: The table's.
        inputs: Opens input files that are given by URL.
        buckets: Where each row goes.
        places: What brings a block to each bucket's task; the notes' place last.
        memory_bytes: What sorting a piece may need.
        ignore_extra_columns: Leave out columns that the table does not have.
        new_id: Fresh random ids, different in every attempt of a task.
        set_aside: The folder where attempts write rows with a null key; None refuses such rows.
    """

    schema: Schema
    inputs: InputStore
    buckets: Buckets
    places: Sequence[int]
    memory_bytes: int
    new_id: NewId
    ignore_extra_columns: bool = False
    set_aside: Path | None = None


MapTask = Sequence[RowGroup]


def plan_map_tasks(groups: Iterable[RowGroup], size_bytes: int = _INPUT_BYTES) -> list[MapTask]:
    """Share row groups out to tasks of about so many bytes before compression."""
    tasks: list[list[RowGroup]] = []
    room = 0
    for group in groups:
        if not tasks or room < group.size_bytes:
            tasks.append([])
            room = size_bytes
        tasks[-1].append(group)
        room -= group.size_bytes
    return [*tasks]


def cut_files(tasks: Sequence[MapTask], settings: MapSettings) -> Callable[[Batches], Batches]:
    """Return a function for `mapInArrow` over a range of task numbers."""

    def run(numbers: Batches) -> Batches:
        use_one_thread()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                parts = groupby(tasks[number], key=lambda group: group.path)
                sources = (_FilePart(path, tuple(groups), settings) for path, groups in parts)
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
        settings.schema, arrow_schema, settings.buckets, memory_bytes=settings.memory_bytes
    )
    out = BlockBatches(settings.places)
    taken = _MapTaskInput(settings, number)
    try:
        yield from out.with_blocks(cutter.blocks(taken.rows(sources)))
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

    def __init__(self, path: str, groups: Sequence[RowGroup], settings: MapSettings) -> None:
        names = to_arrow(settings.schema).names
        indexes = [group.index for group in groups]
        super().__init__(shown(path), read_row_groups(path, indexes, names, remote=settings.inputs))
        self.row_count = sum(group.row_count for group in groups)
        self.files = (path,)


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
