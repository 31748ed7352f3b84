"""An instance in a bucket: made, filled from here and from buckets, asked, and left alone."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.engine.inputs.input_files import read_row_groups
from sleeper.engine.inputs.sources import open_source
from sleeper.errors import (
    AlreadyExists,
    DataDamaged,
    InputNotFound,
    InputUnreadable,
    InstanceAlreadyExists,
    InstanceNotFound,
    StorageFailed,
    UrlInvalid,
)
from sleeper.tables.extend_partitions import estimate_split_points
from tests.contracts.fault_proxy import fault_proxy
from tests.contracts.s3_server import bucket, s3_credentials, s3_server

__all__ = ["bucket", "s3_credentials", "s3_server"]

SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("n", pa.int64(), nullable=False)])
ROWS = [{"id": key, "n": n} for n, key in enumerate("abcdefghijklmnopqrstuvwxyz")]
READER = """
import sleeper, sys
table = sleeper.connect(sys.argv[1]).table("letters")
print(table.query(key="q").to_pylist(), table.query(range={"id": ("x", None)}).to_pylist())
"""


@pytest.fixture
def endpoint(s3_server, s3_credentials, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return s3_server.endpoint


@pytest.fixture
def url(bucket, endpoint):
    return f"s3://{bucket}/some/instance"


@pytest.fixture
def table(url):
    """A table of two leaves, without rows."""
    instance = sleeper.connect(url, create=True)
    return instance.create_table("letters", SCHEMA, row_keys=["id"], split_points=["m"])


@pytest.fixture
def raw(s3_server, bucket):
    """The bucket itself, as other programs write to it."""
    return s3_server.objects(bucket)


def parquet(rows=ROWS, **options) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), sink, **options)
    return sink.getvalue()


def count_in(table: sleeper.Table) -> int:
    return table.query().to_arrow().num_rows


def ids_in(table: sleeper.Table) -> str:
    return "".join(row["id"] for row in table.query().to_pylist())


class TestInstance:
    """An instance in a bucket is like one in a folder."""

    def test_is_made_and_opened_by_its_url(self, url):
        """It takes its name from its folder; made twice it is there already."""
        made = sleeper.create_instance(url)

        assert made.instance_id == sleeper.connect(f"{url}/").instance_id == "instance"
        assert sleeper.connect(url.replace("s3://", "s3a://")).url == url
        with pytest.raises(InstanceAlreadyExists):
            sleeper.create_instance(url)

    def test_is_missing_until_it_is_made(self, url):
        """The message says how to make one."""
        with pytest.raises(InstanceNotFound, match=f"sleeper init {url}"):
            sleeper.connect(url)

    def test_needs_a_bucket(self, endpoint):
        """A bucket that does not exist is told as such, and is not made."""
        with pytest.raises(StorageFailed, match="'no-such-bucket' does not exist"):
            sleeper.connect("s3://no-such-bucket/instance", create=True)
        with pytest.raises(UrlInvalid):
            sleeper.connect("s3://")

    def test_has_one_folder_of_its_bucket(self, url, raw, table):
        """Everything it stores is below its URL, and a deleted table leaves nothing there."""
        table.ingest(ROWS)

        sleeper.connect(url).delete_table("letters")

        left = [info.key for info in raw.listing()]
        assert all(key.startswith("some/instance/") for key in left)
        assert not any(table.table_id in key for key in left)


class TestRows:
    """Rows in, rows out."""

    def test_come_back_by_key_and_by_range(self, table):
        """Through the look-up's own reader, and through DataFusion, in key order."""
        table.ingest(ROWS)

        assert table.query(key="q").to_pylist() == [{"id": "q", "n": 16}]
        assert table.query(key="missing").to_pylist() == []
        assert table.query(range={"id": ("k", "o")}).to_pylist() == ROWS[10:14]
        assert table.query(keys=["z", "a"], columns=["n"]).to_pylist() == [{"n": 0}, {"n": 25}]
        assert table.query().to_pylist() == ROWS

    def test_are_there_in_another_process(self, table, url):
        """A process that was told nothing but the URL and its environment."""
        table.ingest(ROWS)

        done = subprocess.run(
            [sys.executable, "-c", READER, url],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=False,
        )

        assert done.stdout.strip() == f"{ROWS[16:17]} {ROWS[23:]}", done.stderr

    def test_are_read_by_a_handle_from_another_process(self, table, monkeypatch):
        """The endpoint goes along with a pickled table; only credentials are found there."""
        table.ingest(ROWS)
        pickled = pickle.dumps(table)
        monkeypatch.delenv("AWS_ENDPOINT_URL")

        with multiprocessing.get_context("spawn").Pool(1) as pool:
            handed_over = pool.apply(pickle.loads, (pickled,))
            counted = pool.apply(count_in, (handed_over,))

        assert counted == 26

    def test_written_by_two_handles_are_all_kept(self, table, url):
        """Handles know nothing of each other; the bucket decides who comes first."""
        other = sleeper.connect(url).table("letters")

        for n in range(5):
            table.ingest([{"id": f"a{n}", "n": n}])
            other.ingest([{"id": f"b{n}", "n": n}])

        assert count_in(table) == count_in(other) == 10

    def test_of_files_larger_than_a_part_are_whole(self, table):
        """A file is sent in parts, and read by its ranges."""
        n = 1_200_000  # of noise, which is not compressed: more than 8 MiB
        ids = pa.array(range(n)).cast(pa.string())
        noise = pa.array(np.random.default_rng(7).integers(2**62, size=n))

        result = table.ingest(pa.table({"id": ids, "n": noise}))

        sizes = [info.size_bytes for info in table._context.objects.listing()]
        assert max(sizes) > 8 << 20
        assert result.rows_written == n
        assert table.query(key="77").to_pylist() == [{"id": "77", "n": noise[77].as_py()}]
        found = table.query(range={"id": ("9999", "99991")}).to_arrow()
        assert found["id"].to_pylist() == [
            "9999", "99990", *[f"99990{k}" for k in range(10)],
        ]  # fmt: skip

    def test_of_a_lost_file_are_missed(self, table, raw):
        """The message names the file by its URL."""
        table.ingest(ROWS)
        lost = [info.key for info in raw.listing() if info.key.endswith(".parquet")]
        raw.delete([key for key in lost if "/data/" in key])

        with pytest.raises(DataDamaged, match=r"data/partition_.*\.parquet"):
            table.query().to_arrow()


