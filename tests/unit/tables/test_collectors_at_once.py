"""Collectors that forget the same files at once."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import FileNotTracked
from sleeper.state.transactions.files import AddFiles, DeleteFiles
from sleeper.tables.garbage import forget_files

SCHEMA = pa.schema([("id", pa.string())])


class Overtaken:
    """A store whose commits are each overtaken by another collector, of one file."""

    def __init__(self, store, files):
        self.store, self.files = store, list(files)
        self.state, self.refresh = store.state, store.refresh

    def commit(self, transaction):
        if self.files:
            self.store.commit(DeleteFiles(filenames=(self.files.pop(0),)))
        return self.store.commit(transaction)


def test_a_collector_that_is_overtaken_again_and_again_forgets_the_rest():
    """Given four files, and others that forget one of them before each of its first commits."""
    table = sleeper.connect("memory://").create_table("t", SCHEMA, row_keys=["id"])
    store = table._current().store
    names = [f"data/partition_root/{number}.parquet" for number in range(4)]
    store.commit(AddFiles(unreferenced=tuple(names)))

    number = forget_files(names, Overtaken(store, names[:3]))

    assert number == store.refresh().number
    assert not any(store.state().files.is_tracked(name) for name in names)


def test_a_refusal_that_is_no_race_is_raised():
    """Where nobody has forgotten any of the files, there is no use in another try."""
    table = sleeper.connect("memory://").create_table("t", SCHEMA, row_keys=["id"])
    store = table._current().store
    names = ["data/partition_root/0.parquet"]
    store.commit(AddFiles(unreferenced=tuple(names)))
    refusal = FileNotTracked("no")

    class Refusing(Overtaken):
        def commit(self, transaction):
            raise refusal

    with pytest.raises(FileNotTracked) as raised:
        forget_files(names, Refusing(store, []))

    assert raised.value is refusal
