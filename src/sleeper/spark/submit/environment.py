"""Sleeper's Python packages as clusters take them: an archive, the entry script, the catalog's jar.

The archive holds wheels for the cluster's kind of machine, so it can be made anywhere, and a
`bin/python` that starts the machine's own Python with them. An archive of a virtual environment
would hold a link to the Python it was made with, which must then lie in the same place there.
Spark and pyspark are not in it: they are the cluster's own.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import IO

import sleeper
from sleeper.errors import BadRequest, SubmissionFailed
from sleeper.spark.catalog.sessions import catalog_jar
from sleeper.spark.submit.request import ARCHIVE, ENTRY

PYTHON_VERSION = "3.11"
"""The Python of clusters, where nothing else is said; releases of EMR with Spark 4 have it."""

# Amazon Linux 2023 has glibc 2.34; wheels for an older one run there too.
_GLIBC_MINORS = range(34, 16, -1)
_MACHINES = {"x86_64": "x86_64", "arm64": "aarch64"}
_DISTRIBUTION = "sleeper-store"
_SPARKS_OWN = "pandas"
"""Without it Spark's Python hands no rows over, as Arrow neither; no cluster is sure to have it."""
_BYTECODE = "__pycache__"
_COMPRESSION = 3  # wheels hardly get smaller by more

_STARTER = """\
#!/bin/sh
# The Python of this machine, with the packages beside this file.
here=$(cd "$(dirname "$0")/.." && pwd)
PYTHONPATH="$here/lib${{PYTHONPATH:+:$PYTHONPATH}}"
export PYTHONPATH
if ! command -v python{python} >/dev/null; then
    echo "sleeper: these packages are for Python {python}, which is not on $(hostname)" >&2
    exit 127
fi
exec python{python} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What was made.

    Attributes:
        archive: The packages.
        entry: The script that a driver runs.
        jar: The jar of Spark's catalog, for sessions of users.
        size_bytes: Of the archive.
    """

    archive: Path
    entry: Path
    jar: Path
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What an environment has of Sleeper's own.

    Attributes:
        packages: The folders of its code: `sleeper`, and that by which Spark finds the data source.
        entry: The script that a driver runs.
        jar: The jar of Spark's catalog.
        release: The version of Sleeper, which its packages are to say of themselves: a driver
            compares it with that of the workers.
    """

    packages: tuple[Path, ...]
    entry: Path
    jar: Path
    release: str

    def digest(self, requirements: Sequence[str], python: str = PYTHON_VERSION) -> str:
        """Return a name for what would be made of them: others, if any byte is another."""
        made_of = sha256("\n".join([self.release, python, *requirements]).encode())
        files = [path for each in self.packages for path in _code(each)]
        for path in [*files, self.entry, self.jar]:
            made_of.update(f"\n{path.name} {path.stat().st_size}\n".encode())
            made_of.update(path.read_bytes())
        return made_of.hexdigest()[:12]


def installed_sources() -> Sources:
    """Return those of the Sleeper that runs here."""
    code = Path(sleeper.__file__).parent
    return Sources(
        packages=(code, code.parent / "pyspark_sleeper"),
        entry=code / "interfaces" / "bulk_import_job.py",
        jar=Path(catalog_jar()),
        release=version(_DISTRIBUTION),
    )


def build_environment(
    folder: Path,
    sources: Sources,
    *,
    requirements: Sequence[str],
    python: str = PYTHON_VERSION,
    architecture: str = "x86_64",
) -> Environment:
    """Write `environment.tar.gz`, `sleeper_bulk_import.py` and the jar into a folder.

    The same packages give the same archive, byte for byte.

    Args:
        folder: Where to; made if it is not there.
        sources: What it has of Sleeper's own.
        requirements: What Sleeper needs, as pip names it.
        python: The cluster's version of Python.
        architecture: The cluster's processors: x86_64 or arm64.

    Raises:
        BadRequest: the architecture is not known.
        SubmissionFailed: pip found no wheel for such a machine.
    """
    if architecture not in _MACHINES:
        raise BadRequest(f"{architecture!r} is no architecture: say {' or '.join(_MACHINES)}")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as scratch:
        root = Path(scratch) / "environment"
        library = root / "lib"
        library.mkdir(parents=True)
        if requirements:
            _install(library, requirements, python, _MACHINES[architecture])
        no_bytecode = shutil.ignore_patterns(_BYTECODE)
        for package in sources.packages:
            shutil.copytree(package, library / package.name, ignore=no_bytecode)
        information = library / f"{_DISTRIBUTION.replace('-', '_')}-{sources.release}.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: {_DISTRIBUTION}\nVersion: {sources.release}\n"
        )
        starter = root / "bin" / "python"
        starter.parent.mkdir()
        starter.write_text(_STARTER.format(python=python))
        starter.chmod(0o755)
        packed = Path(scratch) / ARCHIVE
        _pack(root, packed)
        archive = packed.replace(folder / ARCHIVE)
    return Environment(
        archive=archive,
        entry=Path(shutil.copyfile(sources.entry, folder / ENTRY)),
        jar=Path(shutil.copyfile(sources.jar, folder / sources.jar.name)),
        size_bytes=archive.stat().st_size,
    )


def sleeper_requirements(extras: Iterable[str] = ("objectstore",)) -> list[str]:
    """Return what the installed Sleeper needs, in the versions that are installed here, and pandas.

    That may be missing here, as Spark alone asks for it: then pip chooses its version.

    Raises:
        BadRequest: Sleeper runs from its sources without being installed, has no such extra, or
            an extra's packages are missing here.
    """
    asked_for = [*extras]
    wanted = {f"extra == '{extra}'" for extra in asked_for}
    try:
        known = metadata(_DISTRIBUTION).get_all("Provides-Extra") or []
        if unknown := [extra for extra in asked_for if extra not in known]:
            raise BadRequest(f"no extra {unknown[0]!r}; there are {', '.join(sorted(known))}")
        declared = requires(_DISTRIBUTION) or []
        pairs = [text.replace('"', "'").partition(";")[::2] for text in declared]
        names = [
            asked.split(">")[0].strip()
            for asked, marker in pairs
            if not marker.strip() or marker.strip() in wanted
        ]
        return [*(f"{name}=={version(name)}" for name in names), *_for_spark(pairs)]
    except PackageNotFoundError as error:
        raise BadRequest(
            f"{error.name} is not installed here, so its version for the cluster is not known; "
            "install it by pip first"
        ) from None


def _for_spark(pairs: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield pandas in the version that is installed here, or else as our extra of it says."""
    for asked, marker in pairs:
        if marker.strip() == f"extra == '{_SPARKS_OWN}'":
            try:
                yield f"{_SPARKS_OWN}=={version(_SPARKS_OWN)}"
            except PackageNotFoundError:
                yield asked.strip()


