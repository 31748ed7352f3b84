"""Spark's settings: their names, and what values each takes.

`spark_settings.csv` has those of every Spark from 4.0 on that was looked at. It is written by
`tools/spark_settings.py`, which asks Spark itself. A name that is not there is passed on, because a
newer Spark or a library may know it, unless it differs from a known one in a single character.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal, cast

from sleeper.model.known_properties.given import one_slip_away

Kind = Literal["boolean", "whole", "decimal", "size", "time", "choice", "text", "family"]

PREFIX: Final = "spark."
INSTANCES: Final = "spark.executor.instances"
DYNAMIC: Final = "spark.dynamicAllocation."
"""What the settings begin with that let executors come and go with the work."""

_TABLE: Final = Path(__file__).with_name("spark_settings.csv")
_SIZE = re.compile(r"(-?\d+)(b|[kmgtp]b?)?", re.IGNORECASE)
_TIME = re.compile(r"(-?\d+)(us|ms|s|min|m|h|d)?", re.IGNORECASE)
_WHOLE = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_MIB: Final = {"b": 2**-20, "k": 2**-10, "m": 1, "g": 2**10, "t": 2**20, "p": 2**30}
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_EXAMPLES: Final[Mapping[Kind, str]] = {
    "whole": "a whole number",
    "decimal": "a number",
    "size": "a size, such as 6g",
    "time": "a time, such as 60s",
}
# What Spark's jars do not name as such. Any name may follow those that end in a dot.
_FAMILIES: Final = (
    "spark.emr-serverless.driverEnv.",
    "spark.executorEnv.",
    "spark.hadoop.",
    "spark.sql.catalog.",
)


@dataclass(frozen=True, slots=True)
class SparkSetting:
    """A setting of Spark.

    Attributes:
        name: Its name. That of a family ends in a dot: any name may follow.
        kind: What its values are.
        least: The least number it takes; None where it takes any, or no number.
        choices: All values that a setting of the kind "choice" has.
    """

    name: str
    kind: Kind
    least: int | None = None
    choices: tuple[str, ...] = ()

    def failure(self, text: str) -> str | None:
        """Return why this cannot be the value, to complete "NAME is VALUE, but it must be"."""
        value = text.strip()
        match self.kind:
            case "text" | "family":
                return None
            case "boolean":
                return None if value.lower() in ("true", "false") else "true or false"
            case "choice":
                known = [each.lower() for each in self.choices]
                return None if value.lower() in known else f"one of {', '.join(self.choices)}"
        number = _number(self.kind, value)
        if number is not None and (self.least is None or number >= self.least):
            return None
        wanted = _EXAMPLES[self.kind]
        return wanted if number is None or self.least is None else f"{wanted}, {self.least} or more"


_OF_SERVERLESS: Final = tuple(
    each
    for role in ("driver", "executor")
    for each in (
        SparkSetting(f"spark.emr-serverless.{role}.disk", "size"),
        SparkSetting(
            f"spark.emr-serverless.{role}.disk.type",
            "choice",
            choices=("standard", "shuffle_optimized"),
        ),
    )
)


def setting_failures(conf: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each setting that Spark would refuse, or ignore without a word, with the reason.

    Args:
        conf: Settings by name.
    """
    known = known_settings()
    for name, text in conf.items():
        setting = known.get(name)
        if setting is not None:
            if wanted := setting.failure(str(text)):
                yield name, f"is {text!r}, but it must be {wanted}"
        elif not name.startswith(PREFIX):
            yield name, f"is no setting of Spark: their names begin with {PREFIX}"
        elif not name.startswith(_families()) and (near := one_slip_away(name, known)):
            yield name, f"is no setting of Spark; did you mean {near}?"


def unknown_settings(names: Iterable[str]) -> list[str]:
    """Return the names that no Spark is known to have: they are passed on, and may do nothing."""
    known, families = known_settings(), _families()
    return [name for name in names if name not in known and not name.startswith(families)]


@cache
def known_settings() -> Mapping[str, SparkSetting]:
    """Return all settings that are known, by name."""
    with _TABLE.open(newline="") as file:
        rows = [
            SparkSetting(
                row["name"],
                cast(Kind, row["kind"]),
                int(row["least"]) if row["least"] else None,
                tuple(row["choices"].split("|")) if row["choices"] else (),
            )
            for row in csv.DictReader(file)
        ]
    return {each.name: each for each in (*rows, *_OF_SERVERLESS)}


@cache
def _families() -> tuple[str, ...]:
    named = [each.name for each in known_settings().values() if each.kind == "family"]
    return (*named, *_FAMILIES)


def mib_of(text: str) -> float:
    """Return a size in MiB, as Spark reads one: `6g`, `512m`, `1024` (MiB).

    Raises:
        ValueError: it is none.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no size, such as 6g")
    return int(found[1]) * _MIB[(found[2] or "m")[0].lower()]


def seconds_of(text: str) -> float:
    """Return a time in seconds, as Spark reads one: `60s`, `2min`, `800` (seconds).

    Raises:
        ValueError: it is none.
    """
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no time, such as 60s")
    return int(found[1]) * _SECONDS[(found[2] or "s").lower()]


def whole_of(conf: Mapping[str, str], name: str) -> int | None:
    """Return the whole number that a setting is; None where it is not set, or is none."""
    try:
        return int(conf[name])
    except (KeyError, ValueError):
        return None


def is_true(conf: Mapping[str, str], name: str) -> bool:
    """Return whether a setting is true."""
    return conf.get(name, "").strip().lower() == "true"


def _number(kind: Kind, value: str) -> float | None:
    """Return the number of a value, without its unit; None where it is none of its kind."""
    pattern = {"whole": _WHOLE, "decimal": _DECIMAL, "size": _SIZE, "time": _TIME}[kind]
    found = pattern.fullmatch(value)
    if found is None:
        return None
    return float(found[1] if kind in ("size", "time") else found[0])
