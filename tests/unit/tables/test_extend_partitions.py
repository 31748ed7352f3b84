"""Extending the partition tree before a bulk import, alone and in a race (rule BLK-10)."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pyarrow as pa
import pytest

from sleeper.engine.inputs.key_sample import KeySample
from sleeper.errors import (
    CommitContended,
    InputUnreadable,
    InsufficientData,
    PartitionSplitRefused,
    SplitAttemptsExceeded,
    StorageFailed,
)
from sleeper.model.partitions import split_points_of
from sleeper.tables.extend_partitions import ExtendSettings, extend_partitions
from tests.any_order.faults import Fault, Faults, FaultyObjects
from tests.unit.tables.small_tables import PAIRS, small_table, store_of


class Sampling:
    """An input with these values of `a`, each row a sample of `stands_for`; counts the calls."""

    def __init__(self, values=range(1000), stands_for=1):
        self.calls = 0
        self._values = list(values)
        self._stands_for = stands_for

    def __call__(self) -> KeySample:
        self.calls += 1
        rows = pa.table(
            {
                "a": pa.array(self._values, pa.int64()),
                "b": pa.array(["x"] * len(self._values), pa.string()),
            }
        )
        return KeySample(rows, rows.num_rows * self._stands_for)


class Overtaken:
    """A state store before whose commits it is somebody else's turn."""

    def __init__(self, store, *turns):
        self._store = store
        self._turns = list(turns)

    def __getattr__(self, name):
        return getattr(self._store, name)

    def commit(self, transaction):
        if self._turns:
            self._turns.pop(0)()
        return self._store.commit(transaction)


def extend(table, min_leaves, sample=None, *, store=None, attempts=3, min_rows=1, required=True):
    settings = ExtendSettings(
        min_leaves=min_leaves,
        required=required,
        attempts=attempts,
        min_rows=min_rows,
        min_distribution_percent=10,
    )
    return extend_partitions(
        Sampling() if sample is None else sample,
        PAIRS,
        settings,
        store=store or table.store,
        new_id=table.new_id,
    )


def elsewhere(table):
    """The same table, as another process has it."""
    return replace(table, store=store_of(table.objects, table.record.table_id, table.new_id))


def points(table):
    """The tree's split points, as a process of its own sees them."""
    return split_points_of(table.store.refresh().tree)


def contended():
    raise CommitContended("others were faster 10 times")


class TestAlone:
    """Nobody else changes the tree."""

    def test_leaves_are_split_in_one_commit(self):
        """BLK-10: four leaves of equal size, one transaction."""
        table = small_table()
        before = table.store.refresh().number

        result = extend(table, 4)

        assert points(table) == [250, 500, 750]
        assert (result.leaves_before, result.leaves_after, result.attempts) == (1, 4, 1)
        assert result.transaction == table.store.refresh().number == before + 1

    def test_as_many_leaves_as_the_keys_allow_may_do(self):
        """Three keys are two leaves where nine would be good; one key changes nothing."""
        some, one = small_table(), small_table()
        before = one.store.refresh().number

        result = extend(some, 9, Sampling([1, 2, 3]), required=False)
        none = extend(one, 9, Sampling([1, 1, 1]), required=False)

        assert points(some) == [2]
        assert (result.leaves_after, result.attempts) == (2, 1)
        assert (none.leaves_after, none.attempts, none.transaction) == (1, 0, before)

    def test_a_table_with_leaves_enough_is_left_alone(self):
        """BLK-10: no sample is taken, nothing is committed."""
        table = small_table([10, 20])
        before = table.store.refresh().number
        sample = Sampling()

        result = extend(table, 3, sample)

        assert sample.calls == 0
        assert (result.leaves_before, result.leaves_after, result.attempts) == (3, 3, 0)
        assert result.transaction == table.store.refresh().number == before

    def test_the_newest_tree_counts(self):
        """Leaves that another process made are seen, though this one has an older state."""
        table = small_table()
        table.store.refresh()
        elsewhere(table).split("root", 10)

        assert extend(table, 2).attempts == 0

    def test_files_stay_where_they_are(self):
        """A split never moves rows (PRT-13): what is in the table can be read as before."""
        table = small_table()
        table.ingest([(n, "x") for n in range(10)])

        extend(table, 4, Sampling(range(10)))

        assert [ref.partition_id for ref in table.store.refresh().references()] == ["root"]

    def test_too_little_data_changes_nothing(self):
        """BLK-10: the import is refused before any row is read."""
        table = small_table()
        before = table.store.refresh().number

        with pytest.raises(InsufficientData, match="Unable to reach more than 3 "):
            extend(table, 5, Sampling(range(4)))

        assert table.store.refresh().number == before

    def test_min_rows_is_compared_with_rows_of_the_input(self):
        """Not with rows of the sample: 100 of 10 each are 1,000 rows."""
        table = small_table()

        with pytest.raises(InsufficientData):
            extend(table, 2, Sampling(range(100)), min_rows=1000)
        assert (
            extend(table, 2, Sampling(range(100), stands_for=10), min_rows=1000).leaves_after == 2
        )

    def test_an_input_that_cannot_be_sampled(self):
        """What is wrong with the input reaches the caller as it is; nothing is committed."""
        table = small_table()

        def damaged():
            raise InputUnreadable("file.parquet is damaged")

        with pytest.raises(InputUnreadable):
            extend(table, 2, damaged)
        assert points(table) == []


