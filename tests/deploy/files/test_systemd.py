"""deploy/systemd: units that systemd accepts, whose commands run, and which may do little."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest

from tests.contracts.servers.running import answers, free_port
from tests.deploy.files.programs import ROOT
from tests.patience import PATIENCE_S, becomes_true

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
EXPOSURE_MAX = 15
"""Tenths of systemd's scale, on which 100 is a service that may do anything."""
SLEEPER = Path(sys.executable).with_name("sleeper")

each_unit = pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)


def values(path: Path, name: str) -> list[str]:
    """Return what a unit says of a setting, a line each."""
    return re.findall(rf"^{name}=(.*)$", path.read_text(), re.MULTILINE)


def analyzer() -> str:
    """Return systemd's checker of units, or leave the test out."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("LEFT OUT: systemd-analyze: there is no systemd here")
    return program


class TestUnits:
    """Every unit."""

    @each_unit
    def test_is_accepted_by_systemd(self, path, tmp_path):
        """`systemd-analyze verify` prints nothing where the program is there."""
        text = path.read_text().replace("/srv/sleeper/bin/sleeper", str(SLEEPER))
        unit = tmp_path / path.name.replace("@.", "@ingest.")
        unit.write_text(text)

        done = subprocess.run(
            [analyzer(), "verify", "--man=no", unit], capture_output=True, text=True, check=False
        )
        said = [line for line in done.stderr.splitlines() if unit.name in line]

        assert (done.returncode, said) == (0, []), done.stderr

    @each_unit
    def test_may_do_little(self, path):
        """systemd's own measure of what a service could do to the machine is low."""
        done = subprocess.run(
            [analyzer(), "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", path],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "SYSTEMD_PAGER": "", "LC_ALL": "C.UTF-8"},
        )
        if "unrecognized option" in done.stderr:
            pytest.skip("LEFT OUT: systemd-analyze: it is too old to look at a file")

        assert done.returncode == 0, done.stdout[-600:] + done.stderr

    @each_unit
    def test_writes_to_the_instance_and_its_own_folder_alone(self, path):
        """The rest of the file system is read-only, and homes are hidden."""
        assert values(path, "ProtectSystem") == ["strict"]
        assert values(path, "ProtectHome") == ["yes"]
        assert values(path, "ReadWritePaths") == ["-/data/demo"]
        assert values(path, "StateDirectory") == ["sleeper"]
        assert values(path, "User") == ["sleeper"]

    @each_unit
    def test_holds_no_secret(self, path):
        """Credentials come from a file that the unit names."""
        assert values(path, "EnvironmentFile") == ["-/etc/sleeper/environment"]
        assert values(path, "Environment") == ["SLEEPER_INSTANCE=/data/demo"]

    @each_unit
    def test_gives_jobs_back_before_systemd_kills(self, path):
        """The service alone gets SIGTERM, and has longer than `sleeper` takes to end."""
        assert values(path, "KillMode") == ["mixed"]
        assert int(values(path, "TimeoutStopSec")[0]) > 60


def command_of(name: str, changes: dict[str, str]) -> list[str]:
    """Return the command of a unit, with this machine's program and other arguments."""
    (line,) = values(ROOT / "deploy" / "systemd" / name, "ExecStart")
    words = [changes.get(word, word) for word in shlex.split(line)]
    assert words[0] == "/srv/sleeper/bin/sleeper"
    assert changes.keys() <= {*shlex.split(line)}
    return [str(SLEEPER), *words[1:]]


class TestCommands:
    """What ExecStart says, run."""

    @pytest.fixture
    def instance(self, tmp_path):
        """An instance in a folder, and the variables that the unit sets."""
        folder = tmp_path / "demo"
        subprocess.run([SLEEPER, "init", folder], check=True, capture_output=True)
        return {**os.environ, "SLEEPER_INSTANCE": str(folder)}

    def test_serve_answers_about_its_health_until_sigterm(self, instance, tmp_path):
        """It logs JSON, answers /healthz, and ends with 0."""
        address = f"127.0.0.1:{free_port()}"
        command = command_of("sleeper-serve.service", {"127.0.0.1:9464": address})

        lines = started(command, instance, tmp_path, f"http://{address}/healthz", "200")

        assert all(json.loads(line)["level"] for line in lines)

    def test_server_answers_requests_with_a_token_alone(self, instance, tmp_path):
        """Without a token it answers 401."""
        address = f"127.0.0.1:{free_port()}"
        tokens = str(tmp_path / "tokens.json")
        add = [SLEEPER, "server", "token", "add", "reader", "--role", "read", "--tokens", tokens]
        subprocess.run(add, check=True, capture_output=True)
        changes = {"127.0.0.1:8750": address, "/var/lib/sleeper/tokens.json": tokens}
        command = command_of("sleeper-server.service", changes)

        lines = started(command, instance, tmp_path, f"http://{address}/sleeper/tables", "401")

        assert any("serving at" in line for line in lines)

    def test_worker_runs_jobs_of_its_kind(self, instance, tmp_path):
        """`sleeper-worker@ingest` is a worker for ingest jobs."""
        command = command_of("sleeper-worker@.service", {"%i": "ingest"})

        done = subprocess.run(
            [*command, "--until-empty"],
            env=instance,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

        assert done.returncode == 0, done.stderr


def started(command, environment, folder, url, status):
    """Start a service, wait for an answer with a status, end it by SIGTERM; return its log."""
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stderr=log)
        try:
            becomes_true(lambda: answers(url) or process.poll() is not None)
            found = status_of(url)
            process.send_signal(signal.SIGTERM)
            code = process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        lines = log.read().splitlines()
    assert (found, code) == (status, 0), "\n".join(lines)
    return lines


def status_of(url):
    """Return the status of an answer."""
    opener = build_opener(ProxyHandler({}))
    opener.addheaders = [("Accept", "application/json")]
    try:
        with opener.open(url, timeout=PATIENCE_S) as reply:
            return str(reply.status)
    except OSError as error:
        return str(getattr(error, "code", error))
