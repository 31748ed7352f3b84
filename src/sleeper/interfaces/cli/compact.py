"""`sleeper compact`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from sleeper.interfaces.cli.options import on_table_with_spark
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
from sleeper.tables.claims import ReleaseResult
from sleeper.tables.compact import CompactionSummary
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
@on_table_with_spark
def compact(
    opened: Table,
    *,
    all_files: bool,
    workers: int,
    explain: bool,
    released_job: str | None,
    spark: Any,
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
        sleeper compact flights --spark --master spark://host:7077
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
        run = opened.compact(all_files=all_files, workers=workers, spark=spark, progress=progress)
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
