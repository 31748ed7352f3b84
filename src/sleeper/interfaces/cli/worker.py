"""`sleeper worker`: one process that runs jobs of one kind."""

from __future__ import annotations

import click

from sleeper.instance.instance import connect
from sleeper.interfaces.cli.options import instance_option
from sleeper.interfaces.cli.signals import stop_on_signals, stop_with_parent
from sleeper.interfaces.cli.stderr import LogOutput
from sleeper.model.jobs.kinds import KIND_NAMES
from sleeper.workers.instance_changes import PropertiesLook
from sleeper.workers.open_worker import open_worker
from sleeper.workers.stop_signal import StopSignal
from sleeper.workers.worker import WorkerSettings


@click.command()
@click.argument("kind", type=click.Choice(KIND_NAMES))
@click.option("--jobs", "jobs_max", type=click.IntRange(min=1), help="End after so many jobs.")
@click.option("--until-empty", is_flag=True, help="End when there is no job.")
@click.option(
    "--idle",
    "idle_max_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="End when there was no job for so long.",
)
@click.option("--parent", type=int, hidden=True, help="End with this process, the parent.")
@instance_option
@click.pass_obj
def worker(
    log_output: LogOutput,
    kind: str,
    *,
    jobs_max: int | None,
    until_empty: bool,
    idle_max_s: float | None,
    parent: int | None,
    instance: str,
) -> None:
    """Run jobs of one KIND, one at a time, until it is stopped.

    Any number of workers may run, on any machines that reach the instance and its
    queues. Ctrl-C or SIGTERM stops a worker: a job that it has not finished goes
    back to its queue. A worker that is killed loses nothing: its message is
    delivered again when its visibility ends.

    Compactions have no queue. A worker of compaction plans the jobs of each online
    table in turn, claims files for a few, and commits each. When it is stopped it
    gives back what it has claimed; when it is killed, others take the files once
    sleeper.table.compaction.job.lease.minutes have passed. While there is nothing to
    compact it looks more and more rarely: after 1 minute, up to 15.

    \b
    Examples:
        sleeper worker ingest
        sleeper worker ingest --until-empty
        sleeper worker compaction
    """
    log_output.serve()
    stop = StopSignal()
    stop_on_signals(stop)
    if parent is not None:
        stop_with_parent(stop, parent)
    settings = WorkerSettings(jobs_max=jobs_max, until_empty=until_empty, idle_max_s=idle_max_s)
    with connect(instance) as opened:
        is_changed = PropertiesLook(opened)
        open_worker(
            opened,
            kind,
            settings,
            stop,
            is_outdated=lambda: is_changed() and parent is not None,
        ).run()