def _code(package: Path) -> list[Path]:
    """Return the files of a package, in order, but for compiled modules."""
    return sorted(
        path for path in package.rglob("*") if path.is_file() and _BYTECODE not in path.parts
    )


def _install(library: Path, requirements: Sequence[str], python: str, machine: str) -> None:
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in _GLIBC_MINORS]
    command = [
        *(sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"),
        *("--no-compile", "--only-binary=:all:", "--implementation", "cp"),
        *("--python-version", python, "--target", str(library)),
        *(part for platform in platforms for part in ("--platform", platform)),
        *("--platform", f"manylinux2014_{machine}"),
        *requirements,
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - pip
    if done.returncode:
        raise SubmissionFailed(
            f"pip could not fetch packages for Python {python} on {machine}: {done.stderr.strip()}"
        )


def _pack(root: Path, packed: Path) -> None:
    """Pack a folder's content, in order and without times or owners."""
    with (
        packed.open("wb") as file,
        _timeless_gzip(file) as body,
        tarfile.open(fileobj=body, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(root.rglob("*")):
            tar.add(path, str(path.relative_to(root)), recursive=False, filter=_anonymous)


@contextmanager
def _timeless_gzip(file: IO[bytes]) -> Iterator[IO[bytes]]:
    with gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0) as body:
        yield body  # type: ignore[misc]


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
