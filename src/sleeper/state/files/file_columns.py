"""Converts references and unreferenced files to Arrow columns and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from sleeper.model.files import FileReference

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
        times_of(batch),
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


def times_of(batch: pa.RecordBatch) -> list[datetime]:
    """Return the column `updated` as times."""
    # Arrow's own conversion looks up the zone for every value, which is twenty times slower.
    since_epoch: list[int] = batch.column("updated").view(pa.int64()).to_pylist()
    return [EPOCH + microseconds * MICROSECOND for microseconds in since_epoch]


def timestamps(times: Iterable[datetime | None]) -> pa.Array:
    """Return times as an Arrow array; arithmetic on whole microseconds is exact."""
    since_epoch = [time and (time - EPOCH) // MICROSECOND for time in times]
    return pa.array(since_epoch, pa.int64()).cast(pa.timestamp("us", "UTC"))
