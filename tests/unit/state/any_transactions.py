"""Hypothesis strategies for every transaction, over any schema: sensible or not."""

from __future__ import annotations

from datetime import UTC, date, datetime

from hypothesis import strategies as st

from sleeper.model.files import ClaimOwner, FileReference
from sleeper.model.keys import next_value
from sleeper.model.partitions import split_partition, tree_from_split_points
from sleeper.model.paths import may_be_data_file
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.model.tables import StateMove
from sleeper.state.table_state import FORMATS, CommittedJob
from sleeper.state.transactions.deletes import DeleteKeys
from sleeper.state.transactions.files import (
    AddFiles,
    Claim,
    ClaimFiles,
    ClearFiles,
    DeleteFiles,
    ReferencePush,
    ReleaseClaims,
    RenewClaims,
    ReplaceFiles,
    SplitFileReferences,
    SweepOrphans,
    UpsertFiles,
)
from sleeper.state.transactions.formats import SetFormat
from sleeper.state.transactions.moves import MoveState
from sleeper.state.transactions.partitions import (
    ExtendPartitionTree,
    InitialisePartitions,
    MergePartitions,
    SplitPartition,
)
from sleeper.state.transactions.schemas import SetSchema

KEY_VALUES = {
    Primitive.INT: st.integers(-(2**31) + 1, 2**31 - 1),
    Primitive.LONG: st.integers(-(2**63) + 1, 2**63 - 1),
    Primitive.STRING: st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5),
    Primitive.BYTES: st.binary(min_size=1, max_size=5),
    Primitive.DATE: st.dates(min_value=date(1, 1, 2)),
    Primitive.TIMESTAMP: st.datetimes(min_value=datetime(2, 1, 1), timezones=st.just(UTC)),
    Primitive.TIMESTAMP_NTZ: st.datetimes(min_value=datetime(2, 1, 1)),
}
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["a", "b", "root", "L", "R"]
)
FILES = NAMES.filter(may_be_data_file) | NAMES.filter(
    lambda name: name and not {"/", "\0"} & {*name}
).map(lambda name: f"data/partition_root/{name}.parquet")
TIMES = st.datetimes(max_value=datetime(9000, 1, 1), timezones=st.just(UTC))
MAYBE_TIMES = st.none() | TIMES
COUNTS = st.integers(0, 2**63 - 1)

schemas = st.lists(st.sampled_from(list(KEY_VALUES)), min_size=1, max_size=3).map(
    lambda kinds: Schema(row_keys=tuple(Field(f"k{n}", kind) for n, kind in enumerate(kinds)))
)
references = st.builds(
    FileReference,
    filename=FILES,
    partition_id=NAMES,
    row_count=COUNTS,
    row_count_estimated=st.booleans(),
    whole_file=st.booleans(),
    job_id=st.none() | NAMES,
    updated=MAYBE_TIMES,
    size_bytes=st.none() | COUNTS,
    schema_id=st.none() | st.integers(1, 2**31 - 1),
    first_key=st.none() | st.sampled_from(['[1,"a"]', '["\\n"]']),
    last_key=st.none() | st.just("[2]"),
    sequence=st.none() | COUNTS,
)
names = st.lists(NAMES, max_size=4).map(tuple)
files = st.lists(FILES, max_size=4).map(tuple)
jobs = st.builds(
    CommittedJob, job_id=NAMES, keep_until=TIMES, rows_read=COUNTS, rows_written=COUNTS
)


@st.composite
def additions(draw):
    added = draw(st.lists(references, max_size=4).map(tuple))
    taken = {each.filename for each in added}
    waiting = tuple(name for name in draw(files) if name not in taken)
    return AddFiles(
        references=added,
        unreferenced=waiting,
        job=draw(st.none() | jobs),
        written_since=draw(MAYBE_TIMES),
    )


