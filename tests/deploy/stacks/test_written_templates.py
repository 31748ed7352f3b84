"""`sleeper deploy templates` writes what other programs deploy."""

from __future__ import annotations

import json

from tests.deploy.stacks.conftest import ACCOUNT, NETWORK, REGION
from tests.unit.interfaces.command_line import sleeper as command


def test_stacks_are_listed_in_waves(tmp_path):
    """Given the list, then each stack is in a wave after those that it needs, and has its tags."""
    words = [word for each in NETWORK.items() for word in ("--set", "=".join(each))]
    place = ("--account", ACCOUNT, "--region", REGION, "--out", str(tmp_path))

    done = command("deploy", "templates", "demo", *words, *place)

    assert done.exit_code == 0, done.output
    listed = json.loads((tmp_path / "stacks.json").read_text())["stacks"]
    waves = {each["kind"]: each["wave"] for each in listed}
    for each in listed:
        assert all(waves[need] < each["wave"] for need in each["needs"])
        assert each["tags"]["sleeper.instance.url"] == "aws://demo"
        assert (tmp_path / each["template"]).exists()
    assert {*waves.values()} == {0, 1, 2, 3}, "the module of Terraform has four"
