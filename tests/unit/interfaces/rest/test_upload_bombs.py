"""Uploads of few bytes that would take all memory are refused, and the server goes on."""

from __future__ import annotations

import io
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.interfaces.rest.app import make_app
from sleeper.interfaces.rest.statements.upload_ingest import is_plain
from tests.patience import PATIENCE_S
from tests.unit.interfaces.rest.running_server import running_server
from tests.unit.interfaces.rest.test_statements import resident

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="Linux alone keeps to a limit of data"
)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with sleeper.connect(tmp_path_factory.mktemp("served") / "instance", create=True) as opened:
        properties = {"sleeper.table.ingest.memory": "64M"}
        opened.create_table("t", SCHEMA, row_keys=["id"], properties=properties)
        with running_server(make_app(opened, statement_bytes=128 << 20)) as found:
            yield found


def stream(batch: pa.RecordBatch, **options: object) -> bytes:
    file = io.BytesIO()
    with pa.ipc.new_stream(file, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    return file.getvalue()


def numbers(rows: int) -> pa.Array:
    return pa.array(np.arange(rows))


def repeated(rows: int, length: int) -> pa.DictionaryArray:
    """A long text in each of many rows, which is there once."""
    return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["x" * length])


def compressed() -> bytes:
    """Half a GiB of zeros."""
    ids = pa.Array.from_buffers(pa.int64(), 1 << 26, [None, pa.py_buffer(bytes(1 << 29))])
    return stream(pa.record_batch({"id": ids}), compression="zstd")


def dictionary() -> bytes:
    """Ten GB of text, once decoded."""
    return stream(pa.record_batch({"id": numbers(10_000), "text": repeated(10_000, 1 << 20)}))


def parquet() -> bytes:
    """As `dictionary`, in Parquet."""
    file = io.BytesIO()
    pq.write_table(pa.table({"id": numbers(10_000), "text": repeated(10_000, 1 << 20)}), file)
    return file.getvalue()


BOMBS = {
    "compressed": (ARROW, compressed),
    "dictionary": (ARROW, dictionary),
    "parquet": (PARQUET, parquet),
}


@pytest.mark.parametrize(("kind", "made"), BOMBS.values(), ids=BOMBS)
def test_an_upload_that_grows_beyond_its_memory_is_refused(url, kind, made):
    """The server is as large as it was."""
    # given an upload of little more than a megabyte at most
    content = made()
    assert len(content) < 2 << 20
    before = resident()

    # when it is sent
    path = f"{url}/sleeper/tables/t/rows"
    answer = httpx.post(path, content=content, headers={"Content-Type": kind}, timeout=PATIENCE_S)

    # then it is refused, nothing is added, the server is as large as before, and others are served
    assert answer.status_code == 422, answer.text
    assert resident() - before < 64 << 20
    small = stream(pa.record_batch({"id": [1], "text": ["a"]}, SCHEMA))
    headers = {"Content-Type": ARROW, "Sleeper-Job-Id": "small"}
    assert httpx.post(path, content=small, headers=headers, timeout=PATIENCE_S).status_code == 200
    count = httpx.post(f"{url}/sleeper/tables/t/count", json={}, timeout=PATIENCE_S).json()
    assert count == {"rows": 1}


def test_compressed_and_encoded_uploads_of_usual_size_are_taken(url):
    """Their rows are added."""
    ids = np.arange(5_000)
    tables = pa.table({"id": ids + 10_000, "text": ids.astype(str)}, SCHEMA)
    encoded = tables.set_column(1, "text", tables["text"].dictionary_encode())
    whole = encoded.combine_chunks().to_batches()[0]
    parquet_file = io.BytesIO()
    pq.write_table(tables, parquet_file)

    for content, kind in (
        (stream(whole, compression="zstd"), ARROW),
        (parquet_file.getvalue(), PARQUET),
    ):
        answer = httpx.post(
            f"{url}/sleeper/tables/t/rows",
            content=content,
            headers={"Content-Type": kind},
            timeout=PATIENCE_S,
        )
        assert (answer.status_code, answer.json()["rows_written"]) == (200, 5_000)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (stream(pa.record_batch({"id": [1], "text": ["a"]}, SCHEMA)), True),
        (
            stream(
                pa.record_batch(
                    {"m": pa.array([[("a", [1])]], pa.map_("string", pa.list_(pa.int8())))}
                )
            ),
            True,
        ),
        (stream(pa.record_batch({"id": [1] * 99}), compression="zstd"), False),
        (stream(pa.record_batch({"id": [1] * 99}), compression="lz4"), False),
        (stream(pa.record_batch({"text": repeated(3, 3)})), False),
        (stream(pa.record_batch({"text": pa.array(["a"], pa.string_view())})), False),
        (stream(pa.record_batch({"text": pa.nulls(3)})), False),
        (stream(pa.record_batch({"text": pa.array([b""], pa.binary(0))})), False),
        (b"", False),
        (b"\xff\xff\xff\xff\x10\x00\x00\x00" + bytes(40), False),
    ],
)
def test_only_arrow_that_takes_no_more_than_it_is_long_is_read_by_the_server_itself(
    tmp_path, content, expected
):
    """All else is read in another process."""
    path = tmp_path / "upload.arrow"
    path.write_bytes(content)

    assert is_plain(str(path), "arrow") is expected
