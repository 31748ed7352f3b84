"""A table whose state store takes few changes at once: what is planned fits, the rest is refused."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import CommitTooLarge
from sleeper.model.files import ClaimOwner, FileReference
from sleeper.state.transactions.files import AddFiles, Claim, ClaimFiles
from sleeper.tables import state_stores
from sleeper.tables.push_down import push_down_references
from tests.unit.state.memory_revisions import MemoryRevisions

SCHEMA = pa.schema([("n", pa.int64()), ("v", pa.string())])
CHANGES_MAX = 12
INPUTS_MAX = 4
"""Two changes for each input, and three."""


@pytest.fixture
def revisions():
    """The states by table."""
    return defaultdict(lambda: MemoryRevisions(changes_max=CHANGES_MAX))


@pytest.fixture
def instance(monkeypatch, revisions):
    openers = {
        "TransactionLogStateStore": lambda place: state_stores._of_revisions(
            place, revisions[place.state_id]
        )
    }
    monkeypatch.setattr(state_stores, "_OPENERS", openers)
    return sleeper.create_instance("memory://")


def numbers(instance, **more):
    properties = {
        "sleeper.table.compaction.files.batch.size": 100,
        "sleeper.table.partition.splitting.threshold": 2,
        **more,
    }
    return instance.create_table("numbers", SCHEMA, row_keys=["n"], properties=properties)


def rows(*keys):
    return [{"n": key, "v": f"v{key}"} for key in keys]


def keys_of(table):
    return [row["n"] for row in table.query().to_pylist()]


def changes_of(revisions, table):
    """Commits by this table's store so far."""
    return revisions[table.table_id].newest.state.number


def test_jobs_have_as_many_inputs_as_can_be_replaced_and_say_so(instance, revisions):
    """Given 10 files, then jobs of 4, claimed in groups, until one file is left."""
    table = numbers(instance)
    for key in range(10):
        table.ingest(rows(key))

    plan = table.plan_compaction(all_files=True)
    summary = table.compact(all_files=True)

    assert [len(job.inputs) for job in plan.jobs] == [INPUTS_MAX, INPUTS_MAX, 2]
    assert "state store replaces at most 4 files at once" in plan.leaves[0].reason
    assert summary.failed == ()
    assert keys_of(table) == [*range(10)]
    assert len(table.state().references()) == 1
    assert table.collect_garbage(force=True).deleted
    assert table.state().files.file_count == 1


def test_references_to_many_leaves_are_moved_down_in_steps(instance):
    """Given 16 leaves below a file, then each gets its reference, and the counts add up."""
    table = numbers(instance)
    table.ingest(rows(*range(64)))
    for _ in range(4):
        table.split_partitions()
    table.compact()
    opened = table._current()
    tree = opened.store.state().tree
    leaves = {leaf.partition_id for leaf in tree.leaves()}
    high = FileReference(
        filename="data/partition_x/high.parquet", partition_id=tree.root_id, row_count=67
    )
    opened.store.commit(AddFiles(references=(high,)))

    moved = push_down_references(opened)

    references = opened.store.state().files.references_to(high.filename)
    assert len(leaves) >= 16
    assert {each.partition_id for each in references} == leaves
    assert sum(each.row_count for each in references) == 67
    assert moved.moved > 1


def test_claims_of_more_files_than_fit_are_released(instance, revisions):
    """They were made when the store took more."""
    table = numbers(instance)
    for key in range(14):
        table.ingest(rows(key))
    names = tuple(ref.filename for ref in table.state().references())
    states = revisions[table.table_id]
    states.changes_max = None
    claim = Claim(
        job_id="large", partition_id=table.state().references()[0].partition_id, filenames=names
    )
    owner = ClaimOwner(host="h", pid=1, worker_id="w")
    table._current().store.commit(ClaimFiles(assignments=(claim,), owner=owner))
    states.changes_max = CHANGES_MAX

    released = table.release_claims()

    assert len(released.claims) == 1
    assert table.claims() == ()
    assert [each.job_id for each in table.state().references()] == 14 * [None]


def test_leaves_with_too_many_files_are_not_merged_and_say_why(instance):
    """A compaction makes them small enough."""
    table = numbers(instance)
    table.ingest(rows(1, 2, 3, 4))
    table.split_partitions()
    for key in (1, 2, 3, 4):
        table.ingest(rows(key))
    table.set_properties({"sleeper.table.partition.splitting.threshold": 1_000})

    [refused] = table.merge_partitions(rows_below=1_000)
    table.compact(all_files=True)
    [merged] = table.merge_partitions(rows_below=1_000)

    assert "more than the table's state store moves at once: compact them" in refused.reason
    assert merged.reason is None


def test_a_new_table_has_more_leaves_than_a_commit_may_make(instance):
    """Its first state is written in parts, as nobody can see it before the index has the table."""
    table = instance.create_table("wide", SCHEMA, row_keys=["n"], split_points=[*range(20)])

    assert len([*table.state().tree.leaves()]) == 21
    assert len(table._current().store.refresh().schemas) == 1
    assert table.ingest(rows(3)).transaction == 2
    assert keys_of(table) == [3]


def test_what_is_too_large_is_refused_with_what_to_do(instance):
    """An ingest into many leaves, and the removal of many files."""
    points = [*range(1, 6)]
    table = instance.create_table(
        "leaves",
        SCHEMA,
        row_keys=["n"],
        split_points=points,
        properties={"sleeper.table.ingest.file.writing.strategy": "one_file_per_leaf"},
    )

    with pytest.raises(CommitTooLarge, match=r"AddFiles at once.*a file for each leaf"):
        table.ingest(rows(0, 1, 2, 3, 4, 5, 6, 7) * 2, job_id="wide")
    assert [*table._current().files.listing("data/")] == []

    few = numbers(instance)
    for key in range(10):
        few.ingest(rows(key))
    for points in (None, [5]):
        with pytest.raises(CommitTooLarge, match="Delete the table and create it again"):
            few.reinitialise(split_points=points) if points else few.reinitialise()
    assert keys_of(few) == [*range(10)]
