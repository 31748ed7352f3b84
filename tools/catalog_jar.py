"""Builds the jar of Spark's catalog: src/sleeper/spark/catalog/sleeper-catalog.jar.

    python tools/catalog_jar.py            builds it
    python tools/catalog_jar.py --check    exits with 1 if it is not of these sources

Needs a JDK's `javac` and an installed pyspark, whose jars it compiles with; no Maven. The same
sources and the same version of javac give the same classes, with each Spark from 4.0 to 4.3.
The jar's manifest has a digest of the sources, which --check compares without a JDK.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

CATALOG = Path(__file__).parents[1] / "src" / "sleeper" / "spark" / "catalog"
SOURCES = CATALOG / "java"
JAR = CATALOG / "sleeper-catalog.jar"
MANIFEST = "META-INF/MANIFEST.MF"
DIGEST = "Sources-SHA-256"
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can have


def main() -> int:
    """Build the jar, or compare it. Return the exit code."""
    if sys.argv[1:] == ["--check"]:
        is_fresh = digest_of_jar(JAR) == digest_of_sources()
        print("the jar is of these sources" if is_fresh else "stale: python tools/catalog_jar.py")
        return 0 if is_fresh else 1
    write_jar(JAR, compiled())
    print(f"{JAR.relative_to(Path.cwd())}: {JAR.stat().st_size:,} bytes")
    return 0


def sources() -> list[Path]:
    """The files of Java, in order."""
    return sorted(SOURCES.rglob("*.java"))


def digest_of_sources() -> str:
    """A digest of the names and contents of all sources."""
    whole = hashlib.sha256()
    for path in sources():
        whole.update(f"{path.relative_to(SOURCES).as_posix()}\n".encode() + path.read_bytes())
    return whole.hexdigest()[:32]  # a line of a manifest has 72 bytes


def digest_of_jar(jar: Path) -> str | None:
    """The digest of the sources that a jar was built from."""
    with zipfile.ZipFile(jar) as file:
        found = re.search(rf"{DIGEST}: (\w+)", file.read(MANIFEST).decode())
    return found and found[1]


def javac_version() -> int | None:
    """The version of the JDK's compiler, as in 17; None if there is no JDK."""
    try:
        said = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r"javac (\d+)", said.stdout + said.stderr)
    return found and int(found[1])


def jar_javac_version(jar: Path) -> int:
    """The version of the compiler that built a jar."""
    with zipfile.ZipFile(jar) as file:
        return int(file.read(MANIFEST).decode().split("Build-Jdk-Spec: ")[1].split()[0])


def compiled() -> Mapping[str, bytes]:
    """The classes, by their names in the jar."""
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise SystemExit("pyspark is not installed: pip install 'sleeper-store[spark]'")
    jars = Path(pyspark.origin).parent / "jars"
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["--release", "17", "-g:none", "-nowarn", "-cp", f"{jars}/*", "-d", folder]
        command = ["javac", *arguments, *map(str, sources())]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        root = Path(folder)
        return {
            path.relative_to(root).as_posix(): path.read_bytes()
            for path in sorted(root.rglob("*.class"))
        }


def write_jar(jar: Path, classes: Mapping[str, bytes]) -> None:
    """Write a jar: the manifest, then the classes in order, without times."""
    manifest = (
        "Manifest-Version: 1.0\n"
        f"Build-Jdk-Spec: {javac_version()}\n"
        f"{DIGEST}: {digest_of_sources()}\n\n"
    )
    draft = jar.with_suffix(".draft")  # a JVM may have the jar open
    with zipfile.ZipFile(draft, "w") as file:
        for name, content in {MANIFEST: manifest.encode(), **classes}.items():
            entry = zipfile.ZipInfo(name, LONG_AGO)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            file.writestr(entry, content)
    draft.replace(jar)


if __name__ == "__main__":
    sys.exit(main())
