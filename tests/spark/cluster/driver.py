"""A program: a driver of its own, with Spark inside, that imports until it is killed.

It takes a folder for temp files, and the URL of a cluster, or none to do all in its own process.
On its standard input it takes lines of JSON, the arguments of `run`, and answers each by a line
of JSON. It says `ready` when Spark is.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import sleeper
from sleeper.spark.session import local_session
from tests.spark.cluster.conftest import CONF
from tests.spark.cluster.fault_tables import faulty_table
from tests.spark.cluster.faulty_files import Fault, Faults


def run(spark, *, folder: str, table: str, inputs: str, job: str, marks: str, plan: list[dict]):
    """Import files into a table whose storage has faults."""
    faults = Faults(Path(marks), tuple(Fault(**fault) for fault in plan), os.getpid())
    opened = faulty_table(sleeper.connect(folder), table, faults)
    result = opened.bulk_import(inputs, job, engine="spark", spark=spark)
    return {"transaction": result.transaction, "already_committed": result.already_committed}


def answer(line: str) -> None:
    """Tell the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


OF_CLUSTER = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.task.maxFailures": "8",
    "spark.stage.maxConsecutiveAttempts": "12",
}


def main(temp_folder: str, master: str | None = None) -> None:
    """Take commands until the input ends."""
    spark = local_session(
        environment=os.environ,
        python=sys.executable,
        cores=1,
        memory="512m",
        temp_folder=temp_folder,
        master=master,
        conf=CONF if master is None else CONF | OF_CLUSTER,
    )
    answer("ready")
    for line in sys.stdin:
        answer(json.dumps(run(spark, **json.loads(line))))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
