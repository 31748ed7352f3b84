"""A driver in a process of its own on this machine, for jobs that a worker takes from a queue.

The worker may be asked to end, and the driver may be killed: neither takes the other with it
unnoticed. The driver starts Spark by the installed pyspark, so no spark-submit is needed. Spark's
Java process is a child of the driver, in its process group. It ends when the driver has ended; one
that does not is killed with the group, so that none stays.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sleeper.errors import SubmissionFailed
from sleeper.spark.submit.request import CommandRequest, DriverCall, conf_arguments

SPARK_MASTER: Final = "sleeper.bulk.import.local.spark.master"
"""The property that has such drivers started."""

MODULE: Final = "sleeper.interfaces.bulk_import_job"
"""The driver's program, which this package may not import."""

_LOOK_S = 0.2
_PATIENCE_S = 10.0  # of a driver that was asked to end: Spark cancels its jobs
_JAVA_PATIENCE_S = 30.0  # of a Java process whose driver has ended
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverProcess:
    """A driver that the installed pyspark runs on this machine.

    Attributes:
        master: Where its tasks run: `local[2]`, `spark://host:7077`, `yarn`.
        python: The Python of the driver, which has Sleeper and pyspark installed.
        parent_id: The process that starts it: it ends with that one.
    """

    master: str
    python: str
    parent_id: int

    def request(self, call: DriverCall) -> CommandRequest:
        """Return the command."""
        return CommandRequest(
            (
                *(self.python, "-m", MODULE, *call.arguments),
                *("--master", self.master, "--parent", str(self.parent_id)),
                *conf_arguments({"spark.app.name": call.name, **call.spark_conf}),
            )
        )


def run_driver(request: CommandRequest, check: Callable[[], None]) -> None:
    """Run a driver and wait for its end. What it logs goes where this process's log goes.

    Args:
        request: Made by `DriverProcess`.
        check: Called several times a second; what it raises ends the driver, and goes on.

    Raises:
        SubmissionFailed: it could not be started, failed, or was killed. Its causes are what the
            driver reported. `retryable` where the driver says so, or could say nothing.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 - a command line of our own
            request.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
        )
    except OSError as error:
        raise SubmissionFailed(
            f"cannot start the Spark driver {request.argv[0]}: {error.strerror}", retryable=True
        ) from None
    _log.info("the Spark driver is process %d", process.pid)
    with process:
        try:
            said = _output(process, check)
        except BaseException:
            _end(process)
            raise
    if process.returncode:
        raise _failure(process.pid, process.returncode, said)


def driver_report(reasons: Sequence[str], *, may_pass: bool) -> str:
    """Return what a driver that failed prints, for the process that started it.

    Args:
        reasons: Why it failed, outermost first.
        may_pass: Whether the same job may succeed later.
    """
    return json.dumps({"reasons": [*reasons], "mayPass": may_pass})


def _output(process: subprocess.Popen[str], check: Callable[[], None]) -> str:
    """Return what a driver printed: all of it, when no process that could print more is left."""
    waited_s = 0.0
    while True:
        check()
        try:
            return process.communicate(timeout=_LOOK_S)[0]
        except subprocess.TimeoutExpired:
            if process.poll() is None:
                continue
        waited_s += _LOOK_S
        if waited_s >= _JAVA_PATIENCE_S:
            _log.warning("the Spark driver, process %d, left processes: killing them", process.pid)
            _kill_group(process)


def _end(process: subprocess.Popen[str]) -> None:
    _log.info("ending the Spark driver, process %d", process.pid)
    process.terminate()
    try:
        process.communicate(timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        _log.warning("the Spark driver, process %d, does not end: killing it", process.pid)
        _kill_group(process)


def _kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a driver and what it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        _log.info("the Spark driver, process %d, has left no process", process.pid)


def _failure(pid: int, code: int, said: str) -> SubmissionFailed:
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    report = _report(said)
    if report is None:
        why = "" if code < 0 else "; its log says why"
        return SubmissionFailed(f"the Spark driver, process {pid}, {how}{why}", retryable=True)
    failure = SubmissionFailed(
        f"the Spark driver, process {pid}, {how}", retryable=bool(report["mayPass"])
    )
    outer: BaseException = failure
    for reason in report["reasons"]:
        outer.__cause__ = SubmissionFailed(str(reason))
        outer = outer.__cause__
    return failure


def _report(said: str) -> dict[str, Any] | None:
    """Return the driver's report, its last line; None where it printed none."""
    lines = said.splitlines()
    try:
        report = json.loads(lines[-1]) if lines else None
    except ValueError:
        return None
    return report if isinstance(report, dict) and {"reasons", "mayPass"} <= {*report} else None
