"""Adds the settings of the installed Spark to `src/sleeper/spark/submit/spark_settings.csv`.

    python tools/spark_settings.py

Run it with the pyspark of each version that clusters may have: the table has the settings of all of
them, and where versions differ in what they take, what either takes.

Spark itself is asked: each setting that its jars define is given some texts, and what it takes of
them is its kind and its least value. Names that occur in the jars and have no definition, such as
`spark.app.id`, are texts; those that end in a dot are families: any name may follow.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import pyspark
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.java_gateway import launch_gateway

TABLE: Final = Path(__file__).resolve().parents[1] / "src/sleeper/spark/submit/spark_settings.csv"
HEADER: Final = ("name", "kind", "least", "choices")

_NAME = re.compile(rb"(?<![A-Za-z0-9.])spark(?:\.[a-z][A-Za-z0-9-]*)+\.?(?![A-Za-z0-9-])")
_DEFINES: Final = (b"internal/config/ConfigBuilder", b"internal/config/ConfigEntry")
_CHOICES = re.compile(r"should be one of '?([^'\n]+?)'?(?:,? but was|\.|$)")
_MISMATCH = re.compile(r"should be a/an '(\w+)' value")
_KINDS: Final = {"int": "whole", "long": "whole", "double": "decimal"}
_NO_SETTINGS: Final = ("spark.connect.", "spark.sql.connect.", "spark.status.", "spark.test.")


@dataclass(frozen=True, slots=True)
class Row:
    """A setting: its name, its kind, its least value, and its choices, parted by bars."""

    name: str
    kind: str
    least: str = ""
    choices: str = ""


def main() -> int:
    """Add to the table, and say what it has; return the exit code."""
    known = {}
    if TABLE.exists():
        with TABLE.open(newline="") as file:
            known = {row["name"]: Row(**row) for row in csv.DictReader(file)}
    for row in installed_settings(known):
        known[row.name] = looser(known[row.name], row) if row.name in known else row
    with TABLE.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(HEADER)
        rows.writerows(astuple(known[name]) for name in sorted(known))
    print(f"{len(known)} settings, those of Spark {pyspark.__version__} among them, are in {TABLE}")
    return 0


def looser(one: Row, other: Row) -> Row:
    """Return what takes all that either of two versions takes."""
    if one == other or one.kind == "text":
        return one
    if one.kind != other.kind:
        return Row(one.name, "text")
    if one.kind == "choice":
        both = sorted({*one.choices.split("|"), *other.choices.split("|")})
        return Row(one.name, one.kind, choices="|".join(both))
    leasts = [row.least for row in (one, other)]
    return Row(one.name, one.kind, "" if "" in leasts else min(leasts))


def installed_settings(known: dict[str, Row]) -> Iterator[Row]:
    """Yield the settings of the installed Spark. Those of `known` are looked for too."""
    jars = sorted(Path(pyspark.__file__).with_name("jars").glob("spark-*.jar"))
    classes, names = definitions(jars)
    java = launch_gateway().jvm  # type: ignore[no-untyped-call]
    for each in classes:
        try:
            java.java.lang.Class.forName(each)
        except Py4JJavaError as error:
            print(f"{each} cannot be loaded: {error.java_exception}", file=sys.stderr)
    entries = java.org.apache.spark.internal.config.ConfigEntry
    defined: dict[str, Any] = {}
    for name in {*names, *known}:
        entry = entries.findEntry(name)
        if entry is not None:
            defined[name] = entry
    yield from (row_of(name, entry) for name, entry in defined.items())
    yield from undefined(names, {*defined})


def definitions(jars: list[Path]) -> tuple[list[str], set[str]]:
    """Return the classes that define settings, and all names of settings in the jars."""
    classes: list[str] = []
    names: set[str] = set()
    for jar in jars:
        with ZipFile(jar) as opened:
            for member in opened.namelist():
                if not member.endswith(".class"):
                    continue
                body = opened.read(member)
                names.update(found.decode() for found in _NAME.findall(body))
                if any(each in body for each in _DEFINES):
                    classes.append(member.removesuffix(".class").replace("/", "."))
    return classes, names


def undefined(names: set[str], defined: set[str]) -> Iterator[Row]:
    """Yield names beside those with a definition, and families of names."""
    families = {
        name
        for name in names
        if name.endswith(".") and name.count(".") > 1
        if not any(f"{each}.".startswith(name) for each in defined)
    }
    rooms = {name.split(".")[1] for name in defined} | {"app", "hadoop", "jars", "remote"}
    for name in names - defined:
        if name.split(".")[1] not in rooms or name.startswith(_NO_SETTINGS):
            continue
        if name in families:
            yield Row(name, "family")
        elif not name.endswith(".") and not name.startswith(tuple(families)):
            yield Row(name, "text")


def row_of(name: str, entry: Any) -> Row:
    """Return the kind of a setting, by what it takes."""
    if taken(entry, "abc") is None:
        return Row(name, "text")
    refusal = taken(entry, "abc") or ""
    if choices := _CHOICES.search(refusal):
        parts = choices[1].split(", ")
        if all(taken(entry, each) is None for each in parts):
            return Row(name, "choice", choices="|".join(sorted(parts)))
    least = next((each for each in ("-1", "0", "1") if taken(entry, each) is None), "")
    if least == "-1":
        least = ""
    if taken(entry, "true") is None:
        return Row(name, "boolean")
    if taken(entry, "1g") is None:
        return Row(name, "size", least)
    if taken(entry, "1s") is None:
        return Row(name, "time", least)
    if taken(entry, "1.5") is None or taken(entry, "0.5") is None:
        return Row(name, "decimal", "" if taken(entry, "-1") is None else "0")
    if taken(entry, "1") is None or taken(entry, "0") is None or taken(entry, "-1") is None:
        return Row(name, "whole", least)
    wanted = _MISMATCH.search(refusal)
    return Row(name, _KINDS.get(wanted[1], "text") if wanted else "text")


def taken(entry: Any, text: str) -> str | None:
    """Return why a setting does not take a text; None if it does."""
    try:
        entry.valueConverter().apply(text)
    except Py4JJavaError as error:
        return str(error.java_exception)
    except ValueError:  # it was taken, as a value that Python cannot read
        return None
    return None


if __name__ == "__main__":
    sys.exit(main())
