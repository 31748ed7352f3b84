"""deploy/compose: a file that its schema accepts, and services whose commands work together.

There is no container here: the same commands run as plain processes, beside the same S3 server.
What stays untried is what a daemon does: networks, volumes, limits and health checks.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet

from tests.contracts.s3_server import CREDENTIALS
from tests.contracts.servers.running import answers, free_port, running
from tests.contracts.servers.versity import shared_versitygw
from tests.deploy.files.programs import ROOT
from tests.patience import PATIENCE_S

FILE = ROOT / "deploy" / "compose" / "compose.yaml"
SERVICES = yaml.safe_load(FILE.read_text())["services"]
OURS = [name for name in SERVICES if name != "store"]
PROGRAMS = Path(sys.executable).parent
STATE = "/var/lib/sleeper"

each_service = pytest.mark.parametrize("name", SERVICES)


class TestFile:
    """compose.yaml."""

    def test_is_what_compose_reads(self):
        """It has the form of Compose's own schema."""
        check = [PROGRAMS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", FILE]

        done = subprocess.run(check, capture_output=True, text=True, check=False)

        assert done.returncode == 0, done.stdout

    def test_is_resolved_by_compose(self):
        """`docker compose config` accepts it; it needs no daemon."""
        try:
            compose = subprocess.run(
                ["docker", "compose", "version"], capture_output=True, check=False
            )
        except FileNotFoundError:
            pytest.skip("LEFT OUT: docker compose: there is no docker here")
        if compose.returncode:
            pytest.skip("LEFT OUT: docker compose: this docker has no compose")
        keys = {"STORE_ACCESS_KEY": "a", "STORE_SECRET_KEY": "b"}

        done = subprocess.run(
            ["docker", "compose", "--file", FILE, "config", "--quiet"],
            env={**os.environ, **keys},
            capture_output=True,
            text=True,
            check=False,
        )

        assert done.returncode == 0, done.stderr

    def test_asks_for_secrets_and_has_none(self):
        """Keys come from the environment or .env; without them Compose says where to put them."""
        texts = re.findall(r"(\w*(?:SECRET|ACCESS)_KEY(?:_ID)?): (?!\*)(.*)", FILE.read_text())

        assert len(texts) == 2
        for _, value in texts:
            assert re.search(r"\$\{STORE_\w+_KEY:\?put \w+ into \.env", value)

    @each_service
    def test_publishes_to_this_machine_alone(self, name):
        """No port is published on other addresses than 127.0.0.1."""
        assert all(str(port).startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))

    @each_service
    def test_limits_what_a_service_takes_and_may(self, name):
        """Each has limits, a read-only root, no capability, a fixed version, a bounded log."""
        service = SERVICES[name]

        assert {"cpus", "memory", "pids"} <= service["deploy"]["resources"]["limits"].keys()
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["logging"]["options"]["max-size"]
        assert re.search(r":v?\d+\.\d+\.\d+\}?$", service["image"])

    @pytest.mark.parametrize("name", OURS)
    def test_runs_as_an_ordinary_user(self, name):
        """The services of Sleeper do not run as root."""
        assert SERVICES[name]["user"] == "1000:1000"

    @pytest.mark.parametrize("name", [name for name in SERVICES if name != "init"])
    def test_starts_again_and_is_watched(self, name):
        """A service that ends is started again, and has a check of its health."""
        assert SERVICES[name]["restart"] == "unless-stopped"
        assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"


class Deployment:
    """The services as processes: other places and ports, the same commands."""

    def __init__(self, folder: Path, endpoint: str):
        self.folder = folder
        self.ports = {9464: free_port(), 8750: free_port()}
        self.replaced = {
            STATE: str(folder / "state"),
            "http://store:7070": endpoint,
            **{f"0.0.0.0:{port}": f"127.0.0.1:{own}" for port, own in self.ports.items()},
            **{f"127.0.0.1:{port}": f"127.0.0.1:{own}" for port, own in self.ports.items()},
            "$$": "$",
        }
        (folder / "state").mkdir()

    def placed(self, text: str) -> str:
        """Return a text with the places of this machine."""
        for there, here in self.replaced.items():
            text = text.replace(there, here)
        return text

    def command(self, name: str) -> list[str]:
        """Return the command of a service."""
        return [self.placed(word) for word in SERVICES[name]["command"]]

    def environment(self, name: str) -> dict[str, str]:
        """Return the variables of a service."""
        keys = dict(
            zip(("STORE_ACCESS_KEY", "STORE_SECRET_KEY"), CREDENTIALS.values(), strict=True)
        )
        given = {
            key: self.placed(re.sub(r"\$\{(\w+).*\}", lambda found: keys[found[1]], value))
            for key, value in SERVICES[name]["environment"].items()
        }
        return {"PATH": f"{PROGRAMS}:{os.defpath}", "HOME": str(self.folder), **given}

    def run(self, command: list[str], environment: dict[str, str]) -> str:
        """Run a command to its end, and return what it prints."""
        done = subprocess.run(
            command,
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        return done.stdout

    def check(self, name: str) -> bool:
        """Tell whether a service's own check of its health succeeds."""
        _, program, *arguments = SERVICES[name]["healthcheck"]["test"]
        command = [program, *map(self.placed, arguments)]
        environment = self.environment(name)
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        return done.returncode == 0


def test_services_work_together(request, tmp_path, tmp_path_factory):
    """
    GIVEN an S3 server
    WHEN the services start as the file says, and a client adds a table and rows by REST
    THEN a query finds them, a job that was sent is run by `serve`, and both are healthy
    """
    store = shared_versitygw(request.config, tmp_path_factory)
    here = Deployment(tmp_path, store.endpoint)

    first = here.run(here.command("init"), here.environment("init"))
    again = here.run(here.command("init"), here.environment("init"))
    tokens = f"{here.placed(STATE)}/tokens.json"
    add = ["sleeper", "server", "token", "add", "me", "--role", "admin", "--tokens", tokens]
    token = here.run(add, here.environment("server")).strip()
    url = f"http://127.0.0.1:{here.ports[8750]}"
    client = {
        "PATH": f"{PROGRAMS}:{os.defpath}",
        "HOME": str(tmp_path),
        "SLEEPER_INSTANCE": url,
        "SLEEPER_TOKEN": token,
    }
    schema = {"rowKeyFields": [{"name": "tail", "type": "StringType"}]}
    schema["valueFields"] = [{"name": "origin", "type": "StringType"}]
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    rows = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({"tail": ["N1", "N2"], "origin": ["JFK", "EWR"]}), rows)
    with ExitStack() as services:
        for name, path in (("serve", "9464/healthz"), ("server", "8750/sleeper/health")):
            port, _, route = path.partition("/")
            answered = f"http://127.0.0.1:{here.ports[int(port)]}/{route}"
            services.enter_context(
                running(
                    here.command(name),
                    lambda answered=answered: answers(answered),
                    tmp_path / f"{name}.log",
                    here.environment(name),
                    PATIENCE_S,
                )
            )
        healthy = here.check("serve"), here.check("server")
        here.run(["sleeper", "table", "add", "flights", "--schema", "schema.json"], client)
        here.run(["sleeper", "ingest", "flights", str(rows)], client)
        found = here.run(["sleeper", "query", "flights", "--key", "tail=N2", "--json"], client)

    assert "made instance" in first
    assert "made instance" not in again
    assert healthy == (True, True)
    assert "EWR" in found
