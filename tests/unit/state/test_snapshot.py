"""States as Parquet files, and back."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import CommitRefused, DataDamaged, FormatTooNew
from sleeper.model.files import ClaimOwner
from sleeper.model.tables import StateMove
from sleeper.state import snapshot
from sleeper.state.snapshot import snapshot_parts, state_from_parts
from sleeper.state.table_state import CommittedJob, TableState
from sleeper.state.transactions.files import AddFiles, Claim, ClaimFiles
from sleeper.state.transactions.moves import MoveState
from sleeper.state.transactions.partitions import InitialisePartitions
from tests.unit.state.any_transactions import schemas, transactions, trees
from tests.unit.state.small_tables import (
    LATER,
    MUCH_LATER,
    SCHEMA,
    after,
    contents,
    part,
    ref,
    two_leaves,
)

JOB = CommittedJob(job_id="job-1", keep_until=MUCH_LATER, rows_read=9, rows_written=8)


@pytest.fixture
def table():
    """Two leaves, a shared file, a claimed one, one that waits, and a job."""
    files = AddFiles(
        references=(part("a", "L"), part("a", "R"), ref("b", "L", job_id="c-1")),
        unreferenced=("c",),
        job=JOB,
    )
    return after(two_leaves(), files, at=LATER)


def read_back(table, schema=SCHEMA):
    parts = snapshot_parts(table, schema)
    return state_from_parts(table.number, parts.__getitem__, schema)


class TestSnapshot:
    """What is written, and what comes back."""

    def test_holds_the_whole_state(self, table):
        """References, waiting files, partitions and jobs, with their times."""
        assert contents(read_back(table)) == contents(table)

    def test_holds_who_claims_files(self, table):
        """The owner of a job, and the times of its claim."""
        claim = ClaimFiles(
            assignments=(Claim(job_id="c-2", partition_id="L", filenames=("a",)),),
            owner=ClaimOwner(host="here", pid=7, worker_id="w-1"),
        )
        claimed = after(table, claim, at=MUCH_LATER)

        assert read_back(claimed).claims == claimed.claims
        assert claimed.claims["c-2"].since == MUCH_LATER

    def test_holds_the_last_move_to_another_store(self, table):
        """A store reads from it whether it may still commit."""
        move = StateMove("S3StateStore", table.number + 1, "5a")

        moved = read_back(after(table, MoveState(move=move)))

        assert moved.moved == move

    def test_holds_the_state_before_any_transaction(self):
        """No partitions, no files, no jobs."""
        assert contents(read_back(TableState.empty())) == contents(TableState.empty())

    def test_names_its_parts_in_the_order_of_writing(self, table):
        """The last one makes a snapshot count, and it is the largest."""
        assert list(snapshot_parts(table, SCHEMA)) == [
            "jobs.parquet",
            "partitions.parquet",
            "files.parquet",
        ]

    def test_is_ordinary_parquet(self, table):
        """Anybody can open it, with any Parquet reader."""
        files = pq.read_table(pa.BufferReader(snapshot_parts(table, SCHEMA)["files.parquet"]))

        assert files.column("filename").to_pylist() == ["c", "a", "b", "a"]

    @given(st.data(), schemas)
    def test_holds_whatever_transactions_make(self, data, schema):
        """Any tree over any key types, then any transactions that are accepted."""
        tree = data.draw(trees(schema))
        table = after(
            TableState.empty(), InitialisePartitions(partitions=tuple(tree.partitions.values()))
        )
        for transaction in data.draw(st.lists(transactions(schema), max_size=4)):
            try:
                table = after(table, transaction)
            except CommitRefused:
                continue

        assert contents(read_back(table, schema)) == contents(table)


def test_names_of_files_are_decoded_once(table, monkeypatch):
    """Those of a million files are 104 MB: twice would be too much."""
    parts = snapshot_parts(table, SCHEMA)
    decoded = []
    column = snapshot._Columns.column
    monkeypatch.setattr(
        snapshot._Columns,
        "column",
        lambda columns, name: decoded.append(name) or column(columns, name),
    )

    state_from_parts(table.number, parts.__getitem__, SCHEMA)

    assert decoded.count("filename") == 1


class TestDamage:
    """Reading what `snapshot_parts` did not write."""

    @pytest.mark.parametrize("part_name", ["jobs.parquet", "partitions.parquet", "files.parquet"])
    @pytest.mark.parametrize(
        "damage",
        [lambda body: b"", lambda body: body[:-9], lambda body: b"no Parquet file at all"],
        ids=["empty", "cut off", "something else"],
    )
    def test_a_damaged_part_is_named(self, table, part_name, damage):
        """Whichever part it is."""
        parts = snapshot_parts(table, SCHEMA)
        parts[part_name] = damage(parts[part_name])

        with pytest.raises(DataDamaged, match=f"'{part_name}' of snapshot 3"):
            state_from_parts(3, parts.__getitem__, SCHEMA)

    @given(st.data())
    def test_a_changed_byte_never_goes_unnoticed_in_the_data(self, data):
        """With one byte of a page changed, the state is the same or the part is damaged."""
        table = after(two_leaves(), AddFiles(references=(part("a", "L"), ref("b", "R")), job=JOB))
        parts = snapshot_parts(table, SCHEMA)
        name = data.draw(st.sampled_from(sorted(parts)))
        body = bytearray(parts[name])
        footer_size = int.from_bytes(body[-8:-4], "little")
        place = data.draw(st.integers(0, len(body) - footer_size - 9))
        body[place] ^= data.draw(st.integers(1, 255))
        parts[name] = bytes(body)

        try:
            read = contents(state_from_parts(table.number, parts.__getitem__, SCHEMA))
        except DataDamaged as error:
            read = str(error)

        assert read == contents(table) or f"{name!r} of snapshot 3" in read

    def test_a_part_that_would_fill_the_memory_is_damage(self, table):
        """A kilobyte of Parquet can hold a gigabyte of zeros; its footer says so."""
        parts = snapshot_parts(table, SCHEMA)
        files = pq.read_table(pa.BufferReader(parts["files.parquet"]))
        bomb = pa.array(["0" * (80 << 20)], pa.large_string())
        sink = pa.BufferOutputStream()
        pq.write_table(
            pa.table({"filename": bomb}).replace_schema_metadata(files.schema.metadata),
            sink,
            compression="zstd",
            use_dictionary=False,
            write_statistics=False,
        )
        parts["files.parquet"] = sink.getvalue().to_pybytes()
        assert len(parts["files.parquet"]) < 80 << 10

        with pytest.raises(DataDamaged, match="would become 83,8"):
            state_from_parts(table.number, parts.__getitem__, SCHEMA)

    def test_a_name_outside_the_table_is_damage(self, table):
        """What a snapshot names is read and deleted, as what the log names."""
        outside = after(table, AddFiles(references=(ref("../../etc/passwd", "L"),)))
        parts = snapshot_parts(outside, SCHEMA)

        with pytest.raises(DataDamaged, match="outside the table"):
            state_from_parts(outside.number, parts.__getitem__, SCHEMA)

    def test_a_part_of_another_snapshot_is_damage(self, table):
        """Parts are only good together, under their own number."""
        other = snapshot_parts(replace(table, number=9), SCHEMA)

        with pytest.raises(DataDamaged, match="written for transaction 9"):
            state_from_parts(3, other.__getitem__, SCHEMA)

    def test_a_newer_format_asks_for_an_upgrade(self, table):
        """It is not damaged; this Sleeper is old."""
        parts = snapshot_parts(table, SCHEMA)
        jobs = pq.read_table(pa.BufferReader(parts["jobs.parquet"]))
        newer = pa.BufferOutputStream()
        metadata = {**jobs.schema.metadata, b"sleeper.format": b"3"}
        pq.write_table(jobs.replace_schema_metadata(metadata), newer)
        parts["jobs.parquet"] = newer.getvalue().to_pybytes()

        with pytest.raises(FormatTooNew, match=r"'jobs\.parquet' of snapshot 3 has format 3"):
            state_from_parts(3, parts.__getitem__, SCHEMA)