class TestExport:
    """Rows out, as files in a bucket."""

    def test_goes_to_a_bucket_and_comes_back(self, table, raw, bucket):
        """The marker of a running export is gone at the end; ingest passes over `_SUCCESS`."""
        table.ingest(ROWS)
        told = []

        result = table.export(
            f"s3://{bucket}/out/june", progress=lambda *counts: told.append(counts)
        )

        names = [info.key for info in raw.listing("out/")]
        assert names == ["out/june/_SUCCESS", "out/june/part-00000.parquet"]
        assert (result.rows, result.files, told) == (26, ("part-00000.parquet",), [(1, 1)])
        copy = sleeper.connect("memory://").create_table("copy", SCHEMA, row_keys=["id"])
        copy.ingest(f"s3://{bucket}/out/june")
        assert copy.query().to_pylist() == ROWS

    def test_may_come_from_a_table_elsewhere(self, raw, bucket, endpoint, tmp_path):
        """A table in a folder is exported to a bucket, and one in a bucket to a folder."""
        here = sleeper.connect(tmp_path / "instance", create=True)
        table = here.create_table("letters", SCHEMA, row_keys=["id"])
        table.ingest(ROWS)

        table.export(f"s3a://{bucket}/", columns=["n"], range={"id": ("b", "d")})

        found = pq.read_table(io.BytesIO(raw.read("part-00000.parquet")))
        assert found.to_pylist() == [{"n": 1}, {"n": 2}]

    def test_replaces_nothing(self, table, raw, bucket):
        """An object below the target is named; a name that only begins alike is another."""
        raw.put("out-of-the-way", b"")
        raw.put("out/mine", b"mine")

        with pytest.raises(AlreadyExists, match="out/mine is there already"):
            table.export(f"s3://{bucket}/out")
        table.export(f"s3://{bucket}/out-of-the-wa")

        assert [info.key for info in raw.listing("out/")] == ["out/mine"]

    def test_leaves_nothing_when_it_fails(self, table, raw, bucket):
        """Neither parts nor the marker; a bucket that there is not is told as such."""
        table.ingest(ROWS)
        lost = [info.key for info in raw.listing() if info.key.endswith(".parquet")]
        raw.delete([key for key in lost if "/data/" in key])

        with pytest.raises(DataDamaged):
            table.export(f"s3://{bucket}/out")
        with pytest.raises(StorageFailed, match="'no-such-bucket' does not exist"):
            table.export("s3://no-such-bucket/out")

        assert [*raw.listing("out")] == []


