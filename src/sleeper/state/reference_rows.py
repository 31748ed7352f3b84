"""Rows of file references in Arrow columns: compact, ordered, immutable.

A row records that a partition references a file. If its partition is null, the file is tracked
without references. Rows are ordered by partition (null first), then by filename, so one
partition's rows are a slice and a row is found by bisection. A second order, by filename, is made
at its first use, so readers do not pay for it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.model.files import FileReference

# ---------------------------------------------------------------- file columns
#
# Converts references and unreferenced files to Arrow columns and back.

SCHEMA = pa.schema(
    [
        # 64-bit offsets: with 32 bits, names of 100 bytes would be limited to 21 million files.
        ("filename", pa.large_string()),
        ("partition_id", pa.dictionary(pa.int32(), pa.string())),
        ("row_count", pa.int64()),
        ("row_count_estimated", pa.bool_()),
        ("whole_file", pa.bool_()),
        ("job_id", pa.string()),
        ("updated", pa.timestamp("us", "UTC")),
        # Columns of the file itself; older versions do not have them.
        ("size_bytes", pa.int64()),
        ("schema_id", pa.int32()),
        ("sequence", pa.int64()),
        # First and last row key as one text, two lines. Two columns would need more memory.
        ("keys", pa.large_string()),
    ]
)
MAY_BE_NULL = ("partition_id", "job_id", "size_bytes", "schema_id", "sequence", "keys")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def no_file_rows() -> pa.RecordBatch:
    """Return a batch of `SCHEMA` without rows. Made of null arrays: lists would import pandas."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in SCHEMA], schema=SCHEMA)


def file_rows_batch(
    references: Iterable[FileReference], unreferenced: Mapping[str, datetime]
) -> pa.RecordBatch:
    """Make a batch of `SCHEMA`, in order. Every reference has its `updated` time."""
    files = sorted(unreferenced.items())
    held = sorted(references, key=lambda each: (each.partition_id, each.filename))
    none = len(files)
    columns = [
        pa.array([name for name, _ in files] + [each.filename for each in held], pa.large_string()),
        pa.array([None] * none + [each.partition_id for each in held]).cast(pa.string()),
        pa.array([0] * none + [each.row_count for each in held], pa.int64()),
        pa.array([False] * none + [each.row_count_estimated for each in held], pa.bool_()),
        pa.array([False] * none + [each.whole_file for each in held], pa.bool_()),
        pa.array([None] * none + [each.job_id for each in held], pa.string()),
        timestamps([since for _, since in files] + [each.updated for each in held]),
        pa.array([None] * none + [each.size_bytes for each in held], pa.int64()),
        pa.array([None] * none + [each.schema_id for each in held], pa.int32()),
        pa.array([None] * none + [each.sequence for each in held], pa.int64()),
        pa.array([None] * none + [_keys_to_text(each) for each in held], pa.large_string()),
    ]
    columns[1] = columns[1].dictionary_encode()
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def references_of(batch: pa.RecordBatch, partition_ids: Iterable[str]) -> list[FileReference]:
    """Make references from rows; their partitions are given by `partition_ids`."""
    columns = zip(
        batch.column("filename").to_pylist(),
        partition_ids,
        batch.column("row_count").to_pylist(),
        batch.column("row_count_estimated").to_pylist(),
        batch.column("whole_file").to_pylist(),
        batch.column("job_id").to_pylist(),
        times_of(batch.column("updated")),
        batch.column("size_bytes").to_pylist(),
        batch.column("schema_id").to_pylist(),
        batch.column("sequence").to_pylist(),
        batch.column("keys").to_pylist(),
        strict=True,
    )
    return [
        FileReference(
            filename=filename,
            partition_id=partition_id,
            row_count=row_count,
            row_count_estimated=estimated,
            whole_file=whole,
            job_id=job_id,
            updated=updated,
            size_bytes=size_bytes,
            schema_id=schema_id,
            first_key=keys and (keys.partition("\n")[0] or None),
            last_key=keys and (keys.partition("\n")[2] or None),
            sequence=sequence,
        )
        for (
            filename,
            partition_id,
            row_count,
            estimated,
            whole,
            job_id,
            updated,
            size_bytes,
            schema_id,
            sequence,
            keys,
        ) in columns
    ]


