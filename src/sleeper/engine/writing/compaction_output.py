"""Merges data files of one partition into one: the work of a compaction job.

All pages that are read are checked, then rows are merged, filtered, aggregated and written: inside
DataFusion where that gives exactly the same rows (`engine/native`), else batch by batch. Memory, in
addition to DataFusion's and pyarrow's: for each input a compressed row group and some batches of
8,192 rows; one row group that is being written; the output's Bloom filters and indexes. With files
of 2,000,000 rows and more, most memory is DataFusion's (docs/performance.md, "Compaction").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa

from sleeper.engine.native.merged_file import (
    MergedFile,
    group_rows,
    merges_natively,
    write_merged_file,
)
from sleeper.engine.processing.decimal_sums import Overflow
from sleeper.engine.processing.process import process
from sleeper.engine.read import FileSlice
from sleeper.engine.read_leaves import TableReader
from sleeper.engine.scan.page_checksums import VerifiedFile, verify_pages
from sleeper.engine.scan.row_groups import row_groups
from sleeper.engine.scan.verified_pages import verify_region
from sleeper.engine.writing.data_file import WriteSettings, write_data_file
from sleeper.errors import DataDamaged
from sleeper.model.files import FileReference
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.planning.claimed_jobs import ClaimedJob
from sleeper.ports.objects import Objects, Output
from sleeper.value_classes import dataclass

_CHUNK_ROWS = 32_768  # passed to the writer at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOutput:
    """The output of a compaction job, before its commit.

    Attributes:
        reference: The new file, with its exact number of rows; it may have none (rule CMP-14).
        rows_read: Rows of the inputs in the partition, before filters and aggregations.
        size_bytes: The new file's length.
    """

    reference: FileReference
    rows_read: int
    size_bytes: int


def compact_files(
    reading: TableReader,
    files: Objects,
    claimed: ClaimedJob,
    settings: WriteSettings,
    check: Callable[[], None] = lambda: None,
) -> CompactionOutput:
    """Write the rows of a job's inputs in its partition to one file, named by the job.

    The same arguments give a file with the same bytes. The file becomes
    visible when it is complete; on failure there is none.

    Args:
        reading: The table, with the processing to apply.
        files: The table's folder.
        claimed: The inputs, the rows to read of them, and the name of the output.
        settings: Settings of the data file.
        check: Called before each input file and many times a second while rows are merged; what
            it raises ends the job, and no file is left.

    Raises:
        DataDamaged: an input is missing or damaged; the message names it.
        StorageFailed: memory or disk is full, or the storage failed.

    Source: rule CMP-14.
    """
    job, whole_files = claimed.job, claimed.whole_files
    verified = _verified(reading, claimed, check)
    slices = [
        FileSlice(
            reading.files.url(name), () if name in whole_files else (claimed.partition.region,)
        )
        for name in job.inputs
    ]
    native = merges_natively(reading, slices, settings, claimed.claimed_ms)
    rows = group_rows(verified, settings) if native else None
    with files.open_output(job.output) as output:
        if rows is None:
            merged = _merged_by_batches(reading, slices, output, settings, claimed, check)
        else:
            merged = write_merged_file(
                reading,
                slices,
                output,
                settings,
                rows=rows,
                now_ms=claimed.claimed_ms,
                check=check,
            )
        if len(verified) == len(job.inputs):
            _check_all_read(job, sum(file.row_count for file in verified), merged.rows_read)
    written = merged.written
    reference = replace(
        written.reference(job.output, job.partition_id, reading.schema),
        sequence=claimed.sequence,
        schema_id=claimed.schema_id,
    )
    return CompactionOutput(
        reference=reference, rows_read=merged.rows_read, size_bytes=written.size_bytes
    )


def _merged_by_batches(
    reading: TableReader,
    slices: Sequence[FileSlice],
    output: Output,
    settings: WriteSettings,
    claimed: ClaimedJob,
    check: Callable[[], None],
) -> MergedFile:
    """Merge rows in DataFusion, process them here, and write them with pyarrow."""
    batches: Any = reading.scanner.merge(slices)
    with closing(batches):
        merged = _Counted(batches, check)
        processed = process(
            merged,
            reading.processing,
            reading.schema,
            now_ms=claimed.claimed_ms,
            # A user's function gets aggregated rows only.
            overflow=Overflow.LIMIT if reading.processing.function else Overflow.KEEP_APART,
        )
        chunks = row_groups(processed, _CHUNK_ROWS)
        written = write_data_file(output, chunks, reading.schema, reading.arrow_schema, settings)
    return MergedFile(written, merged.row_count)


def _verified(
    reading: TableReader, claimed: ClaimedJob, check: Callable[[], None]
) -> list[VerifiedFile]:
    """Verify the pages that are read; return the files that are read whole.

    Many leaves may share a file, so of a part only its own pages are read.
    """
    whole = []
    for name in claimed.job.inputs:
        check()
        if name in claimed.whole_files:
            whole.append(verify_pages(reading.lookup, name))
        else:
            verify_region(reading.lookup, name, claimed.partition.region, reading.arrow_schema)
    return whole


class _Counted:
    """Counts the rows of batches that pass, and calls `check` for each."""

    def __init__(self, batches: Iterator[pa.RecordBatch], check: Callable[[], None]) -> None:
        self._batches = batches
        self._check = check
        self.row_count = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self._check()
            self.row_count += batch.num_rows
            yield batch


def _check_all_read(job: CompactionJob, expected: int, found: int) -> None:
    if expected != found:
        raise DataDamaged(
            f"the inputs of compaction job {job.job_id!r} have {expected:,} rows by their footers, "
            f"but {found:,} were read: {', '.join(job.inputs)}. Nothing was written. Try again; if "
            "it fails again, restore the files from a copy."
        )
