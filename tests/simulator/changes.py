"""What the parties of a simulated world change: rows are deleted and replaced, columns altered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from sleeper.errors import BadRequest, TableAlreadyExists
from sleeper.tables.table import Table
from tests.simulator.parties import (
    ADDED,
    KEYS,
    NAMES,
    STRATEGIES,
    STRATEGY,
    Process,
    ingest,
)
from tests.simulator.stand_in_engine import REGIONS_MAX
from tests.simulator.truth import Alteration, Deletion, Purging

PROPERTY_CHANGES = (
    (STRATEGY, STRATEGIES),
    ("sleeper.table.compaction.files.batch.size", ("2", "3", "12")),
)

Meets = Callable[[Mapping[str, Any]], bool]

# ---------------------------------------------------------------- rows


def delete_for_ever(process: Process) -> None:
    """Delete and replace rows, now and then."""
    while True:
        verb = process.draw.choice(
            ["delete", verb_of_format_2(process, "delete"), "delete many", "delete where", "upsert"]
        )
        if verb == "upsert":
            ingest(process, None, "upsert")
        else:
            process.do(verb, lambda table: CHANGES[verb](process, table))  # noqa: B023
        rest_for(process, 5, 30)


def purge_for_ever(process: Process) -> None:
    """Purge keys, again and again: it takes many calls."""
    while True:
        verb = verb_of_format_2(process, "purge")
        process.do(verb, lambda table: CHANGES[verb](process, table))  # noqa: B023
        rest_for(process, 1, 10)


def verb_of_format_2(process: Process, verb: str) -> str:
    """The verb, or `upgrade` where the table refuses it."""
    return verb if process.truth.versions[-1].format == 2 else "upgrade"


def delete(process: Process, table: Table) -> None:
    """Delete few keys or a range: one entry says so."""
    draw = process.draw
    low, *more = sorted(draw.sample(KEYS, draw.randrange(2, 4)))
    way = draw.random()
    if way < 0.4:
        _delete(process, table, lambda row: row["k"] == low, key=low)
    elif way < 0.7:
        _delete(process, table, lambda row: row["k"] in (low, *more), keys=[*more, low])
    else:
        region = {"k": (low, more[0])}
        _delete(process, table, lambda row: low <= row["k"] < more[0], range=region)


def delete_many(process: Process, table: Table) -> None:
    """Delete more keys than readers leave out: they are written out of their leaves."""
    draw = process.draw
    keys = draw.sample(KEYS, REGIONS_MAX + draw.randrange(1, 4))
    _delete(process, table, lambda row: row["k"] in keys, keys=keys)


def delete_where(process: Process, table: Table) -> None:
    """Delete the rows that meet a condition, on any columns."""
    where, meets = condition(process.draw, table)
    _delete(process, table, meets, where=where)


def _delete(process: Process, table: Table, meets: Meets, **asked: Any) -> None:
    truth = process.truth
    deletion = Deletion(truth.new_label("deletion"), meets=meets, after=truth.number)
    result = process.change(
        deletion, table, lambda table: table.delete(**asked, reason=deletion.label)
    )
    truth.deleted(deletion, result)
    gone = truth.gone_between(result.transaction - 1, result.transaction) if deletion.number else 0
    process.shared.ends["rows deleted" if result.rows is None else "rows written out"] += gone


def purge(process: Process, table: Table) -> None:
    """Purge few keys, and look for them in all that is stored when it says that none is left."""
    shared, truth, draw = process.shared, process.truth, process.draw
    if not shared.open_purges:
        shared.open_purges.append(tuple(sorted(draw.sample(KEYS, draw.randrange(1, 4)))))
    keys = shared.open_purges[0]  # whoever goes on gives the same
    purging = Purging(truth.new_label("purge"), keys=keys)
    truth.begin_purge()
    try:
        proof = process.change(purging, table, lambda table: table.purge(keys=[*keys]))
    finally:
        truth.end_purge()
    shared.ends["rows purged"] += proof.counts.get("rowsRemoved", 0)
    if not proof.finished:
        shared.ends["purges with findings"] += 1
        return
    shared.ends["purges finished"] += 1
    if keys in shared.open_purges:
        shared.open_purges.remove(keys)
    stored = shared.objects.under(table.table_id)
    truth.check_purged(
        purging,
        proof.versions_before,
        ((each.key, each.modified, stored.read(each.key)) for each in stored.listing("data/")),
        (
            (int(each.key[-25:-5]), stored.read(each.key))
            for each in stored.listing("statestore/transactions/")
        ),
    )


def condition(draw: Any, table: Table) -> tuple[str, Meets]:
    """A condition in SQL, and the same in Python, where what is null meets none."""
    added = [field.name for field in table.schema.values[1:]]
    way, low, place = draw.random(), draw.choice(KEYS), draw.randrange(4)
    if way < 0.2:
        return f"n = {place}", lambda row: row["n"] == place
    if way < 0.4:
        return f"k >= {low} AND n < 2 -- some", lambda row: row["k"] >= low and row["n"] < 2
    if way < 0.6 or not added:
        return "attempt LIKE 'job-_/%'", lambda row: row["attempt"][:6].endswith("/")
    name = draw.choice(added)
    if way < 0.8:
        return f"{name} IS NULL OR k = {low}", lambda row: row[name] is None or row["k"] == low
    return f"{name} <> '' AND n > 0", lambda row: row[name] is not None and row["n"] > 0


# ---------------------------------------------------------------- admin


def change_for_ever(process: Process) -> None:
    """Change the table, its columns above all, now and then."""
    while True:
        alters = verb_of_format_2(process, "alter")
        verb = process.draw.choice([alters, alters, "alter", "rename", "set"])
        process.do(verb, lambda table: CHANGES[verb](process, table))  # noqa: B023
        rest_for(process, 5, 40)


def rest_for(process: Process, least: int, most: int) -> None:
    process.life.party.rests_until = process.life.world.steps + process.draw.randrange(least, most)


def rename(process: Process, table: Table) -> None:
    with suppress(TableAlreadyExists):
        table.rename(process.draw.choice(NAMES))


def set_property(process: Process, table: Table) -> None:
    name, values = process.draw.choice(PROPERTY_CHANGES)
    table.set_properties({name: process.draw.choice(values)})


def upgrade(process: Process, table: Table) -> None:
    result = table.upgrade()
    assert process.truth.versions[result.transaction].format == result.format == 2


def alter(process: Process, table: Table) -> None:
    """Add, drop or rename a column, or put another one of the same name in its place."""
    draw, truth = process.draw, process.truth
    alteration = Alteration(truth.new_label("alteration"))
    here = [each.name for each in table.schema.values[1:]]
    free = [name for name in ADDED if name not in here]
    way = draw.random()
    if here and (way < 0.4 or not free):
        alteration.drop = (draw.choice(here),)
        free = [*alteration.drop] if way < 0.2 else []
    elif here and way < 0.6:
        alteration.rename = {draw.choice(here): draw.choice(free)}
        free = []
    is_nullable = draw.random() < 0.6
    if free:
        default = alteration.label if not is_nullable or draw.random() < 0.5 else None
        alteration.add = {draw.choice(free): default}
    asked = {
        "add": [pa.field(name, pa.string(), is_nullable) for name in alteration.add],
        "defaults": {name: each for name, each in alteration.add.items() if each is not None},
        "drop": alteration.drop,
        "rename": alteration.rename,
    }
    result = process.change(
        alteration,
        table,
        lambda table: table.alter(**asked),
        denies=lambda error: isinstance(error, BadRequest),  # after others it may have been made
    )
    truth.altered(alteration, result)


CHANGES: dict[str, Callable[[Process, Table], None]] = {
    "rename": rename,
    "set": set_property,
    "alter": alter,
    "upgrade": upgrade,
    "delete": delete,
    "delete many": delete_many,
    "delete where": delete_where,
    "purge": purge,
}
