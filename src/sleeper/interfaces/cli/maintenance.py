"""`sleeper compact`, `split`, `merge`, `gc` and `sweep`: maintenance of one table."""

from __future__ import annotations

from collections.abc import Sequence

import click

from sleeper.interfaces.cli.options import on_table
from sleeper.interfaces.cli.present import (
    claim_line,
    claim_text,
    counted,
    print_grid,
    print_json,
    progress_of,
    say,
)
from sleeper.interfaces.cli.stderr import EXIT_REFUSED, warn
from sleeper.state.plans.claims import HeldClaim
from sleeper.state.plans.compactions import CompactionPlan
from sleeper.state.plans.splits_and_merges import SiblingLeaves
from sleeper.tables.claims import ReleaseResult
from sleeper.tables.compaction_method import CompactionSummary
from sleeper.tables.garbage import GcSummary
from sleeper.tables.orphans import SweepResult
from sleeper.tables.table import Table


@click.command()
@click.option(
    "--all-files", is_flag=True, help="Merge also the files that the strategy would leave."
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of jobs that run in parallel, each in its own process.",
)
@click.option("--explain", is_flag=True, help="Show what would be done, and why; do nothing.")
@click.option(
    "--release",
    "released_job",
    is_flag=False,
    flag_value="",
    metavar="[JOB]",
    help="Release the files that JOB, or every job, has claimed; do nothing else.",
)
@on_table
def compact(
    opened: Table,
    *,
    all_files: bool,
    workers: int,
    explain: bool,
    released_job: str | None,
    as_json: bool,
) -> None:
    """Merge files of TABLE, so that queries read fewer of them.

    A job that fails is reported; its files stay unchanged.

    Files are claimed for a few jobs at a time. Claims of a process that was killed
    end sleeper.table.compaction.job.lease.minutes after they were last renewed;
    --release ends them at once. The commit of a job that is
    still running is then refused.

    \b
    Examples:
        sleeper compact flights --workers 4
        sleeper compact flights --all-files --explain
        sleeper compact flights --release
    """
    if released_job is not None:
        _release_claims(opened.release_claims(released_job or None), as_json=as_json)
        return
    if explain:
        planned = opened.plan_compaction(all_files=all_files)
        _explain_compaction(planned, opened.claims(), as_json=as_json)
        return
    with progress_of(f"compacting {opened.name}", "jobs") as progress:
        run = opened.compact(all_files=all_files, workers=workers, progress=progress)
    if as_json:
        print_json(run)
    else:
        _say_compacted(opened.name, run)
    if run.failed:
        raise click.exceptions.Exit(EXIT_REFUSED)


def _release_claims(released: ReleaseResult, *, as_json: bool) -> None:
    if as_json:
        print_json(released)
        return
    for claim in released.claims:
        files = counted(len(claim.filenames), "file")
        say(f"released {files} of job {claim.job_id}: {claim_text(claim)}")
    if not released.claims:
        say("there were no claims to release")


def _explain_compaction(
    plan: CompactionPlan, claims: Sequence[HeldClaim], *, as_json: bool
) -> None:
    if as_json:
        print_json({"leaves": plan.leaves, "held_back": plan.held_back, "claims": claims})
        return
    rows = [
        [
            leaf.partition_id[:8],
            leaf.unclaimed,
            leaf.claimed,
            ", ".join(str(len(job.inputs)) for job in leaf.jobs) or "none",
            leaf.reason,
        ]
        for leaf in plan.leaves
    ]
    print_grid(["partition", "files", "on jobs", "jobs of files", "why"], rows)
    for claim in claims:
        say(claim_line(claim))


def _say_compacted(table: str, run: CompactionSummary) -> None:
    if run.pushed_down:
        say(f"moved {counted(run.pushed_down, 'reference')} down to leaf partitions")
    done = [job for job in run.jobs if job.failure is None]
    files = sum(len(job.job.inputs) for job in done)
    if not run.jobs and not run.pushed_down:
        say(
            f"no files of {table} are to be merged by its strategy: --explain shows why, "
            "--all-files merges all"
        )
        return
    say(
        f"compacted {table}: {counted(files, 'file')} became {len(done):,}, "
        f"transaction {run.transaction}"
    )
    for job in run.failed:
        warn(f"job {job.job.job_id} of leaf {job.job.partition_id[:8]} failed: {job.failure}")
    if run.stopped:
        warn("the other jobs were not run: they would fail for the same reason")


@click.command()
@click.option("--explain", is_flag=True, help="Show which leaves would be split; do nothing.")
@on_table
def split(opened: Table, *, explain: bool, as_json: bool) -> None:
    """Split large leaf partitions of TABLE.

    A leaf with at least sleeper.table.partition.splitting.threshold rows is split
    at the median of its keys. No file is moved.

    \b
    Example:
        sleeper split flights --explain
    """
    if explain:
        sizes = opened.leaf_sizes()
        if as_json:
            print_json(sizes)
            return
        print_grid(
            ["partition", "rows", "from", "will be split", "why not"],
            [
                [
                    size.partition.partition_id[:8],
                    f"{'~' if size.estimated else ''}{size.row_count:,}",
                    size.threshold,
                    size.will_be_split,
                    size.obstacle or "",
                ]
                for size in sizes
            ],
        )
        return
    results = opened.split_partitions()
    if as_json:
        print_json(results)
        return
    for result in results:
        name = result.partition_id[:8]
        if result.reason is None:
            lower, upper = (child[:8] for child in result.children)
            say(f"split {name} at {result.field} {result.point!r} into {lower} and {upper}")
        else:
            say(f"did not split {name}: {result.reason}")
    if not results:
        say(f"no leaf partition of {opened.name} is large enough to be split")