@st.composite
def upserts(draw):
    added = draw(additions())
    names = sorted({each.filename for each in added.references})
    return UpsertFiles(
        references=added.references,
        unreferenced=added.unreferenced,
        job=added.job,
        written_since=added.written_since,
        without_old_rows=draw(st.frozensets(st.sampled_from(names))) if names else frozenset(),
    )


@st.composite
def replacements(draw):
    output = draw(references)
    inputs = [name for name in draw(files) if name != output.filename] or [output.filename + "x"]
    run = draw(st.none() | NAMES)
    return ReplaceFiles(
        job_id=draw(NAMES), inputs=tuple(inputs), output=output, task_id=run, run_id=run
    )


@st.composite
def pushes(draw):
    filename = draw(FILES)
    into = draw(st.lists(references, min_size=1, max_size=3))
    return ReferencePush(
        filename=filename,
        partition_id=draw(NAMES),
        into=tuple(
            FileReference(
                filename=filename, partition_id=each.partition_id, row_count=each.row_count
            )
            for each in into
        ),
    )


assignments = st.builds(Claim, job_id=NAMES, partition_id=NAMES, filenames=files)
owners = st.builds(ClaimOwner, host=NAMES, pid=st.integers(1, 2**22), worker_id=NAMES)
moves = st.builds(
    MoveState,
    move=st.builds(
        StateMove,
        class_name=NAMES,
        number=st.integers(1, 10**19 - 1),
        token=st.text("0123456789abcdef", min_size=1, max_size=32),
    ),
)
"""Not among `transactions`: a store takes no commit after one."""
file_transactions = st.one_of(
    additions(),
    upserts(),
    st.builds(
        DeleteKeys,
        references=st.lists(references, min_size=1, max_size=3).map(tuple),
        written_since=MAYBE_TIMES,
    ),
    st.builds(
        ClaimFiles,
        assignments=st.lists(assignments, max_size=3).map(tuple),
        owner=st.none() | owners,
    ),
    st.builds(RenewClaims, job_ids=names),
    st.builds(ReleaseClaims, claims=st.lists(assignments, max_size=3).map(tuple)),
    st.just(ClearFiles()),
    st.builds(SweepOrphans, before=TIMES),
    st.builds(DeleteFiles, filenames=files),
    replacements(),
    st.builds(MergePartitions, parent_id=NAMES, child_ids=names),
    st.builds(SplitFileReferences, pushes=st.lists(pushes(), max_size=3).map(tuple)),
)


@st.composite
def trees(draw, schema):
    kind = schema.row_keys[0].type
    points = sorted(draw(st.sets(KEY_VALUES[kind], max_size=5)))
    ids = iter(draw(st.lists(NAMES, min_size=11, max_size=11, unique=True)))
    return tree_from_split_points(schema, points, new_id=lambda: next(ids))


@st.composite
def partition_transactions(draw, schema):
    tree = draw(trees(schema))
    partitions = tuple(tree.partitions.values())
    split = _split(draw, tree, schema)
    return draw(
        st.sampled_from(
            [
                InitialisePartitions(partitions=partitions),
                InitialisePartitions(partitions=()),
                ExtendPartitionTree(updated=partitions[:1], new=partitions[1:]),
                *([split] if split else []),
            ]
        )
    )


def _split(draw, tree, schema):
    leaf = draw(st.sampled_from(list(tree.leaves())))
    dimension = draw(st.integers(0, len(schema.row_keys) - 1))
    cut = leaf.region.ranges[dimension]
    point = next_value(schema.row_keys[dimension].type, cut.min)
    if point is None or point not in cut:
        return None
    ids = iter(["lower", "upper"])
    parent, *children = split_partition(leaf, point, dimension=dimension, new_id=lambda: next(ids))
    return SplitPartition(parent=parent, children=tuple(children))


def transactions(schema):
    set_schema = st.builds(SetSchema, schema_id=st.integers(1, 3), schema=st.just(schema))
    set_format = st.builds(SetFormat, format=st.sampled_from(FORMATS))
    return file_transactions | partition_transactions(schema) | set_schema | set_format
