"""What a compaction of many leaves costs on Spark, beside the same by this machine's processes.

Each run is a fresh process; on Spark it has a session of its own (`local[2]`, our settings) whose
Python workers have been started. CPU and memory are those of the whole process tree, as in
`bench.spark_import`. `jobs` is how many Spark jobs there were, `commits` the entries of the log
that replaced files.

    PYTHONPATH=src python -m bench.spark_compaction --leaves 200 --files 4 --rows 400000
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import pyarrow as pa

import sleeper
from bench.instance_copy import copy_instance
from bench.random_rows import SCHEMA, rows, split_points
from bench.spark_import import Watch, warmed
from sleeper.spark.session import local_session

VARIANTS = ("processes", "spark", "spark-large-jobs")
ABOUT = {
    "processes": "table.compact(workers=2)",
    "spark": "table.compact(spark=...), jobs as for two cores",
    "spark-large-jobs": "the same, jobs as for 200 cores",
}


def main() -> None:
    arguments = parsed()
    if arguments.run:
        run(arguments)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="bench-compaction-") as folder:
        inputs, copy = Path(folder) / "inputs", Path(folder) / "copy"
        make_table(inputs, arguments)
        print(f"{arguments.leaves} leaves, {arguments.files} files of {arguments.rows:,} rows")
        heads = ("CPU s", "JVM s", "wall s", "peak MB", "of JVM", "load", "jobs", "commits")
        print(f"{'variant':18}" + "".join(map("{:>9}".format, heads)))
        cpu: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
        for _ in range(arguments.runs):
            for variant in VARIANTS:
                copy_instance(inputs, copy)
                cpu[variant].append(measured(variant, copy))
        floor = median(cpu["processes"])
        for variant, values in cpu.items():
            ratio = f"{median(values) / floor:.2f} of {VARIANTS[0]}"
            print(f"median CPU s: {variant} {median(values):.1f}, {ratio} ({ABOUT[variant]})")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--leaves", type=int, default=200)
    parser.add_argument("--files", type=int, default=4, help="in each leaf")
    parser.add_argument("--rows", type=int, default=400_000, help="of a file of each leaf together")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", default=None)
    parser.add_argument("--run", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--instance", help=argparse.SUPPRESS)
    return parser.parse_args()


def make_table(folder: Path, arguments: argparse.Namespace) -> None:
    """Ingest as often as a leaf has files, each time into all leaves."""
    table = sleeper.connect(folder, create=True).create_table(
        "bench",
        SCHEMA,
        row_keys=["key"],
        sort_keys=["ts"],
        split_points=split_points(arguments.leaves),
        properties={"sleeper.table.ingest.file.writing.strategy": "one_file_per_leaf"},
    )
    for seed in range(arguments.files):
        table.ingest(pa.RecordBatchReader.from_batches(SCHEMA, rows(arguments.rows, seed)))


def measured(variant: str, instance: Path) -> float:
    """Run one variant in a process of its own; print what it cost, return its CPU seconds."""
    command = [sys.executable, "-m", "bench.spark_compaction", "--run", variant]
    done = subprocess.run(
        [*command, "--instance", str(instance)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    if done.returncode:
        raise SystemExit(f"{variant} failed\n{done.stderr[-3000:]}")
    line = done.stdout.strip().splitlines()[-1]
    print(line, flush=True)
    return float(line.split()[1])


def run(arguments: argparse.Namespace) -> None:
    variant = arguments.run
    table = sleeper.connect(arguments.instance).table("bench")
    expected = table.count()
    session = None
    if variant != "processes":
        session = local_session(
            environment=os.environ, python=sys.executable, cores=2, memory="1g", temp_folder=None
        )
        session.range(0, 4, 1, 2).mapInArrow(warmed, "id long").collect()
    if variant == "spark-large-jobs":
        import sleeper.spark.piece_jobs as piece_jobs  # noqa: PLC0415, PLR0402

        piece_jobs.cluster_cores = lambda _: 200
    before = table.state().number
    watch = Watch()
    done = table.compact(all_files=True, spark=session, workers=1 if session else 2)
    cost = watch.ended()
    assert not done.failed
    assert table.count() == expected
    commits = len({job.transaction for job in done.jobs})
    jobs = "-" if session is None else str(spark_jobs(session))
    print(f"{variant:18}{cost}{jobs:>9}{commits:9d}", flush=True)
    assert done.transaction > before
    if session is not None:
        session.stop()


def spark_jobs(session: object) -> int:
    """Return the number of the session's jobs, from the id that the next one gets."""
    status = session.sparkContext._jsc.sc().statusStore()  # type: ignore[attr-defined]
    return status.jobsList(None).size() - 1  # but for the one that warmed it


if __name__ == "__main__":
    main()
