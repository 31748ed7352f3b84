"""Sleeper's packages for a cluster: an archive whose Python finds them wherever it is unpacked."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from sleeper.errors import BadRequest, SubmissionFailed
from sleeper.spark.submit import environment
from sleeper.spark.submit.environment import (
    Sources,
    build_environment,
    installed_sources,
    sleeper_requirements,
)

ROOT = Path(__file__).resolve().parents[3]
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def build(folder: Path, release="7.1", **changes):
    """An environment with a package of one line and a jar, and nothing else."""
    needed = {"requirements": [], "python": HERE, **changes}
    return build_environment(folder / "out", sources_in(folder, release), **needed)


def sources_in(folder: Path, release="7.1"):
    """A package of one line, with a compiled leftover, an entry script and a jar."""
    package = folder / "source" / "wheat"
    (package / "__pycache__").mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("GRAINS = 7\n")
    (package / "__pycache__" / "x.pyc").write_bytes(b"old")
    entry = folder / "entry_point.py"
    entry.write_text("import wheat; print(wheat.GRAINS)\n")
    jar = folder / "wheat.jar"
    jar.write_bytes(b"classes")
    return Sources(packages=(package,), entry=entry, jar=jar, release=release)


def run(python: Path, *arguments: str, **more):
    """Run the archive's Python."""
    return subprocess.run([python, *arguments], check=False, capture_output=True, text=True, **more)


class TestArchive:
    """What `sleeper spark-environment` makes."""

    def test_its_python_finds_its_packages(self, tmp_path):
        """Unpacked anywhere, called by a path that is relative, as clusters do it."""
        made = build(tmp_path)
        with tarfile.open(made.archive) as tar:
            tar.extractall(tmp_path / "work" / "environment", filter="data")

        done = run(Path("environment/bin/python"), str(made.entry), cwd=tmp_path / "work")

        assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr
        assert made.entry.name == "sleeper_bulk_import.py"
        assert made.size_bytes == made.archive.stat().st_size

    def test_paths_that_are_set_already_stay(self, tmp_path):
        """Spark hands pyspark to its workers by PYTHONPATH."""
        made = build(tmp_path)
        with tarfile.open(made.archive) as tar:
            tar.extractall(tmp_path / "e", filter="data")
        show = "import os; print(os.environ['PYTHONPATH'])"

        done = run(
            tmp_path / "e/bin/python",
            *("-c", show),
            env={
                "PYTHONPATH": "pyspark.zip",
                "PATH": str(Path(sys.executable).parent) + ":/usr/bin:/bin",
            },
        )

        assert done.stdout == f"{tmp_path / 'e'}/lib:pyspark.zip\n", done.stderr

    def test_its_packages_say_which_version_they_are(self, tmp_path):
        """A driver that reads by the data source compares it with that of the workers."""
        made = build(tmp_path, release="8.2")
        with tarfile.open(made.archive) as tar:
            tar.extractall(tmp_path / "e", filter="data")
        show = "from importlib.metadata import version; print(version('sleeper-store'))"
        bare = {"PATH": str(Path(sys.executable).parent) + ":/usr/bin:/bin"}

        done = run(tmp_path / "e/bin/python", "-c", show, env=bare)

        assert done.stdout == "8.2\n", done.stderr

    def test_another_python_is_told(self, tmp_path):
        """Wheels are for one version; the message names it and the machine."""
        made = build(tmp_path, python="3.99")
        with tarfile.open(made.archive) as tar:
            tar.extractall(tmp_path / "e", filter="data")

        done = run(tmp_path / "e/bin/python", "-c", "pass")

        assert done.returncode == 127
        assert "for Python 3.99, which is not on" in done.stderr

    def test_the_same_packages_give_the_same_archive(self, tmp_path):
        """Byte for byte, whoever made it and when; without compiled leftovers."""
        first = build(tmp_path / "a").archive.read_bytes()
        second = build(tmp_path / "b").archive

        assert second.read_bytes() == first
        with tarfile.open(second) as tar:
            assert sorted(tar.getnames()) == [
                *("bin", "bin/python", "lib", "lib/sleeper_store-7.1.dist-info"),
                *("lib/sleeper_store-7.1.dist-info/METADATA", "lib/wheat", "lib/wheat/__init__.py"),
            ]

    def test_an_old_one_is_replaced(self, tmp_path):
        """And nothing but the three files is left in the folder."""
        build(tmp_path)
        build(tmp_path)

        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
            "environment.tar.gz",
            "sleeper_bulk_import.py",
            "wheat.jar",
        ]

    def test_packages_that_cannot_be_had_are_told(self, tmp_path):
        """With what pip said; the folder stays empty."""
        with pytest.raises(SubmissionFailed, match=r"pip could not fetch packages.*x86_64"):
            build(tmp_path, requirements=["no such requirement"])

        assert list((tmp_path / "out").iterdir()) == []

    def test_an_unknown_architecture_is_refused(self, tmp_path):
        """The message says which are known."""
        with pytest.raises(BadRequest, match="x86_64 or arm64"):
            build(tmp_path, architecture="sparc")


