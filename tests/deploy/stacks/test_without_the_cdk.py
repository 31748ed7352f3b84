"""The CDK is an extra, and takes seconds to start: it is loaded when templates are made."""

from __future__ import annotations

import subprocess
import sys

from tests.patience import PATIENCE_S

_WITHOUT = """
import sys
from importlib import util
from pathlib import Path

found = util.find_spec
util.find_spec = lambda name, *more: None if name == "aws_cdk" else found(name, *more)

from sleeper.deploy.flow import preparation
from sleeper.deploy.settings import DeploymentSettings
from sleeper.errors import MissingExtra
from sleeper.deploy.stacks.app import synthesise

print("loaded" if "aws_cdk" in sys.modules else "not loaded")
stacks = {"sleeper.id": "demo", "sleeper.optional.stacks": "QueryStack"}
settings = DeploymentSettings.of(stacks, account="123456789012", region="eu-west-2")
try:
    synthesise(settings, Path("templates"))
except MissingExtra as missing:
    print(missing)
"""


def test_a_deployment_without_the_extra_says_what_to_install(tmp_path):
    """Given no CDK, then what deploys is imported, and an error names the extra."""
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )

    loaded, told = done.stdout.splitlines()
    assert loaded == "not loaded"
    assert "pip install 'sleeper-store[deploy]'" in told
