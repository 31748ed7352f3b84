"""Sends requests: runs a command, or calls a service of AWS."""

from __future__ import annotations

import subprocess

from sleeper.errors import SubmissionFailed
from sleeper.spark.submit.aws_calls import call_service
from sleeper.spark.submit.request import CommandRequest, Request

_STDERR = 2  # the descriptor
_TRY_AGAIN = 75  # what the entry script ends with when the same job may succeed later


def send(request: Request) -> str | None:
    """Send a request and wait for the answer; for a driver that runs here, for its end.

    Returns:
        The id of what a service started; None for a command.

    Raises:
        SubmissionFailed: it was refused, not answered, or the command failed.
        MissingExtra: boto3 is needed and not installed.
    """
    if isinstance(request, CommandRequest):
        _run(request)
        return None
    return call_service(request)


def _run(request: CommandRequest) -> None:
    """Run a command. All that it prints goes to stderr.

    spark-submit mixes a driver's stdout and stderr, so its output is nothing for a pipe.
    """
    program = request.argv[0]
    try:
        done = subprocess.run(request.argv, check=False, stdout=_STDERR)  # noqa: S603 - asked for
    except OSError as error:
        raise SubmissionFailed(
            f"cannot run {program}: {error.strerror}; pip install 'sleeper-store[spark]' brings a "
            "spark-submit, and --spark-submit names another"
        ) from None
    if done.returncode:
        raise SubmissionFailed(
            f"{program} ended with code {done.returncode}; what it printed says why",
            retryable=done.returncode == _TRY_AGAIN,
        )