class TestInput:
    """Input files by URL."""

    def test_may_be_an_object_or_a_folder(self, table, raw, bucket):
        """Below a folder all `*.parquet` are taken, but those whose name is hidden."""
        raw.put("in/a.parquet", parquet(ROWS[:3]))
        raw.put("in/more/b c%20.parquet", parquet(ROWS[3:5]))
        raw.put("in/_temporary/c.parquet", b"not yet")
        raw.put("in/more/.hidden.parquet", b"not yet")
        raw.put("in/readme.txt", b"text")
        raw.put("in2.parquet", b"another")
        raw.put("single", parquet(ROWS[5:6]))

        table.ingest(f"s3://{bucket}/in")
        table.ingest(f"s3a://{bucket}/single")

        assert ids_in(table) == "abcdef"

    @pytest.mark.parametrize(
        ("path", "names"),
        [
            ("in/", ["in/a.parquet", "in/more/b c%20.parquet"]),
            ("in/a.parquet", ["in/a.parquet"]),
            ("in/*/b*", ["in/more/b c%20.parquet"]),
            ("text", ["text/a.csv"]),
        ],
    )
    def test_has_sizes_without_being_opened(self, url, table, raw, bucket, path, names):
        """Given a folder, an object or a pattern, then the listing tells the bytes of each file."""
        for number, name in enumerate(
            ["in/a.parquet", "in/more/b c%20.parquet", "in/_c.parquet", "text/a.csv"], start=1
        ):
            raw.put(name, b"x" * 100 * number)

        sizes = sleeper.connect(url).submitted_jobs.inputs.sizes(f"s3://{bucket}/{path}")

        assert sizes == {f"s3://{bucket}/{name}": len(raw.read(name) or b"") for name in names}

    def test_may_be_mixed_with_local_files(self, table, raw, bucket, tmp_path):
        """One list, one commit."""
        (tmp_path / "local.parquet").write_bytes(parquet(ROWS[:2]))
        raw.put("far.parquet", parquet(ROWS[2:4]))

        before = table.refresh()
        result = table.ingest([str(tmp_path), f"s3://{bucket}/far.parquet"])

        assert result.transaction == before + 1
        assert ids_in(table) == "abcd"

    def test_may_go_into_a_table_of_this_machine(self, raw, bucket, endpoint, tmp_path):
        """Where input is read from has nothing to do with where the table is."""
        raw.put("in/a.parquet", parquet())
        local = sleeper.connect(tmp_path, create=True)

        letters = local.create_table("letters", SCHEMA, row_keys=["id"])
        letters.ingest(f"s3://{bucket}/in/")

        assert count_in(letters) == 26

    def test_folders_are_whole_names(self, table, raw, bucket):
        """`in/a` takes neither `in/ab.parquet` nor `in/a.parquet`, and an empty mark is no file."""
        raw.put("in/ab.parquet", parquet())
        raw.put("in/a.parquet", parquet())
        raw.put("marked", b"")
        raw.put("marked/a.parquet", parquet(ROWS[:1]))

        with pytest.raises(InputNotFound, match=f"s3://{bucket}/in/a'"):
            table.ingest(f"s3://{bucket}/in/a")
        table.ingest(f"s3://{bucket}/marked")
        assert ids_in(table) == "a"

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ("s3://{bucket}/none.parquet", "there is no object 's3://.*/none.parquet'"),
            ("s3://no-such-bucket/a", "bucket 'no-such-bucket' does not exist"),
            ("s3://{bucket}/broken.parquet", "s3://.*/broken.parquet' cannot be read"),
            ("s3://{bucket}/empty.parquet", "s3://.*/empty.parquet' cannot be read"),
            ("ftp://host/a.parquet", "ftp://host/a.parquet"),
        ],
    )
    def test_that_cannot_be_read_is_named(self, table, raw, bucket, given, told):
        """By its URL, before any row is read."""
        raw.put("broken.parquet", b"not parquet at all")
        raw.put("empty.parquet", b"")

        with pytest.raises((InputNotFound, InputUnreadable, UrlInvalid), match=told):
            table.ingest(given.format(bucket=bucket))

        assert count_in(table) == 0

    def test_is_not_taken_twice(self, table, raw, bucket):
        """An object named by itself and by its folder would come with double rows."""
        raw.put("in/a.parquet", parquet())

        with pytest.raises(InputNotFound, match="given twice"):
            table.ingest([f"s3://{bucket}/in", f"s3a://{bucket}/in/a.parquet"])

    def test_that_is_replaced_meanwhile_is_refused(self, table, raw, bucket):
        """Pieces of two objects would make rows that never were."""
        many = [{"id": str(n), "n": n} for n in range(200_000)]
        raw.put("a.parquet", parquet(many, row_group_size=50_000))
        source = open_source(f"s3://{bucket}/a.parquet", SCHEMA, table._context.inputs).batches()
        next(source)

        raw.put("a.parquet", parquet(many[::-1], row_group_size=50_000))

        with pytest.raises(InputUnreadable, match="replaced while it was read"):
            list(source)

    def test_row_groups_are_read_by_other_processes(self, table, raw, bucket):
        """What tasks of a cluster do: they get a URL, places, and a reader that was pickled."""
        raw.put("a.parquet", parquet(row_group_size=10))
        remote = table._context.inputs
        source = open_source([f"s3://{bucket}/a.parquet"], SCHEMA, remote)
        groups = source.row_groups()

        copied = pickle.loads(pickle.dumps(remote))
        batches = read_row_groups(groups[1].path, [groups[1].index], ["id"], remote=copied)

        assert [group.row_count for group in groups] == [10, 10, 6]
        assert [(group.key_min, group.key_max) for group in groups][1] == ("k", "t")
        assert pa.Table.from_batches(batches)["id"].to_pylist() == list("klmnopqrst")

    def test_gives_split_points(self, table, raw, bucket):
        """Before there is a table, only the key column is read."""
        raw.put("in/a.parquet", parquet())

        points = estimate_split_points(
            f"s3://{bucket}/in", table.schema, 2, remote=table._context.inputs
        )

        assert points == ["n"]


