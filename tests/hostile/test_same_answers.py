"""One question, asked in Python, by REST, from the command line and as SQL, has one answer."""

from __future__ import annotations

import random
from itertools import chain

import pyarrow as pa
import pytest

import sleeper
from sleeper.interfaces.rest.app import make_app
from tests.soak import FIRST_SEED, tries
from tests.unit.interfaces.command_line import rows_of
from tests.unit.interfaces.command_line import sleeper as command
from tests.unit.interfaces.rest.running_server import running_server

SCHEMA = pa.schema([("name", pa.string()), ("n", pa.int64()), ("x", pa.float64())])
NAMES = ["", "a", "ab", "abc", "b", "ba", "é", "\u00e9a", "z\U0010ffff", "%", "a_", "A"]


def asked(draw: random.Random, versions: int) -> dict[str, object]:
    """Arguments of a query."""
    given: dict[str, object] = {}
    kind = draw.choice(["all", "prefix", "range", "key"])
    if kind == "prefix":
        given["prefix"] = {"name": draw.choice(NAMES)}
    elif kind == "range":
        low, high = sorted(draw.sample(NAMES, 2))
        given["range"] = {"name": (low, draw.choice([high, None]))}
    elif kind == "key":
        given["key"] = draw.choice(NAMES)
    if draw.random() < 0.5:
        given["where"] = draw.choice(["n > 3", "x < 0.5 OR n = 2", "n % 2 = 0 AND x IS NOT NULL"])
    if draw.random() < 0.5:
        given["limit"] = draw.choice([0, 1, 7, 10_000])
    if draw.random() < 0.6:
        given["as_of"] = draw.randrange(1, versions + 1)
    return given


def options(given: dict[str, object]) -> list[str]:
    """The same for the command line."""
    found: list[str] = ["--all"] if not {"key", "range", "prefix", "limit"} & {*given} else []
    for name, value in given.items():
        if name == "key":
            found += ["--key", f"name={value}"]
        elif name == "prefix":
            found += ["--prefix", f"name={value['name']}"]
        elif name == "range":
            low, high = value["name"]
            found += ["--range", f"name={low},{'' if high is None else high}"]
        else:
            found += [f"--{name.replace('_', '-')}", str(value)]
    return found


def by_hand(rows: list[dict[str, object]], given: dict[str, object]) -> list[dict[str, object]]:
    """The rows that a query means, in key order."""
    checks = {
        "n > 3": lambda row: row["n"] > 3,
        "x < 0.5 OR n = 2": lambda row: (row["x"] is not None and row["x"] < 0.5) or row["n"] == 2,
        "n % 2 = 0 AND x IS NOT NULL": lambda row: row["n"] % 2 == 0 and row["x"] is not None,
    }
    start = given.get("prefix", {"name": ""})["name"]
    low, high = given.get("range", {"name": ("", None)})["name"]
    found = [
        row
        for row in sorted(rows, key=lambda row: (row["name"], row["n"]))
        if row["name"].startswith(start)
        and row["name"] >= low
        and (high is None or row["name"] < high)
        and ("key" not in given or row["name"] == given["key"])
        and ("where" not in given or checks[given["where"]](row))
    ]
    return found[: given.get("limit")]


@pytest.mark.soak
def test_every_way_gives_the_rows_that_are_meant(tmp_path, monkeypatch):
    """Versions, prefixes, ranges, keys, conditions and limits, alone and together."""
    # given a table with some versions, itself and by a server
    draw = random.Random(FIRST_SEED)
    monkeypatch.delenv("SLEEPER_TOKEN", raising=False)
    with sleeper.create_instance(tmp_path / "instance") as instance:
        table = instance.create_table("t", SCHEMA, row_keys=["name", "n"], split_points=["b"])
        batches, numbers = [], []
        for version in range(4):
            batch = [
                {"name": name, "n": 10 * version + n, "x": draw.choice([None, draw.random()])}
                for n, name in enumerate(draw.sample(NAMES, 6))
            ]
            numbers.append(table.ingest(batch).transaction)
            batches.append(batch)
        with (
            running_server(make_app(instance)) as url,
            sleeper.connect(url) as remote_instance,
        ):
            remote = remote_instance.table("t")
            for _ in range(tries(12, soak=2_000)):
                # when a question is asked by every way
                given = asked(draw, len(numbers))
                upto = given.get("as_of", len(numbers))
                if "as_of" in given:
                    given["as_of"] = numbers[upto - 1]
                right = by_hand([*chain(*batches[:upto])], given)
                places = (str(tmp_path / "instance"), url)
                shown = [
                    rows_of(command("query", "t", "--json", *options(given), "--instance", place))
                    for place in places
                ]

                # then all give the rows that are meant
                assert table.query(**given).to_pylist() == right, given
                assert remote.query(**given).to_pylist() == right, given
                assert shown == [right, right], given
                whole = {k: v for k, v in given.items() if k != "limit"}
                count = len(by_hand([*chain(*batches[:upto])], whole))
                assert (table.count(**whole), remote.count(**whole)) == (count, count), given
