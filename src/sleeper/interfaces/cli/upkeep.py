"""`sleeper compact`, `split` and `gc`: what keeps a table quick and small."""

from __future__ import annotations

from typing import Any

import click

from sleeper.instance import connect
from sleeper.interfaces.cli.main import EXIT_REFUSED
from sleeper.interfaces.cli.options import instance_option, json_option
from sleeper.interfaces.cli.present import counted, print_grid, print_json, progress_of, say
from sleeper.table.upkeep import CollectionRun, CompactionRun


@click.command()
@click.argument("table")
@click.option("--all-files", is_flag=True, help="Merge what the strategy would leave as well.")
@click.option("--explain", is_flag=True, help="Show what would be done, and why; do nothing.")
@instance_option
@json_option
def compact(table: str, *, all_files: bool, explain: bool, instance: str, as_json: bool) -> None:
    """Merge files of TABLE, so that queries have fewer of them to read.

    A job that fails is told, and its files stay as they were.

    \b
    Example:
        sleeper compact flights
        sleeper compact flights --all-files --explain
    """
    opened = connect(instance).table(table)
    if explain:
        _explain_compaction(opened.plan_compaction(all_files=all_files), as_json=as_json)
        return
    with progress_of(f"compacting {table}", "jobs") as progress:
        run = opened.compact(all_files=all_files, progress=progress)
    if as_json:
        print_json(run)
    else:
        _say_compacted(table, run)
    if run.failed:
        raise click.exceptions.Exit(EXIT_REFUSED)


def _explain_compaction(plan: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(plan)
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


def _say_compacted(table: str, run: CompactionRun) -> None:
    for job_id in run.released:
        say(f"job {job_id} did not end in time: its files were released")
    if run.pushed_down:
        say(f"moved {counted(run.pushed_down, 'reference')} down to leaf partitions")
    done = [job for job in run.jobs if job.failure is None]
    files = sum(len(job.job.inputs) for job in done)
    say(
        f"compacted {table}: {counted(files, 'file')} became {len(done):,}, "
        f"transaction {run.transaction}"
    )
    for job in run.failed:
        click.echo(f"job {job.job.job_id} failed: {job.failure}", err=True)


@click.command()
@click.argument("table")
@click.option("--explain", is_flag=True, help="Show which leaves would be split; do nothing.")
@instance_option
@json_option
def split(table: str, *, explain: bool, instance: str, as_json: bool) -> None:
    """Split leaf partitions of TABLE that have grown large.

    A leaf is split from sleeper.table.partition.splitting.threshold rows on, at
    the median of its keys. Its files stay where they are.

    \b
    Example:
        sleeper split flights --explain
    """
    opened = connect(instance).table(table)
    if explain:
        sizes = opened.leaf_sizes()
        if as_json:
            print_json(sizes)
            return
        print_grid(
            ["partition", "rows", "from", "will be split"],
            [
                [
                    size.partition.partition_id[:8],
                    f"{'~' if size.estimated else ''}{size.row_count:,}",
                    size.threshold,
                    size.too_large,
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
            say(f"left {name} as it is: {result.reason}")
    if not results:
        say(f"no leaf partition of {table} is large enough to be split")


@click.command()
@click.argument("table")
@click.option("--dry-run", is_flag=True, help="Show the files that would go; delete nothing.")
@instance_option
@json_option
def gc(table: str, *, dry_run: bool, instance: str, as_json: bool) -> None:
    """Delete files that nothing in TABLE references any longer.

    They wait for sleeper.table.gc.delay.minutes, which must be longer than any
    query takes.

    \b
    Example:
        sleeper gc flights --dry-run
    """
    opened = connect(instance).table(table)
    if dry_run:
        names = opened.garbage()
        if as_json:
            print_json(names)
            return
        for name in names:
            say(name)
        say(f"{counted(len(names), 'file')} of {table} would be deleted")
        return
    with progress_of(f"collecting garbage of {table}", "files") as progress:
        run = opened.collect_garbage(progress=lambda deleted: progress(deleted, None))
    if as_json:
        print_json(run)
    else:
        _say_collected(table, run)
    if run.failures:
        raise click.exceptions.Exit(EXIT_REFUSED)


def _say_collected(table: str, run: CollectionRun) -> None:
    say(f"deleted {counted(len(run.deleted), 'file')} of {table}, transaction {run.transaction}")
    for name, failure in run.failures.items():
        click.echo(f"{name} could not be deleted: {failure}", err=True)
