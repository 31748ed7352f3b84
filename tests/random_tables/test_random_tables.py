"""Tables of any schema and processing, written and changed by chance, answer as a model does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sleeper.model.schema import DecimalType, ListType, MapType, Primitive
from sleeper.storage.local.folder import FolderObjects
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.objectstore.objects import at_once
from tests.random_tables.random_table import random_table
from tests.random_tables.random_values import KEY_KINDS, PLAIN_KINDS
from tests.soak import FIRST_SEED, tries

TABLES = tries(20, soak=5_000)
CHUNKS = 10
FIRST = FIRST_SEED + 68
"""The twenty tables from here on have keys and values of every type, as a test below says."""


def run(seed: int) -> None:
    """Make the table of a seed, change it, ask it, verify it, export it."""
    with TemporaryDirectory(prefix="random-table-") as folder, as_in_a_bucket(seed):
        table = random_table(seed, Path(folder))
        try:
            for _ in range(3):
                for _ in range(table.pick.randrange(1, 4)):
                    table.step()
                table.check()
            table.verify()
            table.check_export()
        except BaseException as error:
            error.add_note(f"seed {seed}: {table.schema}, {table.properties}; {table.log}")
            raise


@contextmanager
def as_in_a_bucket(seed: int) -> Iterator[None]:
    """Let every third seed read as files in a bucket are read: ahead, and in threads."""
    with pytest.MonkeyPatch.context() as patch:
        if seed % 3 == 0:
            for adapter in (FolderObjects, MemoryObjects):
                patch.setattr(adapter, "is_remote", property(lambda _: True))
                patch.setattr(adapter, "beside", lambda _, work: at_once(work))
        yield


@pytest.mark.soak
@pytest.mark.parametrize("number", range(CHUNKS))
def test_answers_are_those_of_a_plain_model_whatever_the_table_and_what_became_of_it(number):
    """
    Every type of key and value, extremes and NaN; filters, aggregations and functions; ingests of
    all kinds, compactions, splits, merges, exports taken in again, handles opened anew.
    """
    size = TABLES // CHUNKS
    failures = {}
    for seed in range(FIRST + number * size, FIRST + (number + 1) * size):
        try:
            run(seed)
        except Exception as error:  # noqa: BLE001 - the others are to run as well
            failures[seed] = f"python -m tests.random_tables {seed}: {error!r}"

    print(f"{size} tables from seed {FIRST + number * size} on")  # noqa: T201
    assert failures == {}


def test_the_usual_tables_have_keys_and_values_of_every_type(tmp_path):
    """What no table has proves nothing."""
    tables = [random_table(seed, tmp_path / f"{seed}") for seed in range(FIRST, FIRST + TABLES)]

    keys, sorts, values = (
        {each.type for table in tables for each in getattr(table.schema, part)}
        for part in ("row_keys", "sort_keys", "values")
    )
    assert keys == sorts == {*KEY_KINDS}
    assert {each for each in values if isinstance(each, Primitive)} == {*PLAIN_KINDS}
    assert {ListType, MapType, DecimalType} <= {*map(type, values)}
