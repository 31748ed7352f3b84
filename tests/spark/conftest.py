"""One Spark session for all tests of this folder, of the kind that SLEEPER_TEST_SPARK names.

`classic` (the default) has Spark in a process of its own, `connect` reaches it through Spark
Connect. Tests marked `every_spark` are run on both, and on the oldest Spark that is supported;
the others on classic alone. `make test` runs them all. Where there is no Spark or no Java,
these tests fail in CI and are left out elsewhere, which the summary says.
"""

from __future__ import annotations

import os
import shlex
import sys
from importlib.metadata import version

import pytest

from sleeper.errors import MissingExtra
from sleeper.spark.java import find_java
from sleeper.spark.session import local_session, local_settings
from tests.spark.class_archive import MISSING, SHORT_LIVED, make_class_archive
from tests.spark.run_again import pytest_runtest_protocol  # noqa: F401 - a hook

KIND = os.environ.get("SLEEPER_TEST_SPARK", "classic")
# Two attempts, and not four: a worker that raises ends, and to start the next one costs seconds.
SIZE = {"master": "local[2,2]", "memory": "1g"}
CONF = {
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
}

if MISSING and os.environ.get("CI"):
    raise MissingExtra(f"tests/spark cannot run, and in CI they must: {MISSING}")
if MISSING:
    collect_ignore_glob = ["test_*.py"]
elif not version("pyspark").startswith("4.0."):
    collect_ignore_glob = ["test_published_tables.py"]  # its jars are for Spark 4.0


def pytest_terminal_summary(terminalreporter):
    """Say what was left out, where nobody can overlook it."""
    if MISSING:
        terminalreporter.section(f"SPARK WAS NOT TESTED: {MISSING}", red=True, bold=True)


def pytest_collection_modifyitems(items):
    """Let Spark 4.0 leave the sockets open through which it sends rows; later ones close them."""
    if not MISSING and version("pyspark").startswith("4.0."):
        pattern = r"ignore:unclosed <socket\.socket .*\('127\.0\.0\.1':ResourceWarning"
        for item in items:
            item.add_marker(pytest.mark.filterwarnings(pattern))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """The session: two cores and 1 GB; a task of the classic kind has two attempts."""
    make_class_archive()
    size = SIZE | {"temp_folder": str(tmp_path_factory.mktemp("spark")), "conf": CONF}
    session = {"classic": classic_session, "connect": connect_session}[KIND](size)
    yield session
    session.stop()


def classic_session(size):
    """The session that users get when they have none."""
    return local_session(environment=os.environ, python=sys.executable, **size)


def connect_session(size):
    """A client of Spark Connect, and the server that pyspark starts for it."""
    import pyspark  # noqa: PLC0415 - an extra, and slow to import
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the same

    said_by_remote = ("spark.master", "spark.api.mode")
    settings = {k: v for k, v in local_settings(**size).items() if k not in said_by_remote}
    # The launcher takes them all; a builder of this kind warns of most.
    settings["spark.connect.grpc.binding.address"] = "127.0.0.1"
    arguments = [f"--conf={name}={value}" for name, value in settings.items()]
    os.environ |= {
        "JAVA_HOME": str(find_java(os.environ, spark_version=pyspark.__version__).home),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": shlex.join([*arguments, "pyspark-shell"]),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return SparkSession.builder.remote("local[2]").getOrCreate()