class TestDigest:
    """By what an environment is known, before it is made."""

    def test_is_another_if_anything_in_it_is_another(self, tmp_path):
        """A byte of the code, the release, a requirement or the Python, but not who compiled it."""
        sources = sources_in(tmp_path)
        before = sources.digest(["a==1"])
        (tmp_path / "source" / "wheat" / "__pycache__" / "x.pyc").write_bytes(b"new")
        assert sources.digest(["a==1"]) == before

        others = [
            sources.digest(["a==2"]),
            sources.digest(["a==1"], "3.12"),
            replace(sources, release="7.2").digest(["a==1"]),
        ]
        sources.jar.write_bytes(b"Classes")
        others.append(sources.digest(["a==1"]))
        (tmp_path / "source" / "wheat" / "more.py").write_text("")
        others.append(sources.digest(["a==1"]))

        assert len({before, *others}) == 6

    def test_the_sources_are_those_that_are_installed(self):
        """All files are there, and the entry script is the driver's."""
        sources = installed_sources()

        assert [each.name for each in sources.packages] == ["sleeper", "pyspark_sleeper"]
        assert sources.release == version("sleeper-store")
        assert "def main" in sources.entry.read_text()
        assert len(sources.digest([])) == 12


class TestRequirements:
    """What is put into it besides Sleeper itself."""

    def test_are_the_versions_that_are_installed_here(self):
        """All that Sleeper needs, the extras asked for, and what Spark asks for; never Spark."""
        try:
            asked = sleeper_requirements([])
        except BadRequest as error:
            pytest.skip(f"Sleeper is not installed: {error}")
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

        needed = sorted(item.split(">=")[0] for item in project["dependencies"])
        assert [each.split("==")[0] for each in asked] == [*needed, "pandas"]
        assert all("==" in each for each in asked)

    def test_pandas_is_among_them_also_where_it_is_missing(self, monkeypatch):
        """Given a machine that only deploys, then pip chooses one that our extra allows."""

        def without_pandas(name):
            if name == "pandas":
                raise PackageNotFoundError(name)
            return "7.5"

        monkeypatch.setattr(environment, "version", without_pandas)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

        asked = sleeper_requirements(["aws"])

        assert asked[-1:] == project["optional-dependencies"]["pandas"]
        assert "boto3==7.5" in asked

    def test_an_extra_that_there_is_not_is_refused(self):
        """The message has those that there are."""
        with pytest.raises(BadRequest, match="no extra 'awss'; there are aws, client"):
            sleeper_requirements(["objectstore", "awss"])

    def test_an_extra_that_is_missing_here_is_told(self, monkeypatch):
        """Its version for the cluster cannot be known."""

        def without_fastapi(name):
            if name == "fastapi":
                raise PackageNotFoundError(name)
            return version(name)

        monkeypatch.setattr(environment, "version", without_fastapi)

        with pytest.raises(BadRequest, match="fastapi is not installed here"):
            sleeper_requirements(["server"])
