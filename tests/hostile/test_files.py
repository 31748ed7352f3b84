"""Files that are not what they seem: small ones that become large, and figures that lie."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from tests.patience import PATIENCE_S
from tests.soak import tries
from tests.stories.test_ingest_jobs import work

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string())])
MEBIBYTE = b"a" * (1 << 20)
_INGEST = """
import re, sys, sleeper
from pathlib import Path
with sleeper.connect(sys.argv[1]) as instance:
    try:
        instance["t"].ingest(sys.argv[2], ignore_extra_columns=True)
    except sleeper.SleeperError as error:
        print(type(error).__name__)
# getrusage would also count what the process was forked from.
print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) >> 10)
"""
BOMBS = {
    "one value.csv.gz": (b"id,s\n1,", MEBIBYTE, b"\n"),
    "one value.jsonl.gz": (b'{"id": 1, "s": "', MEBIBYTE, b'"}\n'),
    "one name.jsonl.gz": (b'{"id": 1, "', MEBIBYTE, b'": 1}\n'),
    "blanks.jsonl.gz": (b'{"id": 1,', b" " * (1 << 20), b'"s": "x"}\n'),
    "one list.jsonl.gz": (b'{"id": 1, "s": [', b"1," * (1 << 19), b"1]}\n"),
    "header.csv.gz": (b"id,s", b",a" * (1 << 19), b"\n"),
    "quote.csv.gz": (b'id,s\n1,"', b"a\n" * (1 << 19), b'"\n'),
}


def gzipped(start: bytes, piece: bytes, times: int, end: bytes) -> bytes:
    """A file of gzip with one piece many times, which is compressed once.

    After a full flush (RFC 1951) compressed bytes refer to nothing before them, so they may be
    repeated as they are.
    """
    checked = zlib.crc32(start)
    for _ in range(times):
        checked = zlib.crc32(piece, checked)
    trailer = struct.pack("<II", zlib.crc32(end, checked), len(start + end) + times * len(piece))
    deflate = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    head, body, tail = (
        deflate.compress(each) + deflate.flush(zlib.Z_FULL_FLUSH) for each in (start, piece, end)
    )
    return gzip.compress(b"")[:10] + head + body * times + tail + deflate.flush() + trailer


@pytest.mark.soak
@pytest.mark.parametrize("name", BOMBS)
def test_a_compressed_file_with_one_long_row_is_refused_in_little_memory(tmp_path, name):
    """Some hundred kilobytes that become hundreds of mebibytes, as a value, name or header."""
    # given such a file, and a table
    start, piece, end = BOMBS[name]
    body = gzipped(start, piece, tries(300, soak=4_000), end)
    (tmp_path / name).write_bytes(body)
    with sleeper.create_instance(tmp_path / "instance") as instance:
        instance.create_table("t", SCHEMA, row_keys=["id"])

    # when it is ingested by a process of its own
    found = subprocess.run(
        [sys.executable, "-c", _INGEST, tmp_path / "instance", tmp_path / name],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )

    # then it is refused, and the process did not hold it
    error, memory_mb = found.stdout.split()
    assert error in ("InputUnreadable", "InputSchemaMismatch")
    assert int(memory_mb) < 420


def with_lying_statistics(path: Path, true: Iterable[int], lies: Iterable[int]) -> None:
    """Write other numbers over those in the statistics of a Parquet file's footer."""
    content = path.read_bytes()
    (length,) = struct.unpack("<I", content[-8:-4])
    body, footer = content[: -8 - length], content[-8 - length :]
    for number, lie in zip(true, lies, strict=True):
        assert footer.count(struct.pack("<q", number)) >= 1
        footer = footer.replace(struct.pack("<q", number), struct.pack("<q", lie))
    path.write_bytes(body + footer)


@pytest.mark.parametrize("verb", ["ingest", "bulk_import", "job"])
@pytest.mark.parametrize("lies", [(5, 6), (-(2**62), -(2**61)), (2**61, 2**60), (2**61, 2**62)])
def test_statistics_that_lie_lose_no_row(tmp_path, verb, lies):
    """They choose where to look for samples of keys, and nothing else."""
    # given a file whose footer has other least and greatest keys than its rows
    least, most = 0x1122_3344_5566_7788, 0x1822_3344_5566_7799
    ids = np.linspace(least, most, 5_000, dtype=np.int64)
    ids[0], ids[-1] = least, most
    path = tmp_path / "lying.parquet"
    rows = pa.table({"id": ids, "s": ids.astype(str)}, SCHEMA)
    pq.write_table(rows, path, use_dictionary=False)
    with_lying_statistics(path, (least, most), lies)
    instance = sleeper.create_instance(tmp_path / "instance")
    table = instance.create_table("t", SCHEMA, row_keys=["id"], split_points=[0, int(ids[2_500])])

    # when it is read by any way
    if verb == "job":
        instance.jobs.submit_ingest("t", path)
        work(instance)
    else:
        getattr(table, verb)(str(path))

    # then all rows are there, each where it belongs
    table.refresh()
    assert table.query().to_arrow().column("id").to_pylist() == sorted(ids.tolist())
    assert table.query(key=int(ids[4_321])).to_pylist() == [rows.slice(4_321, 1).to_pylist()[0]]
    assert table.count(range={"id": (int(ids[2_500]), None)}) == 2_500
    assert not table.verify().findings


@pytest.mark.parametrize("cut", [1, 4, 8, 100])
def test_a_footer_of_another_file_is_refused(tmp_path, cut):
    """Its offsets lead anywhere; nothing is ingested."""
    for name, count in (("a", 1_000), ("b", 50_000)):
        table = pa.table({"id": np.arange(count), "s": np.arange(count).astype(str)}, SCHEMA)
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=count // cut)
    a, b = ((tmp_path / f"{name}.parquet").read_bytes() for name in "ab")
    (length,) = struct.unpack("<I", b[-8:-4])
    (tmp_path / "mixed.parquet").write_bytes(a + b[-8 - length :])
    with sleeper.create_instance(tmp_path / "instance") as instance:
        table = instance.create_table("t", SCHEMA, row_keys=["id"])

        with pytest.raises(sleeper.SleeperError):
            table.ingest(str(tmp_path / "mixed.parquet"))

        assert table.count() == 0
