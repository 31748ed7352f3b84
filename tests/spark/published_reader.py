"""A program: Spark reads published tables by delta-spark and iceberg-spark-runtime.

    python -m tests.spark.published_reader REQUESTS.json

It has a session of its own, since the jars must be there from the start. REQUESTS.json has the folder
of the jars, and for each table its format, its location and where its rows go, as a file of Arrow.
What Spark says of a table that it does not read goes into a text file beside it.
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


def main(path: str) -> None:
    """Read each table."""
    asked = json.loads(Path(path).read_text())
    conf = {
        **CONF,
        "spark.jars": ",".join(map(str, sorted(Path(asked["jars"]).iterdir()))),
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
        for each in asked["tables"]:
            read(session, each)
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