@click.command()
@click.option(
    "--below",
    "rows_below",
    type=click.IntRange(min=1),
    metavar="ROWS",
    help="Merge two leaves with fewer rows together.  [default: the table's property]",
)
@click.option("--explain", is_flag=True, help="Show which leaves would be merged; do nothing.")
@on_table
def merge(opened: Table, *, rows_below: int | None, explain: bool, as_json: bool) -> None:
    """Merge small leaf partitions of TABLE, in pairs.

    Two leaves of one parent are merged if they have fewer rows together than
    sleeper.table.partition.merging.threshold, or --below. No file is moved.

    \b
    Example:
        sleeper merge flights --below 1000000 --explain
    """
    if explain:
        _explain_merges(opened.small_siblings(rows_below=rows_below), as_json=as_json)
        return
    results = opened.merge_partitions(rows_below=rows_below)
    if as_json:
        print_json(results)
        return
    for result in results:
        lower, upper = (child[:8] for child in result.children)
        if result.reason is None:
            say(f"merged {lower} and {upper} into {result.partition_id[:8]}")
        else:
            say(f"did not merge {lower} and {upper}: {result.reason}")
    if not results:
        say(f"no leaf partitions of {opened.name} are small enough to be merged")


def _explain_merges(pairs: Sequence[SiblingLeaves], *, as_json: bool) -> None:
    if as_json:
        print_json(pairs)
        return
    rows = [
        [
            " and ".join(child[:8] for child in pair.parent.child_ids),
            pair.parent.partition_id[:8],
            f"{'~' if pair.estimated else ''}{pair.row_count:,}",
            pair.obstacle or "nothing",
        ]
        for pair in pairs
    ]
    print_grid(["leaves", "into", "rows", "in the way"], rows)


@click.command()
@click.option("--dry-run", is_flag=True, help="Show the files that would go; delete nothing.")
@click.option(
    "--force", is_flag=True, help="Delete without delay; use it only if nobody reads the table."
)
@on_table
def gc(opened: Table, *, dry_run: bool, force: bool, as_json: bool) -> None:
    """Delete files that TABLE no longer references.

    They are kept for sleeper.table.gc.delay.minutes, which must be longer than any
    query takes.

    \b
    Example:
        sleeper gc flights --dry-run
    """
    if dry_run:
        names = opened.garbage(force=force)
        if as_json:
            print_json(names)
            return
        for name in names:
            say(name)
        say(f"{counted(len(names), 'file')} of {opened.name} would be deleted")
        return
    with progress_of(f"collecting garbage of {opened.name}", "files") as progress:
        run = opened.collect_garbage(force=force, progress=lambda deleted: progress(deleted, None))
    if as_json:
        print_json(run)
    else:
        _say_collected(opened.name, run)
    if run.failures:
        raise click.exceptions.Exit(EXIT_REFUSED)


def _say_collected(table: str, run: GcSummary) -> None:
    say(f"deleted {counted(len(run.deleted), 'file')} of {table}, transaction {run.transaction}")
    for name, failure in run.failures.items():
        warn(f"{name} could not be deleted: {failure}")


@click.command()
@click.option("--dry-run", is_flag=True, help="Show the files that would go; delete nothing.")
@click.option("--force", is_flag=True, help="Files of any age; jobs under way are refused.")
@on_table
def sweep(opened: Table, *, dry_run: bool, force: bool, as_json: bool) -> None:
    """Delete files in the folder of TABLE that no commit names.

    They are files of killed jobs. Only files older than
    sleeper.table.gc.orphan.age.minutes are deleted, which must be longer than any
    ingest, import or compaction takes. Where the table's state is in S3StateStore,
    states that need not be kept are deleted too.

    \b
    Example:
        sleeper sweep flights --dry-run
    """
    swept = opened.orphans(force=force) if dry_run else opened.sweep_orphans(force=force)
    if as_json:
        print_json(swept)
    else:
        _say_swept(opened.name, swept)
    if swept.failures:
        raise click.exceptions.Exit(EXIT_REFUSED)


def _say_swept(table: str, swept: SweepResult) -> None:
    for orphan in swept.orphans if not swept.deleted else ():
        say(orphan.key)
    done = "deleted" if swept.deleted else "would delete"
    say(f"{done} {counted(swept.gone, 'file')} of {table} that no commit names")
    if swept.gone_states:
        say(f"{done} {counted(swept.gone_states, 'part')} of old states of {table}")
    for name, failure in swept.failures.items():
        warn(f"{name} could not be deleted: {failure}")