class TestTrouble:
    """The store goes away."""

    @pytest.fixture
    def line(self, s3_server, monkeypatch, endpoint):
        with fault_proxy(s3_server.endpoint) as opened:
            monkeypatch.setenv("AWS_ENDPOINT_URL", opened.endpoint)
            yield opened

    def test_in_mid_ingest_leaves_the_table_as_it_was(self, line, table, url):
        """The rows that were read are not visible, and the same job can be run again."""
        table.ingest(ROWS[:1])
        before = table.refresh()

        def rows():
            for n in range(100_000):
                if n == 90_000:
                    line.dead = True
                yield {"id": f"x{n}", "n": n}

        with pytest.raises(StorageFailed):
            table.ingest(rows(), job_id="job")
        line.dead = False

        again = sleeper.connect(url).table("letters")
        assert again.refresh() == before
        assert count_in(again) == 1
        assert again.ingest(ROWS[1:], job_id="job").rows_written == 25

    def test_in_a_query_is_told(self, line, table):
        """By key and by range."""
        table.ingest(ROWS)
        line.dead = True

        for asked in ({"key": "a"}, {"range": {"id": ("a", "c")}}):
            with pytest.raises(StorageFailed):
                table.query(**asked).to_arrow()

    def test_in_the_middle_of_a_stream_is_told(self, line, table):
        """Rows that came are right; then an error, and not the end of the stream."""
        n = 1_000_000
        ids = pa.array(range(n)).cast(pa.string())
        table.ingest(pa.table({"id": ids, "n": pa.array(range(n))}))
        batches = iter(table.query())
        first = next(batches)
        line.dead = True

        with pytest.raises(StorageFailed, match=r"cannot read s3://.*\.parquet"):
            list(batches)

        assert first["id"][0].as_py() == "0"

    @pytest.mark.parametrize("lost", [1, 8])
    def test_of_a_commit_without_reply_is_settled(self, line, table, lost):
        """
        One reply is lost, and the client repeats its request; or all that it sends. The log
        finds its own entry: the job is done, once.
        """
        line.inject(
            "lost reply", times=lost, methods=("PUT",), path_holds="statestore/transactions"
        )

        result = table.ingest(ROWS, job_id="job")
        again = table.ingest(ROWS, job_id="job")

        assert (result.rows_written, again.already_committed) == (26, True)
        assert count_in(table) == 26