class TestInARace:
    """Others split leaves, or commit something else, at the same time."""

    def test_a_leaf_that_was_split_meanwhile_is_planned_anew(self):
        """BLK-10: a refused split is no failure. The sample is taken once."""
        table = small_table()
        sample = Sampling()
        store = Overtaken(table.store, lambda: elsewhere(table).split("root", 300))

        result = extend(table, 4, sample, store=store)

        assert points(table) == [300, 475, 650]
        assert (result.leaves_before, result.leaves_after, result.attempts) == (1, 4, 2)
        assert sample.calls == 1

    def test_others_may_make_all_the_leaves(self):
        """Then there is nothing left to do."""
        table = small_table()
        store = Overtaken(table.store, lambda: extend(elsewhere(table), 8))

        result = extend(table, 4, store=store)

        assert (result.leaves_before, result.leaves_after, result.attempts) == (1, 8, 1)

    def test_a_commit_that_others_overtook_is_tried_again(self):
        """A store that lost every race is asked once more, from fresh state."""
        table = small_table()

        result = extend(table, 4, store=Overtaken(table.store, contended))

        assert (result.leaves_after, result.attempts) == (4, 2)

    def test_other_commits_do_not_matter(self):
        """Only splits of the same leaves do: the store takes care of all else."""
        table = small_table()
        store = Overtaken(table.store, lambda: elsewhere(table).ingest([(1, "x")]))

        assert extend(table, 4, store=store).attempts == 1

    def test_after_so_many_attempts_it_gives_up(self):
        """BLK-10: with the numbers, and as an error that says to try again."""
        table = small_table()
        turns = [
            lambda: elsewhere(table).split("root", 500),
            lambda: elsewhere(table).split("root-high", 700),
        ]

        with pytest.raises(SplitAttemptsExceeded, match="8 leaves: other writers") as refused:
            extend(table, 8, store=Overtaken(table.store, *turns), attempts=2)

        error = refused.value
        assert (error.min_leaves, error.leaves, error.attempts) == (8, 3, 2)
        assert error.retryable
        assert isinstance(error, CommitContended)
        assert isinstance(error.__cause__, PartitionSplitRefused)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
        assert points(table) == [500, 700]

    def test_the_last_attempt_counts_too(self):
        """Three attempts are three commits: the third may succeed."""
        table = small_table()

        result = extend(table, 4, store=Overtaken(table.store, contended, contended), attempts=3)

        assert (result.leaves_after, result.attempts) == (4, 3)
        with pytest.raises(SplitAttemptsExceeded):
            extend(table, 8, store=Overtaken(table.store, *[contended] * 3), attempts=3)


class TestTrouble:
    """Storage fails at some call."""

    @pytest.mark.parametrize("call", range(5))
    def test_it_may_be_run_again_whatever_happened(self, call):
        """A lost reply or a refusal leaves a tree that was extended wholly, or not at all."""
        table = small_table()
        objects = FaultyObjects(table.objects, Faults((Fault(call, "lost"),)))
        store = store_of(objects, table.record.table_id, table.new_id)

        try:
            extend(table, 4, store=store)
        except StorageFailed:
            assert points(table) == []

        assert extend(table, 4).leaves_after == 4
        assert points(table) == [250, 500, 750]
