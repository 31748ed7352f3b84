"""The jar of the catalog is built from the sources beside it, and is in what users install."""

from __future__ import annotations

import tomllib
import zipfile
from pathlib import Path

import pytest

from sleeper.spark import catalog_jar
from tools import catalog_jar as builder

ROOT = Path(__file__).parents[2]


def test_the_jar_is_of_these_sources():
    """Its manifest has a digest of the sources: whoever changes them builds it anew."""
    assert Path(catalog_jar()).samefile(builder.JAR)
    assert builder.digest_of_jar(builder.JAR) == builder.digest_of_sources(), (
        "run: python tools/catalog_jar.py"
    )


@pytest.mark.every_version
def test_compiling_again_gives_the_same_classes():
    """With the jars of the oldest and of the newest Spark, where there is a JDK as it was."""
    if builder.javac_version() != builder.jar_javac_version(builder.JAR):
        pytest.skip("no JDK of the version that built the jar")

    with zipfile.ZipFile(builder.JAR) as jar:
        committed = {name: jar.read(name) for name in jar.namelist() if name != builder.MANIFEST}
        times = {entry.date_time for entry in jar.infolist()}

    assert builder.compiled() == committed
    assert times == {builder.LONG_AGO}


def test_a_changed_source_changes_the_digest(tmp_path, monkeypatch):
    """Content and name both count."""
    monkeypatch.setattr(builder, "SOURCES", tmp_path)
    digests = set()
    for name, text in (("A.java", "1"), ("A.java", "2"), ("B.java", "2")):
        for path in tmp_path.iterdir():
            path.unlink()
        (tmp_path / name).write_text(text)
        digests.add(builder.digest_of_sources())

    assert len(digests) == 3


def test_a_wheel_takes_every_file_of_the_package():
    """hatch leaves out what is ignored by git alone; the jar is not."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]

    assert build["targets"]["wheel"] == {"packages": ["src/sleeper", "src/pyspark_sleeper"]}
    assert ".jar" not in (ROOT / ".gitignore").read_text()