def _keys_to_text(reference: FileReference) -> str | None:
    """Join first and last key by a line break, which their JSON does not contain."""
    if reference.first_key is None and reference.last_key is None:
        return None
    return f"{reference.first_key or ''}\n{reference.last_key or ''}"


def times_of(column: pa.Array) -> list[datetime]:
    """Return times in microseconds, of which none is null.

    Arrow's own conversion looks up the zone for every value, which is twenty times slower, and
    imports pandas. A cast takes as long as all else that is made of a row.
    """
    since_epoch: list[int] = column.view(pa.int64()).to_pylist()
    return [EPOCH + microseconds * MICROSECOND for microseconds in since_epoch]


def timestamps(times: Iterable[datetime | None]) -> pa.Array:
    """Return times as an Arrow array; arithmetic on whole microseconds is exact."""
    since_epoch = [time and (time - EPOCH) // MICROSECOND for time in times]
    return pa.array(since_epoch, pa.int64()).cast(pa.timestamp("us", "UTC"))


SUMS = ("references", "rows", "rows_exact_whole", "references_on_jobs", "references_estimated")

# Taken from an array, because Arrow imports pandas (if installed) to convert a plain Python
# number, which takes a quarter of a second.
_MINUS_ONE, _ZERO = pa.arange(-1, 1).cast(pa.int32())
_ROWS_AT_ONCE = 65_536
# Above this share of new rows, sorting all names again costs less than placing each new one.
_CARRIED_SHARE = 8


class ReferenceRows:
    """Ordered rows, found by partition or by filename. Immutable, except for its caches.

    Attributes:
        batch: The columns of `SCHEMA`, in order.
        slices: The range of each partition's rows, ascending by partition id.
        unreferenced: The range of rows without a partition, which come first.
    """

    def __init__(self, batch: pa.RecordBatch, file_order: pa.Array | None = None) -> None:
        partitions = batch.column("partition_id")
        # Values under nulls are arbitrary, and where they change Arrow would end a run.
        codes = partitions.indices.fill_null(_MINUS_ONE)
        runs = pc.run_end_encode(codes, run_end_type=pa.int64())
        ids = partitions.dictionary.take(_null_below_zero(runs.values))
        self._ends: list[int] = runs.run_ends.to_pylist()
        places = zip(ids.to_pylist(), [0, *self._ends], self._ends, strict=False)
        slices = {partition_id: range(start, end) for partition_id, start, end in places}
        self._ids: list[str | None] = list(slices)
        self.unreferenced: range = slices.pop(None, range(0))
        self.slices: dict[str, range] = slices
        self.batch = _with_partitions(batch, runs.run_ends, ids)
        self._given_file_order = file_order
        self._names, self._name_ends = _text_of(batch.column("filename"))
        self._updated = _view(batch.column("updated"), "q", size_bytes=8)

    @classmethod
    def from_table(cls, table: pa.Table) -> ReferenceRows:
        """Convert the table that `to_table` returned, in any chunks.

        Raises:
            ValueError: the rows are not in order, a row occurs twice, or a value is missing.
        """
        columns = [_column_of(table, field) for field in SCHEMA]
        rows = cls(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
        rows._check()
        return rows

    def to_table(self) -> pa.Table:
        """Return the rows as an Arrow table that shares their memory."""
        return pa.Table.from_batches([self.batch])

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def slice_of(self, partition_id: str | None) -> range:
        """Return the range of a partition's rows; an empty range at its place if it has none."""
        if partition_id is None:
            return self.unreferenced
        found = self.slices.get(partition_id)
        if found is not None:
            return found
        start = bisect_left(self._ids, partition_id, lo=bool(self.unreferenced), key=str)
        place = self._ends[start - 1] if start else 0
        return range(place, place)

    def place_of(self, filename: str, partition_id: str | None) -> int:
        """Return the index of this pair, or the index at which it would be inserted."""
        rows = self.slice_of(partition_id)
        return rows.start + bisect_left(rows, filename.encode(), key=self._name_at)

    def row_of(self, filename: str, partition_id: str | None) -> int | None:
        """Return the index of this pair, or None if there is none."""
        rows = self.slice_of(partition_id)
        name = filename.encode()
        row = rows.start + bisect_left(rows, name, key=self._name_at)
        return row if row < rows.stop and self._name_at(row) == name else None

    def rows_of_file(self, filename: str) -> Iterator[int]:
        """Yield the index of every row of a file, by partition, null first."""
        name, order = filename.encode(), self._file_order_view
        place = bisect_left(order, name, key=self._name_at)
        while place < len(order) and self._name_at(order[place]) == name:
            yield order[place]
            place += 1

    def partition_of(self, row: int) -> str | None:
        """Return the partition of one row; None if the file is unreferenced."""
        return self._ids[bisect_right(self._ends, row)]

    def references_on(self, partition_id: str) -> list[FileReference]:
        """Return a partition's rows as references, by filename."""
        rows = self.slices.get(partition_id)
        if rows is None:
            return []
        return references_of(self.batch.slice(rows.start, len(rows)), [partition_id] * len(rows))

    def filenames_on(self, partition_id: str) -> list[str]:
        """Return the filenames of a partition's rows, ordered."""
        rows = self.slices.get(partition_id)
        if rows is None:
            return []
        names: list[str] = self.batch.column("filename").slice(rows.start, len(rows)).to_pylist()
        return names

    def reference(self, row: int) -> FileReference:
        """Return one row as a reference. Its partition is not null."""
        partition_id = self.partition_of(row)
        assert partition_id is not None
        return references_of(self.batch.slice(row, 1), [partition_id])[0]

    def size_bytes(self, row: int) -> int | None:
        """Return the size of one row's file, in bytes, where it is known."""
        found: int | None = self.batch.column("size_bytes")[row].as_py()
        return found

    def references_named(
        self, filenames: Iterable[str], partition_id: str
    ) -> dict[str, FileReference]:
        """Return a partition's references to some files, by filename; those that there are."""
        rows = (self.row_of(name, partition_id) for name in filenames)
        places = pa.array([row for row in rows if row is not None], pa.int64())
        held = references_of(self.batch.take(places), [partition_id] * len(places))
        return {each.filename: each for each in held}

    def updated(self, row: int) -> datetime:
        """Return when the state last changed one row."""
        return EPOCH + self._updated[row] * MICROSECOND

    def unreferenced_files(self, before: datetime | None) -> Iterator[tuple[str, datetime]]:
        """Yield (filename, since) of unreferenced files, by filename, in bounded memory."""
        for start in range(0, self.unreferenced.stop, _ROWS_AT_ONCE):
            length = min(_ROWS_AT_ONCE, self.unreferenced.stop - start)
            batch = self.batch.slice(start, length)
            if before is not None:
                batch = batch.filter(pc.less(batch.column("updated"), timestamps([before])[0]))
            yield from zip(
                batch.column("filename").to_pylist(), times_of(batch.column("updated")), strict=True
            )

    @cached_property
    def file_count(self) -> int:
        """The number of files, referenced or not."""
        names, repeated = self.batch.column("filename"), 0
        for start in range(0, len(self), _ROWS_AT_ONCE):
            near = names.take(self._file_order.slice(start, _ROWS_AT_ONCE + 1))
            repeats = pc.equal(near.slice(1), near.slice(0, max(len(near) - 1, 0)))
            repeated += pc.sum(repeats).as_py() or 0
        return len(self) - repeated

    @cached_property
    def sums(self) -> pa.Table:
        """The columns `SUMS` for each partition, unordered."""
        return summed([self.measures(self.batch.slice(self.unreferenced.stop))])

    def measures_of(self, rows: Sequence[int]) -> pa.Table:
        """Return the columns `SUMS` for each of some rows."""
        return self.measures(self.batch.take(pa.array(rows, pa.int64())))

    @staticmethod
    def measures(batch: pa.RecordBatch) -> pa.Table:
        """Return the columns `SUMS` for each row of `batch`."""
        rows, estimated = batch.column("row_count"), batch.column("row_count_estimated")
        exact_whole = pc.and_not(batch.column("whole_file"), estimated)
        sums = [
            pa.repeat(1, len(rows)),
            rows,
            pc.if_else(exact_whole, rows, 0),
            batch.column("job_id").is_valid().cast(pa.int64()),
            estimated.cast(pa.int64()),
        ]
        return pa.table([batch.column("partition_id"), *sums], names=["partition_id", *SUMS])

    def replaced(self, dropped: Sequence[int], added: pa.RecordBatch) -> ReferenceRows:
        """Return rows without `dropped` and with `added`, which `file_rows_batch` has ordered.

        Copies every column, one at a time. An existing order by filename is updated, which is
        several times cheaper than sorting again.
        """
        pairs = zip(
            added.column("filename").to_pylist(),
            added.column("partition_id").to_pylist(),
            strict=True,
        )
        places = [self.place_of(filename, partition_id) for filename, partition_id in pairs]
        everyone = pa.arange(0, len(self) + len(added))
        source = _inserted(everyone.slice(0, len(self)), places, everyone.slice(len(self)))
        gone = pa.array(dropped, pa.int64())
        source = source.filter(pc.invert(pc.is_in(source, value_set=gone)))
        columns = [
            pa.concat_arrays([ours, theirs]).take(source)
            for ours, theirs in zip(self.batch.columns, added.columns, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        return ReferenceRows(batch, self._carried_file_order(source, added))

    def _carried_file_order(self, source: pa.Array, added: pa.RecordBatch) -> pa.Array | None:
        """Return the new order by filename, where new row n was row `source[n]` of old + added."""
        if self._given_file_order is None or len(added) > len(self) // _CARRIED_SHARE:
            return None
        names = added.column("filename")
        by_name = pc.array_sort_indices(names)
        places = [
            bisect_left(self._file_order_view, name.encode(), key=self._name_at)
            for name in names.take(by_name).to_pylist()
        ]
        old_order = _inserted(
            self._given_file_order.cast(pa.int64()),
            places,
            pc.add(by_name.cast(pa.int64()), len(self)),
        )
        last = len(self) + len(added) - 1
        new_row = pc.inverse_permutation(source, max_index=last, output_type=pa.int64())
        return new_row.take(old_order).drop_null().cast(pa.uint32())

    @property
    def _file_order(self) -> pa.Array:
        if self._given_file_order is None:
            order = pc.array_sort_indices(self.batch.column("filename"))
            self._given_file_order = order.cast(pa.uint32())
        return self._given_file_order

    @cached_property
    def _file_order_view(self) -> memoryview:
        return _view(self._file_order, "I", size_bytes=4)

    def _name_at(self, row: int) -> bytes:
        return self._names[self._name_ends[row] : self._name_ends[row + 1]].tobytes()

    def _check(self) -> None:
        for column in SCHEMA:
            if column.name not in MAY_BE_NULL and self.batch.column(column.name).null_count:
                raise ValueError(f"file rows lack a value in column {column.name!r}")
        ids = list(self.slices)
        once = len(self._ends) == len(ids) + bool(self.unreferenced)
        if not once or self.unreferenced.start or ids != sorted(ids):
            raise ValueError("file rows are not in order: a partition comes twice or too late")
        names = self.batch.column("filename")
        ascending = pc.less(names.slice(0, max(len(self) - 1, 0)), names.slice(1))
        turns = pc.indices_nonzero(pc.invert(ascending)).to_pylist()
        if not {turn + 1 for turn in turns}.issubset(self._ends):
            raise ValueError("file rows are not in order: a filename comes twice or too late")


def summed(measures: Sequence[pa.Table]) -> pa.Table:
    """Add the columns `SUMS` of many tables by partition."""
    whole = pa.concat_tables(measures).unify_dictionaries()
    # One thread: a pool's takes longer to start than to add the rows of many partitions.
    totals = whole.group_by("partition_id", use_threads=False).aggregate(
        [(name, "sum") for name in SUMS]
    )
    return totals.rename_columns(["partition_id", *SUMS])


def negated(measures: pa.Table) -> pa.Table:
    """Return the columns `SUMS` with negated numbers."""
    columns = [pc.negate(measures.column(name)) for name in SUMS]
    return pa.table([measures.column("partition_id"), *columns], names=["partition_id", *SUMS])


def _inserted(order: pa.Array, places: Sequence[int], items: pa.Array) -> pa.Array:
    """Insert `items` into `order`, item n before position `places[n]`. Positions ascend."""
    before = pc.multiply(pa.array(places, pa.int64()), 2)
    after = pc.add(pc.multiply(pa.arange(0, len(order)), 2), 1)
    # The sort is stable, so items for the same position keep their order.
    return pa.concat_arrays([order, items]).take(
        pc.array_sort_indices(pa.concat_arrays([after, before]))
    )


def _with_partitions(batch: pa.RecordBatch, ends: pa.Array, ids: pa.Array) -> pa.RecordBatch:
    """Return the batch with a partition dictionary of exactly the used ids, in order."""
    known = ids.drop_null()
    if batch.column("partition_id").dictionary.equals(known):
        return batch
    codes = _null_below_zero(pa.arange(-ids.null_count, len(known)).cast(pa.int32()))
    codes = pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, codes))
    column = pa.DictionaryArray.from_arrays(codes, known)
    return batch.set_column(1, SCHEMA.field(1), column)


def _null_below_zero(codes: pa.Array) -> pa.Array:
    return pc.if_else(pc.less(codes, _ZERO), pa.nulls(1, codes.type)[0], codes)


def _column_of(table: pa.Table, field: pa.Field) -> pa.Array:
    """Return a column of the table; nulls if an older version did not have it."""
    # Decoding a snapshot leaves as much free memory in the pool as it fills. Without this, the
    # peak would include that and the copies made here.
    pa.default_memory_pool().release_unused()
    if field.name not in table.column_names and field.name in MAY_BE_NULL:
        return pa.nulls(table.num_rows, field.type)
    return _column(table.column(field.name), field.type)


def _column(chunks: pa.ChunkedArray, wanted: pa.DataType) -> pa.Array:
    """Return one array of type `wanted`; copies only if there are several chunks."""
    if pa.types.is_dictionary(wanted):
        encoded = pa.types.is_dictionary(chunks.type)
        chunks = chunks.unify_dictionaries() if encoded else chunks.dictionary_encode()
    chunks = chunks.cast(wanted)
    return chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()


def _text_of(column: pa.Array) -> tuple[memoryview, memoryview]:
    """Return the bytes and the offsets of a large_string column."""
    _, ends, text = column.buffers()
    last = column.offset + len(column) + 1 if len(column) else 0
    within = memoryview(ends or b"")[column.offset * 8 : last * 8]
    return memoryview(text or b""), within.cast("q")


def _view(column: pa.Array, form: Literal["q", "I"], *, size_bytes: int) -> memoryview:
    """Return the values of a fixed-width column without nulls, without a copy."""
    values = memoryview(column.buffers()[1] or b"")
    first, last = column.offset, column.offset + len(column)
    return values[first * size_bytes : last * size_bytes].cast(form)
