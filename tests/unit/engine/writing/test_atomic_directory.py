"""A folder that appears at once, or not at all."""

from __future__ import annotations

import pytest

from sleeper.engine.writing.export import atomic_directory
from sleeper.errors import AlreadyExists, StorageFailed


def fill(folder, mark="m", name="file"):
    with atomic_directory(folder, mark) as unfinished:
        unfinished.mkdir(parents=True)
        (unfinished / name).touch()


def below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_appears_when_it_is_filled(tmp_path):
    """Until then it is hidden beside its place; what is hidden in it does not come along."""
    with atomic_directory(tmp_path / "new" / "out", "m") as unfinished:
        (unfinished / ".tmp").mkdir(parents=True)
        (unfinished / "file").touch()
        meanwhile = below(tmp_path)

    assert meanwhile[:2] == ["new", "new/.out.m.unfinished"]
    assert below(tmp_path) == ["new", "new/out", "new/out/file"]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_leaves_nothing_when_it_fails(tmp_path, failure):
    """Neither the hidden folder nor those that were made above it; others stay."""
    (tmp_path / "old").mkdir()

    with (
        pytest.raises(failure),
        atomic_directory(tmp_path / "old" / "a" / "b" / "out", "m") as folder,
    ):
        folder.mkdir(parents=True)
        raise failure

    assert below(tmp_path) == ["old"]


def test_may_replace_an_empty_folder(tmp_path):
    """Also by a link to it, which stays a link."""
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "out")

    fill(tmp_path / "link")

    assert (tmp_path / "link").is_symlink()
    assert below(tmp_path) == ["link", "out", "out/file"]


@pytest.mark.parametrize("there", ["full", "file", "link"])
def test_replaces_nothing_else(tmp_path, there):
    """A folder with something in it, and a file, are left alone before anything is written."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "full")
    before = below(tmp_path)

    with pytest.raises(AlreadyExists, match="is there already"):
        fill(tmp_path / there)

    assert below(tmp_path) == before


def test_does_not_replace_where_somebody_is(tmp_path, monkeypatch):
    """Who stands in a folder would go on standing in the old one."""
    monkeypatch.chdir(tmp_path)

    for here in (".", tmp_path):
        with pytest.raises(AlreadyExists, match="name a folder inside it"):
            fill(tmp_path / here)
    with pytest.raises(AlreadyExists, match="/ is there already"):
        fill(tmp_path.joinpath("/"))

    assert below(tmp_path) == []


def test_tells_when_others_were_faster(tmp_path):
    """Two may fill one folder side by side; the second finds it taken at the end."""
    with (
        pytest.raises(AlreadyExists, match="is there already"),
        atomic_directory(tmp_path / "out", "a") as first,
    ):
        first.mkdir()
        fill(tmp_path / "out", "b", name="second")

    assert below(tmp_path) == ["out", "out/second"]


def test_tells_what_the_system_says(tmp_path):
    """Such as that somebody has taken the hidden folder away."""
    with (
        pytest.raises(StorageFailed, match=r"cannot write .*out: No such file"),
        atomic_directory(tmp_path / "out", "m"),
    ):
        pass

    assert below(tmp_path) == []
