"""The part of docs/deploy/aws.md with the policies of who deploys the default stacks."""

from __future__ import annotations

import json
from typing import Any

from cost_page import SETTINGS, default_templates

from sleeper.deploy.deployer_policy import deployer_policies
from sleeper.deploy.names import DeployedNames

REGION = "eu-west-2"
ACCOUNT = "123456789012"
BEGIN, END = "<!-- policies: written by `make docs` -->\n", "<!-- /policies -->\n"


def policies_page(text: str) -> str:
    """The page of deployments, with fresh policies between its two marks."""
    before, _, rest = text.partition(BEGIN)
    names = DeployedNames(SETTINGS["sleeper.id"], ACCOUNT, REGION)
    policies = deployer_policies(default_templates(REGION), names)
    blocks = "\n".join(
        f"`{name}`:\n\n```json\n{compact(document)}\n```\n" for name, document in policies.items()
    )
    return f"{before}{BEGIN}\n{blocks}\n{END}{rest.partition(END)[2]}"


def compact(document: dict[str, Any]) -> str:
    """A policy with a line for each member of a statement."""
    statements = []
    for each in document["Statement"]:
        members = [
            f'      "{name}": {wrapped(value) if isinstance(value, list) else json.dumps(value)}'
            for name, value in each.items()
        ]
        statements.append("    {\n" + ",\n".join(members) + "\n    }")
    return (
        f'{{\n  "Version": "{document["Version"]}",\n  "Statement": [\n'
        + ",\n".join(statements)
        + "\n  ]\n}"
    )


def wrapped(values: list[str], width: int = 110) -> str:
    """A list in as few lines as its width allows."""
    lines = [""]
    for each in (f'"{value}", ' for value in values):
        if lines[-1] and len(lines[-1]) + len(each) > width:
            lines.append("")
        lines[-1] += each
    if len(lines) == 1:
        return f"[{lines[0].rstrip(', ')}]"
    body = "\n".join(f"        {line.rstrip()}" for line in lines).rstrip(",")
    return f"[\n{body}\n      ]"
