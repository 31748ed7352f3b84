"""deploy/terraform: a module that a parser of Terraform's language reads, and what it says."""

from __future__ import annotations

import json
import re
import subprocess
from itertools import pairwise

import pytest

from tests.contracts.servers.installed import left_out
from tests.deploy.files.programs import ROOT

PYTHON = ROOT / ".venv-checkov/bin/python"
MODULE = ROOT / "deploy" / "terraform"
READ = "import json, sys, hcl2; print(json.dumps(hcl2.load(open(sys.argv[1]))))"
"""The parser is that of the scanner, in its own environment."""
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def module():
    """What the files of the module have, by kind of block."""
    if not PYTHON.exists():
        left_out("hcl2", "it is not installed; `make test-deploy` installs it")
    found = {}
    for path in sorted(MODULE.glob("*.tf")):
        command = [PYTHON, "-c", READ, path]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == 0, f"{path.name}: {done.stderr}"
        for kind, blocks in json.loads(done.stdout).items():
            found.setdefault(kind, []).extend(blocks)
    return found


def stacks_of(module):
    return {
        name: body
        for block in module["resource"]
        for kind, named in block.items()
        if kind == "aws_cloudformation_stack"
        for name, body in named.items()
    }


def test_each_variable_and_local_that_is_used_is_declared(module):
    """Given the whole module, then it refers to nothing that it has not, and declares no more."""
    text = "".join(path.read_text() for path in MODULE.glob("*.tf"))
    variables = {name for block in module["variable"] for name in block}
    values = {name for block in module["locals"] for name in block if not name.startswith("__")}

    assert set(re.findall(r"\bvar\.(\w+)", text)) == variables
    assert set(re.findall(r"\blocal\.(\w+)", text)) == values
    assert all("description" in body for block in module["variable"] for body in block.values())


def test_each_wave_of_stacks_waits_for_the_one_before(module):
    """Given four waves of stacks, then Terraform makes one after the other, and removes backwards."""
    stacks = list(stacks_of(module).items())
    waves = [re.search(r"wave == (\d)", str(body["for_each"]))[1] for _, body in stacks]

    assert waves == ["0", "1", "2", "3"]
    for (before, _), (_, body) in pairwise(stacks):
        assert before in str(body["depends_on"]), body
    for name, body in stacks:
        assert "CAPABILITY_NAMED_IAM" in str(body["capabilities"]), name
