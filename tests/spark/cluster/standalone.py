"""A standalone cluster of Spark on this machine, whose worker daemons come back when they are killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

from sleeper.spark.java import find_java
from tests.patience import PATIENCE_S, becomes_true
from tests.spark.class_archive import SHORT_LIVED, make_class_archive
from tests.spark.cluster.conftest import WORKERS_SEE

DAEMON = "org.apache.spark.deploy"
LOOK_EVERY_S = 0.5


class Standalone:
    """A master, and worker daemons that each run some executors of one core.

    Attributes:
        url: The master's, for `spark.master`.
        killed: How many worker daemons have ended, and were started again.
    """

    def __init__(
        self,
        folder: Path,
        workers: int,
        cores: int,
        memory: str = "3g",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.killed = 0
        self._folder, self._cores, self._memory = folder, cores, memory
        self._environment = {**os.environ, **WORKERS_SEE} if environment is None else environment
        self._ended = threading.Event()
        log = folder / "master.log"
        self._master = self._start(log, "master.Master", "--host", "127.0.0.1", "--port", "0")
        assert becomes_true(lambda: self._found_in(log) is not None)
        self.url = str(self._found_in(log))
        self._workers = [self._worker(number) for number in range(workers)]
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self._keeper.start()

    def close(self) -> None:
        """End all daemons, and the executors of each."""
        self._ended.set()
        self._keeper.join()
        for process in (*self._workers, self._master):
            _end(process)

    def _found_in(self, log: Path) -> str | None:
        found = re.search(r"spark://127\.0\.0\.1:\d+", log.read_text())
        return None if found is None else found[0]

    def _keep(self) -> None:
        while not self._ended.wait(LOOK_EVERY_S):
            for number, process in enumerate(self._workers):
                if process.poll() is not None:
                    self.killed += 1
                    self._workers[number] = self._worker(number)

    def _worker(self, number: int) -> subprocess.Popen[bytes]:
        work = self._folder / f"worker-{number}"
        return self._start(
            self._folder / f"worker-{number}.log",
            "worker.Worker",
            *("--host", "127.0.0.1", "--cores", str(self._cores), "--memory", self._memory),
            *("--work-dir", str(work), "--webui-port", "0", self.url),
        )

    def _start(self, log: Path, daemon: str, *arguments: str) -> subprocess.Popen[bytes]:
        variables = spark_variables()
        java, home = f"{variables['JAVA_HOME']}/bin/java", variables["SPARK_HOME"]
        (first,) = Path(home, "jars").glob("slf4j-api-*.jar")
        # As Spark's launcher has it for drivers and executors, for the file of classes is of that.
        class_path = f"{home}/conf:{first}:{home}/jars/*"
        command = [java, "-Xmx256m", *SHORT_LIVED.split(), "-cp", class_path]
        with log.open("ab") as file:
            return subprocess.Popen(
                [*command, f"{DAEMON}.{daemon}", *arguments],
                cwd=self._folder,
                env={**self._environment, **variables},
                stdout=file,
                stderr=file,
                start_new_session=True,
            )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a daemon, which ends what it started."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def spark_variables() -> dict[str, str]:
    """Return what programs of Spark find in their environment."""
    return {
        "JAVA_HOME": str(find_java(os.environ, spark_version=pyspark.__version__).home),
        "SPARK_HOME": str(Path(pyspark.__file__).resolve().parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SCALA_VERSION": "2.13",  # Spark's scripts say it, which daemons do without
    }


@contextmanager
def standalone_cluster(
    folder: Path,
    *,
    workers: int,
    cores: int,
    memory: str = "3g",
    environment: Mapping[str, str] | None = None,
) -> Iterator[Standalone]:
    """Start a cluster for a block.

    Args:
        folder: Made, for its logs and for what executors work with.
        workers: How many daemons run executors.
        cores: Of each.
        memory: What each may give to executors.
        environment: All that daemons and executors find in theirs; that of tests, if not given.
    """
    make_class_archive()
    folder.mkdir()
    cluster = Standalone(folder, workers, cores, memory, environment)
    try:
        yield cluster
    finally:
        cluster.close()
