"""Starts Spark on this machine with the settings that Sleeper needs, or returns a driver's."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sleeper.errors import BadRequest, MissingExtra
from sleeper.model.column_types import TYPE_TRAITS
from sleeper.spark.catalog.sessions import catalog_jar, catalog_settings
from sleeper.spark.java import find_java

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession

_MIB = 1 << 20
_DRIVER_MIB_MIN, _DRIVER_MIB_MAX = 1024, 8192
_TASK_ATTEMPTS = 4  # as on a cluster; the default of local mode is one attempt
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
# In a bulk import rows pass the JVM as blocks of bytes: compiling well costs more than it saves.
_QUICK_COMPILER = "-XX:TieredStopAtLevel=1"


def running_session() -> SparkSession | None:
    """Return the session that this process has, if any; its owner stops it."""
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        return None
    return SparkSession.getActiveSession()


def local_session(
    *,
    environment: Mapping[str, str],
    python: str,
    cores: int | None = None,
    memory: str | None = None,
    temp_folder: str | None = None,
    conf: Mapping[str, str] | None = None,
    master: str | None = None,
    instance: str | None = None,
) -> SparkSession:
    """Start Spark in a Java process of our own, for bulk imports; the caller stops the session.

    The Java process uses its quick compiler alone, which suits bulk imports. It has the jar of the
    catalog `sleeper`. A process has one
    Spark: a session that runs already (see `running_session`) is returned as it is, unless another
    master or other settings are asked for.

    Args:
        environment: Read for JAVA_HOME, PATH and where caches go.
        python: The Python that runs our functions in Spark's workers; Sleeper is installed there.
        cores: Tasks at the same time. Default: all cores that this process may use.
        memory: Of the Java process, as Spark writes it ("4g"). Default: a quarter of the
            machine's, 1 to 8 GiB. Each task has a Python worker besides.
        temp_folder: Where shuffles spill. Default: the system's folder for temporary files.
        conf: Settings of Spark, which go before ours.
        master: Another place for the work than this process, as Spark names it.
        instance: The URL of the instance whose tables are the catalog `sleeper`.

    Raises:
        MissingExtra: pyspark is not installed, or there is no Java that it runs on.
        BadRequest: a session runs already, with another master or other settings.
    """
    try:
        import pyspark  # noqa: PLC0415 - an extra, and slow to import
        from pyspark.sql import SparkSession  # noqa: PLC0415 - the same
    except ImportError as error:
        raise MissingExtra(
            f"Spark is not installed ({error}). Install it with: pip install 'sleeper-store[spark]'"
        ) from error
    running = SparkSession.getActiveSession()
    if running is not None:
        _check_settings(running, {**(conf or {}), **({"spark.master": master} if master else {})})
        return running
    java = find_java(environment, spark_version=pyspark.__version__)
    settings = local_settings(
        cores=cores,
        memory=memory,
        temp_folder=temp_folder,
        conf=conf,
        master=master,
        instance=instance,
    )
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    variables = {
        "JAVA_HOME": str(java.home),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_DIST_CLASSPATH": driver_class_path(environment),
    }
    if settings["spark.master"].startswith("local"):
        # Spares a search for this machine's name, and two warnings about what it finds.
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
    if temp_folder is not None:
        variables["SPARK_LOCAL_DIRS"] = temp_folder
    with _launch_variables(variables):
        return builder.getOrCreate()


def driver_session(name: str) -> SparkSession:
    """Return the session of a driver, with the master and settings that it was started with.

    For a driver that spark-submit, or a service in its place, has started.

    Raises:
        MissingExtra: pyspark is not there: neither Spark's own, nor installed.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise MissingExtra(
            "a bulk import on Spark needs pyspark, which is not installed: start the driver by "
            "spark-submit, or pip install 'sleeper-store[spark]'"
        ) from None
    return SparkSession.builder.appName(name).getOrCreate()


def _check_settings(running: SparkSession, wanted: Mapping[str, str]) -> None:
    """Refuse settings that a running session does not have."""
    others = [
        f"{name}={value} (it has {running.conf.get(name, None) or 'none'})"
        for name, value in wanted.items()
        if running.conf.get(name, None) != value
    ]
    if others:
        raise BadRequest(
            "this process has a Spark session already, which cannot be started again with "
            f"{', '.join(others)}: leave out master= and conf= to use it, or stop it first "
            "(spark.stop())"
        )


def local_settings(
    *,
    cores: int | None = None,
    memory: str | None = None,
    temp_folder: str | None = None,
    conf: Mapping[str, str] | None = None,
    master: str | None = None,
    instance: str | None = None,
) -> dict[str, str]:
    """The settings of a session on this machine, the caller's `conf` last: see `local_session`."""
    cores = cores or _usable_cores()
    ours = {
        "spark.app.name": "sleeper",
        "spark.master": master or f"local[{cores},{_TASK_ATTEMPTS}]",
        "spark.driver.memory": memory or f"{_driver_memory_mib(_memory_bytes())}m",
        "spark.local.dir": temp_folder or tempfile.gettempdir(),
        "spark.sql.shuffle.partitions": str(max(16, 4 * cores)),
        "spark.sql.session.timeZone": "UTC",
        **{each.spark_setting: "true" for each in TYPE_TRAITS.values() if each.spark_setting},
        **catalog_settings(instance),
        "spark.python.worker.reuse": "true",
        # "default": what the user or spark-defaults.conf says in extraJavaOptions comes after it.
        "spark.driver.defaultJavaOptions": _QUICK_COMPILER,
        # Each worker has one core; polars would start a pool of threads for all of them.
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
        "spark.api.mode": "classic",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if ours["spark.master"].startswith("local"):
        ours |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return ours | dict(conf or {})


def driver_class_path(environment: Mapping[str, str]) -> str:
    """Return the variable SPARK_DIST_CLASSPATH with the catalog's jar added.

    Spark's launcher adds it to the driver's class path. Settings do that too, but each takes the
    place of what spark-defaults.conf says in it.
    """
    given = environment.get("SPARK_DIST_CLASSPATH")
    return f"{given}:{catalog_jar()}" if given else catalog_jar()


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_bytes() -> int:
    """What this machine has, or less when a container may use less."""
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no such file, or "max"
        return min(installed, int(_CGROUP_LIMIT.read_text()))
    return installed


def _driver_memory_mib(memory_bytes: int) -> int:
    return min(_DRIVER_MIB_MAX, max(_DRIVER_MIB_MIN, memory_bytes // 4 // _MIB))


@contextmanager
def _launch_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Environment variables while Spark starts, and as they were when it has.

    pyspark's launcher takes the place of Java and of Python from nowhere else, and the variables
    of Spark Connect would have it connect instead.
    """
    environ = os.environ  # noqa: TID251 - the launcher reads and copies this process's own
    connect = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
    before = {name: environ.get(name) for name in (*variables, *connect)}
    for name in connect:
        environ.pop(name, None)
    environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                environ.pop(name, None)
            else:
                environ[name] = value
