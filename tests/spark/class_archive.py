"""A file of Spark's classes as Java has loaded them, which each JVM of these tests maps into memory.

Most of what a JVM with a small Spark does is to find, check and link some 15,000 classes: with the
file, its start and its first query take about half of the processor time. It is made once for each
Java and Spark, in a minute, and kept beside the servers that tests use.

Java takes it only if its class path begins with that of whoever made the file, and its jars are
those of then; else it does without, in silence.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.metadata import distribution, version
from pathlib import Path

from sleeper.spark.java import Java, find_java
from tests.contracts.servers.installed import FOLDER, ROOT

LOCK = "spark-classes.lock"
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Java warns of each class that it leaves out, in what a program prints."""

PLAIN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Such a JVM lives for minutes: more is spent on compiling well than is won by it."""


def java_of_spark() -> tuple[Java | None, str | None]:
    """The Java of all JVMs here; else why no Spark can be started."""
    try:
        import pyspark  # noqa: PLC0415 - an extra

        return find_java(os.environ, spark_version=pyspark.__version__), None
    except ImportError as error:  # MissingExtra is one
        return None, str(error)


JAVA, MISSING = java_of_spark()


def archive_of(java_home: Path, spark_version: str) -> Path | None:
    """Return where the file is, or will be, for one Java and one Spark; None where it has none."""
    if spark_version.startswith("4.0."):  # the oldest has too few JVMs in a run to win by it
        return None
    jars = Path(str(distribution("pyspark").locate_file("pyspark"))).resolve() / "jars"
    release = java_home / "release"
    made_of = [str(java_home), release.read_text() if release.exists() else "", str(jars)]
    made_of += [
        f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}"
        for path in sorted(jars.glob("*.jar"))
    ]
    digest = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:12]
    return FOLDER / f"spark-classes-{spark_version}-{digest}.jsa"


ARCHIVE = archive_of(JAVA.home, version("pyspark")) if JAVA else None
SHORT_LIVED = f"{PLAIN} -XX:SharedArchiveFile={ARCHIVE} {QUIET}" if ARCHIVE else PLAIN
"""The options of a JVM of these tests."""


def make_class_archive() -> None:
    """Have the file that SHORT_LIVED names; before a session or a cluster starts."""
    if JAVA is not None and ARCHIVE is not None:
        make(ARCHIVE, JAVA.home)


def make(archive: Path, java_home: Path) -> None:
    """Make the file, unless it is there; where another process makes it, wait for that."""
    if archive.exists():
        return
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive.exists():
            return
        with tempfile.TemporaryDirectory(dir=FOLDER, prefix="new-") as folder:
            made = Path(folder) / archive.name
            # The JVM writes the file after its driver has ended: what it prints ends with it.
            done = subprocess.run(
                [sys.executable, "-m", "tests.spark.class_archive", folder, str(made)],
                cwd=ROOT,
                env={
                    **os.environ,
                    "JAVA_HOME": str(java_home),
                    "PYSPARK_PYTHON": sys.executable,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                },
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            for old in FOLDER.glob("spark-classes-*.jsa"):  # of an older Java or Spark
                old.unlink()
            if made.exists():  # a Java without a file of its own classes makes none of others
                made.rename(archive)


def main(folder: str, archive: str) -> None:
    """Use much of what tests use of Spark, in a JVM that writes its classes when it ends."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra

    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{PLAIN} -XX:ArchiveClassesAtExit={archive} {QUIET}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": folder,
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.range(0, 100, 1, 2).selectExpr("id", "string(id) AS name").write.parquet(f"{folder}/rows")
    rows = spark.read.parquet(f"{folder}/rows")
    rows.createOrReplaceTempView("rows")
    statement = (
        "SELECT id % 3 AS k, count(*), max(name) FROM rows WHERE id > 3 GROUP BY 1 ORDER BY 1"
    )
    assert len(spark.sql(statement).collect()) == 3
    passed_on = rows.repartition(2, "id").mapInArrow(lambda batches: batches, rows.schema)
    assert passed_on.count() == 100
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
