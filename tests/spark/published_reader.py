"""A program: Spark reads published tables by delta-spark and iceberg-spark-runtime.

    python -m tests.spark.published_reader JARS

It has a session of its own, since the jars in the folder JARS must be there from the start; all tests
share one, for to start takes longer than to read. On its standard input it takes lines of JSON: of
each table its format, its location and where its rows go, as a file of Arrow. What Spark says of a
table that it does not read goes into a text file beside it. Each line is answered by `READ`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyarrow import feather

from sleeper.spark.session import local_session
from tests.spark.conftest import CONF

EXTENSIONS = (
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)


READ = "tables are read"


def main(jars: str) -> None:
    """Read the tables of each line, until the input ends."""
    conf = {
        **CONF,
        "spark.jars": ",".join(map(str, sorted(Path(jars).iterdir()))),
        "spark.sql.extensions": ",".join(EXTENSIONS),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",  # of its own queries: logs here are short
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.caseSensitive": "true",  # Iceberg has columns whose names differ in case alone
    }
    session = local_session(
        environment=os.environ, python=sys.executable, cores=2, memory="1g", conf=conf
    )
    try:
        for line in sys.stdin:
            for each in json.loads(line):
                read(session, each)
            sys.stdout.write(f"{READ}\n")
            sys.stdout.flush()
    finally:
        session.stop()


def read(session: Any, table: dict[str, str]) -> None:
    """Write the rows of a table, or why there are none."""
    out = Path(table["out"])
    try:
        rows = session.read.format(table["format"]).load(table["location"]).toArrow()
    except Exception as error:  # noqa: BLE001 - the test says which are right
        out.with_suffix(".txt").write_text(str(error))
        return
    feather.write_feather(rows, str(out), compression="uncompressed")


if __name__ == "__main__":
    main(sys.argv[1])
