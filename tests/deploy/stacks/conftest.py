"""Templates of deployments, each made once: the CDK takes seconds to start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.app import StackFile, synthesise

ACCOUNT = "123456789012"
REGION = "eu-west-2"
NETWORK = {"sleeper.vpc": "vpc-0a1b2c3d", "sleeper.subnets": "subnet-0a1b2c3d,subnet-0a1b2c3e"}


def settings_of(properties: Mapping[str, str] = {}, *, region: str = REGION) -> DeploymentSettings:
    """Settings with a network, and an id unless another is given."""
    given = {"sleeper.id": "demo", **NETWORK, **properties}
    return DeploymentSettings.of(given, account=ACCOUNT, region=region)


class Resource(NamedTuple):
    """A resource of a template."""

    stack: str
    id: str
    type: str
    properties: dict[str, Any]
    whole: dict[str, Any]

    @property
    def name(self) -> str:
        """Its name in AWS, if it has one, else its id in the template."""
        ends = ("Name", "Family")
        texts = (text for name, text in self.properties.items() if name.endswith(ends))
        return next((text for text in texts if isinstance(text, str)), self.id)


class Deployed:
    """The templates of one deployment."""

    def __init__(self, settings: DeploymentSettings, folder: Path) -> None:
        self.settings = settings
        self.made = synthesise(settings, folder)

    @property
    def stacks(self) -> dict[str, StackFile]:
        """The stacks by kind, in order."""
        return {each.kind: each for each in self.made.stacks}

    @cached_property
    def templates(self) -> dict[str, dict[str, Any]]:
        """The templates by kind."""
        return {each.kind: json.loads(each.template.read_text()) for each in self.made.stacks}

    def resources(self, kind: str | None = None, *, stack: str | None = None) -> list[Resource]:
        """All resources of a type, or of any."""
        return [
            Resource(name, each, found["Type"], found.get("Properties", {}), found)
            for name, template in self.templates.items()
            if stack in (None, name)
            for each, found in template["Resources"].items()
            if kind in (None, found["Type"])
        ]

    def resource(self, kind: str, name: str) -> Resource:
        """The one resource of a type whose name ends so."""
        (found,) = [each for each in self.resources(kind) if each.name.endswith(name)]
        return found


@pytest.fixture(scope="session")
def synthesised(tmp_path_factory):
    """Makes a deployment of some properties; the same one for the same properties."""
    made: dict[tuple[tuple[str, str], ...], Deployed] = {}

    def make(properties: Mapping[str, str] = {}) -> Deployed:
        key = tuple(sorted(properties.items()))
        if key not in made:
            folder = tmp_path_factory.mktemp("assembly")
            made[key] = Deployed(settings_of(properties), folder)
        return made[key]

    return make


@pytest.fixture(scope="session")
def default(synthesised):
    """What is deployed without `sleeper.optional.stacks`."""
    return synthesised()
