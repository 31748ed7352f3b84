"""Plans which stored files may be deleted: garbage, and orphans that no table ever had.

Garbage is what no head of a table and no version that is kept reaches. Orphans were left behind by
jobs that died or were refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from heapq import merge
from itertools import groupby

from sleeper.model import paths
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.state.table_state import TableState


def collectable(heads: Sequence[TableState], kept_since: datetime) -> Iterator[str]:
    """Yield the files that may be deleted, by name.

    A version is a state that a head had at some time, and it is kept while that time is not
    before `kept_since`. So a file is needed while a head references it, and while a head has
    referenced it at `kept_since` or later. A file that a head does not track, it does not need.

    Args:
        heads: The newest state of each line of versions. A table has one line today.
        kept_since: Versions from before this time are kept no longer; nor are readers of them.
    """
    waiting = merge(*([name for name, _ in head.files.unreferenced(kept_since)] for head in heads))
    for name, _ in groupby(waiting):
        if not any(_is_needed(name, head, kept_since) for head in heads):
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

    A file is spared while the state knows it, referenced or waiting for the garbage collector,
    which waits until no version that is kept needs it; while it is younger than `before`, as a
    job may still be about to commit it; and while it is the output of a compaction job that has
    claimed files, as that job may be run again. What has no name of ours is left alone.

    Args:
        state: The table, read after `stored` was listed: what was committed meanwhile is known.
        stored: Names of objects in the table's folder, and when they were last written.
        before: How old an orphan must be, by the clock of the storage.
    """
    unknown = [
        (name, filename)
        for name, modified in stored
        if modified < before
        and (filename := _data_file_of(name)) is not None
        and not state.files.is_tracked(filename)
    ]
    outputs = _claimed_outputs(state) if unknown else set()  # it takes a look at every partition
    yield from (name for name, filename in unknown if filename not in outputs)


def _data_file_of(name: str) -> str | None:
    """The data file that an object is, or whose sketch it is; None for what is not ours."""
    if not name.startswith("data/partition_"):
        return None
    if name.endswith(".parquet"):
        return name
    filename = name.removesuffix(".sketches") + ".parquet"
    return filename if paths.sketch_file(filename) == name else None


def _claimed_outputs(state: TableState) -> set[str]:
    """What the compaction jobs that have claimed files will write."""
    return {
        CompactionJob(
            job_id=reference.job_id, partition_id=partition_id, inputs=(reference.filename,)
        ).output
        for partition_id, totals in state.files.totals().items()
        if totals.references_on_jobs
        for reference in state.files.references_on(partition_id)
        if reference.job_id is not None
    }
