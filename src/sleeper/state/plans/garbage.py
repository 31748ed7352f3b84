"""Plans which stored files may be deleted: garbage, and orphans.

Garbage is a data file that the newest state of a table no longer references, and no retained
version needs. Orphans are files of killed or refused jobs: no transaction names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from heapq import merge
from itertools import groupby

from sleeper.model import paths
from sleeper.model.formats.compaction_job import CompactionJob, job_output
from sleeper.state.table_state import TableState


def collectable(heads: Sequence[TableState], kept_since: datetime) -> Iterator[str]:
    """Yield the files that may be deleted, by name.

    A file is needed as long as a head references it, or has referenced it at `kept_since` or later:
    versions from that time on are retained. One with the keys of an upsert is needed until no file
    has old rows of them. A head does not need a file that it does not track.

    Args:
        heads: The newest state of each branch of versions. A table has one branch today.
        kept_since: Older versions are not retained, and their readers are not protected.
    """
    waiting = merge(*([name for name, _ in head.files.unreferenced(kept_since)] for head in heads))
    key_files = {name for head in heads for name in head.key_files()}
    for name, _ in groupby(waiting):
        if name not in key_files and not any(_is_needed(name, head, kept_since) for head in heads):
            yield name


def _is_needed(filename: str, head: TableState, kept_since: datetime) -> bool:
    since = head.files.unreferenced_since(filename)
    if since is not None:
        return since >= kept_since
    return head.files.is_tracked(filename)


def orphans_of(
    state: TableState, stored: Iterable[tuple[str, datetime]], before: datetime
) -> Iterator[str]:
    """Yield the data files and sketches that no version of a table will ever need.

    A file is kept in three cases. The state tracks it, as referenced or as garbage; then the
    garbage collector deletes it when it may. It is younger than `before`, so a running job may
    still commit it. It is the output of a compaction job that has claimed files, which may run
    again. Objects whose names are not those of data files or sketches are ignored.

    Args:
        state: The table, read after `stored` was listed, so that it includes files committed since.
        stored: Names of objects in the table's folder, and when they were last written.
        before: Only files written before this time count, by the clock of the storage.
    """
    unknown = [
        (name, filename)
        for name, modified in stored
        if modified < before
        and (filename := _data_file_of(name)) is not None
        and not state.files.is_tracked(filename)
    ]
    outputs = _claimed_outputs(state) if unknown else set()  # it reads every partition
    yield from (
        name
        for name, filename in unknown
        if filename not in outputs and job_output(filename) not in outputs
    )


def _data_file_of(name: str) -> str | None:
    """Return the data file that an object is, or is the sketch of; None for other objects."""
    if not name.startswith("data/partition_"):
        return None
    if name.endswith(".parquet"):
        return name
    filename = name.removesuffix(".sketches") + ".parquet"
    return filename if paths.sketch_file(filename) == name else None


def _claimed_outputs(state: TableState) -> set[str]:
    """Return the output files of the compaction jobs that have claimed files."""
    return {
        CompactionJob(
            job_id=reference.job_id, partition_id=partition_id, inputs=(reference.filename,)
        ).output
        for partition_id, totals in state.files.totals().items()
        if totals.references_on_jobs
        for reference in state.files.references_on(partition_id)
        if reference.job_id is not None
    }
