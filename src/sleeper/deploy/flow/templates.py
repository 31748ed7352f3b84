"""Writes the templates of a deployment for other programs: CloudFormation itself, or Terraform."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sleeper.deploy.flow.preparation import account_and_region
from sleeper.deploy.settings import DeploymentSettings, deployed_values
from sleeper.deploy.stacks.app import Assembly, synthesise
from sleeper.errors import PropertiesInvalid
from sleeper.model.known_properties.catalogue import INSTANCE_PROPERTIES_BY_NAME
from sleeper.model.known_properties.given import unknown_names

STACKS_FILE: Final = "stacks.json"
"""The file that lists the stacks, in the order in which they are deployed."""


def write_templates(
    instance_id: str,
    given: Mapping[str, str | None],
    account: str | None,
    region: str | None,
    folder: Path,
) -> Assembly:
    """Write the templates of an instance, and a list of them, to a folder.

    AWS is asked only for the account, if it is not given. Images are named by their tags.

    Args:
        instance_id: The instance.
        given: Its properties; the templates have these, whatever is deployed.
        account: The account; None for that of the credentials.
        region: The region; None for the one that boto3 finds.
        folder: Where; it is made if it is missing.

    Raises:
        BadRequest: no region is given, and none is in the environment.
        PropertiesInvalid: a property is not known or not allowed; lists every failure.
        MissingExtra: the CDK is not installed.
        StorageFailed: there are no credentials, and no account is given.
    """
    account, region = account_and_region(account, region)
    if failures := unknown_names(given, INSTANCE_PROPERTIES_BY_NAME):
        raise PropertiesInvalid(failures)
    values = deployed_values(instance_id, {}, given)
    settings = DeploymentSettings.of(values, account=account, region=region)
    folder.mkdir(parents=True, exist_ok=True)
    assembly = synthesise(settings, folder.resolve())
    (folder / STACKS_FILE).write_text(json.dumps(_listed(assembly), indent=2) + "\n")
    return assembly


def _listed(assembly: Assembly) -> dict[str, Any]:
    """Return the stacks with all that a deployment gives them beside the template.

    Those of one wave need only those of waves before.
    """
    artifacts = json.loads((assembly.folder / "manifest.json").read_text())["artifacts"]
    waves: dict[str, int] = {}
    for each in assembly.stacks:
        waves[each.kind] = max((waves[need] + 1 for need in each.needs), default=0)
    return {
        "stacks": [
            {
                "kind": each.kind,
                "name": each.name,
                "template": each.template.name,
                "wave": waves[each.kind],
                "needs": list(each.needs),
                "tags": artifacts[each.kind]["properties"]["tags"],
            }
            for each in assembly.stacks
        ]
    }
