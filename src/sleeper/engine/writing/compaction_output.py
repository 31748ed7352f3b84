"""Several data files of one partition become one: what a compaction job does to rows.

All inputs are looked at page by page, then merged, filtered, aggregated and written, batch by
batch. Memory, beside DataFusion's and pyarrow's own: for each input a compressed row group and
some batches of 8,192 rows; one row group that is being written; the output's Bloom filters. Files
of 2,000,000 rows and more make DataFusion's the most of it (docs/performance.md, "Compaction").
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from sleeper.engine.processing.decimal_sums import Overflow
from sleeper.engine.processing.process import process
from sleeper.engine.read import FileSlice
from sleeper.engine.read_leaves import TableReader
from sleeper.engine.scan.page_checksums import verify_pages
from sleeper.engine.scan.row_groups import row_groups
from sleeper.engine.writing.data_file import WriteSettings, write_data_file
from sleeper.errors import DataDamaged
from sleeper.model import paths
from sleeper.model.files import FileReference
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.planning.claimed_jobs import ClaimedJob
from sleeper.ports.objects import Objects

_CHUNK_ROWS = 32_768  # handed to the writer at once


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOutput:
    """What a compaction wrote, to be committed.

    Attributes:
        reference: The new file, with its exact number of rows; it may have none (rule CMP-14).
        rows_read: Rows of the inputs that lie in the partition, before filters and aggregations.
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
) -> CompactionOutput:
    """Write the rows that a job's inputs have in its partition as one file, named by the job.

    The same arguments give the same file, byte for byte but for its sketch. The file appears when
    it is complete; where anything fails, there is none.

    Args:
        reading: The table, with the processing to apply.
        files: The table's folder.
        claimed: What to read, which rows of it, and what to call the output.
        settings: How the file is laid out.

    Raises:
        DataDamaged: an input is missing or damaged; the message names it.
        StorageFailed: memory, disk or the storage gave out.

    Source: rule CMP-14.
    """
    job, whole_files = claimed.job, claimed.whole_files
    verified = {name: verify_pages(reading.lookup, name) for name in job.inputs}
    slices = [
        FileSlice(
            reading.files.url(name), () if name in whole_files else (claimed.partition.region,)
        )
        for name in job.inputs
    ]
    batches: Any = reading.scanner.merge(slices)
    merged = _Counted(batches)
    processed = process(
        merged,
        reading.processing,
        reading.schema,
        now_ms=claimed.claimed_ms,
        # A function of the user's own gets united rows alone.
        overflow=Overflow.LIMIT if reading.processing.function else Overflow.KEEP_APART,
    )
    with closing(batches), files.open_output(job.output) as output:
        chunks = row_groups(processed, _CHUNK_ROWS)
        written = write_data_file(output, chunks, reading.schema, reading.arrow_schema, settings)
        if whole_files >= verified.keys():
            _check_all_read(
                job, sum(file.row_count for file in verified.values()), merged.row_count
            )
        files.put(paths.sketch_file(job.output), written.sketch)
    reference = replace(
        written.reference(job.output, job.partition_id, reading.schema),
        sequence=claimed.sequence,
        schema_id=claimed.schema_id,
    )
    return CompactionOutput(
        reference=reference, rows_read=merged.row_count, size_bytes=written.size_bytes
    )


class _Counted:
    """Batches on their way, counted."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.row_count = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.row_count += batch.num_rows
            yield batch


def _check_all_read(job: CompactionJob, expected: int, found: int) -> None:
    if expected != found:
        raise DataDamaged(
            f"the inputs of compaction job {job.job_id!r} have {expected:,} rows by their footers, "
            f"but {found:,} were read: {', '.join(job.inputs)}. Nothing was written. Try again; if "
            "it fails again, restore the files from a copy."
        )
