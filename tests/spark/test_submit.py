"""`sleeper bulk-import --submit spark-submit`, from the command line to rows in the table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark

import sleeper as sleeper_package
from sleeper.spark.java import find_java
from tests.spark.class_archive import SHORT_LIVED
from tests.unit.interfaces.command_line import ROWS, make_trips, rows_of, sleeper, write_rows

MORE = [
    {"taxi": "b", "day": 2, "at": 50, "fare": 2.0},
    {"taxi": "x", "day": 3, "at": 60, "fare": 1},
]
QUIET = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
}


def test_a_job_goes_through_spark_submit(tmp_path):
    """
    The job is saved, spark-submit starts its driver, the driver reads the job back, imports on
    its own Spark, commits under the job's id and deletes what was saved; the same job again
    changes nothing.
    """
    url = make_trips(tmp_path)
    more = write_rows(tmp_path / "more.parquet", MORE)
    least = "sleeper.table.bulk.import.min.leaf.partitions=1"
    assert sleeper("table", "set", "trips", least, "--instance", url).exit_code == 0

    done = subprocess.run(
        [
            *(sys.executable, "-c", "from sleeper.interfaces.cli.main import main; main()"),
            *("bulk-import", "trips", more, "--job-id", "june", "--instance", url, "--json"),
            *("--submit", "spark-submit", "--master", "local[2]"),
            *(part for item in QUIET.items() for part in ("--conf", "=".join(item))),
        ],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        # Nothing but Sleeper's sources: the rest must be found where this Python has it.
        env={
            **os.environ,
            "JAVA_HOME": str(find_java(os.environ, spark_version=pyspark.__version__).home),
            "PYTHONPATH": str(Path(sleeper_package.__file__).parents[1]),
        },
        text=True,
    )
    again = sleeper("bulk-import", "trips", more, "--job-id", "june", "--instance", url)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["job"]["id"] == "june"
    assert "engine spark: " in done.stderr
    assert "imported 2 rows into trips: 2 files, 2 partitions" in done.stderr
    assert "job june was committed by transaction" in again.stdout
    assert len(rows_of(sleeper("query", "trips", "--json", "--instance", url))) == len(ROWS) + 2
    assert [*Path(url).glob("bulk_import/*")] == []
