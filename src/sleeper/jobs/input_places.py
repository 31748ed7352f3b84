"""The places from which jobs may read files: prefixes of URLs, and folders of this machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from sleeper.engine.inputs.input_files import find_files
from sleeper.errors import InputNotFound, UrlInvalid

_SCHEMES = {"s3a": "s3", "s3n": "s3"}
"""Other names of one scheme."""


@dataclass(frozen=True, slots=True)
class InputPlaces:
    """Places from which jobs may read, with everything below them.

    Attributes:
        places: URLs such as `s3://bucket/folder`, and folders of this machine.
    """

    places: tuple[str, ...]

    def refusals(self, paths: Iterable[str]) -> list[str]:
        """Return why paths outside are refused; nothing is looked at there."""
        shown = ", ".join(self.places) or "none"
        return [
            f"{path!r:.500} is outside of the places from which jobs may read ({shown:.500}); "
            "whoever runs the instance may add it to sleeper.jobs.input.places"
            for path in paths
            if not self._has(path)
        ]

    def _has(self, path: str) -> bool:
        try:
            url = _plain_url(path)
            if url is None:
                return self._has_all_below(_local(path))
        except (OSError, ValueError):  # such as a name that is too long
            return False
        places = (_plain_url(place) for place in self.places)
        return any(place and _is_below(url, place) for place in places)

    def _has_all_below(self, path: Path) -> bool:
        """Return whether a file, or all files of a folder, are in one of the folders.

        Links are followed first, so one that leads outside is outside.
        """
        folders = [_local(place).resolve() for place in self.places if _plain_url(place) is None]

        def is_inside(file: str | Path) -> bool:
            return any(Path(file).resolve().is_relative_to(folder) for folder in folders)

        if not path.is_absolute() or not is_inside(path):
            return False
        try:
            return all(map(is_inside, find_files([path])))
        except (InputNotFound, UrlInvalid):
            return True  # there is none: it is missing, and not refused


def places_of(places: Sequence[str] | None) -> InputPlaces | None:
    """Return the places of a property; None for any place."""
    return None if places is None else InputPlaces(tuple(places))


def _plain_url(path: str) -> str | None:
    """Return the URL of a path with the plain name of its scheme; None for one of this machine.

    Raises:
        ValueError: it goes upwards, so nobody can tell where it leads.
    """
    scheme, separator, rest = path.partition("://")
    if not separator or scheme.lower() == "file":
        return None
    if {".", ".."} & {*unquote(rest).replace("\\", "/").split("/")}:
        raise ValueError(f"{path!r} goes upwards")
    return f"{_SCHEMES.get(scheme.lower(), scheme.lower())}://{rest}"


def _is_below(url: str, place: str) -> bool:
    return url.rstrip("/") == place.rstrip("/") or url.startswith(f"{place.rstrip('/')}/")


def _local(path: str) -> Path:
    """Return a path of this machine, from one or from a file URL."""
    scheme, separator, rest = path.partition(":")
    if separator and scheme.lower() == "file":
        return Path(unquote(rest.removeprefix("//")))
    return Path(path)
