"""Reading ranges from a file whose end is damaged."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.engine.reading import few_rows, verified_pages
from sleeper.engine.writing import data_file
from sleeper.errors import DataDamaged

SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64())])
BY_DATAFUSION = -1
ROWS = [{"key": f"k{number:05}", "n": number} for number in range(5_000)]


class TestRangesOfADamagedFile:
    """Footer and page indexes are checked against the file's seal before a range is read."""

    @pytest.mark.parametrize("from_end", range(20, 1_000, 59))
    def test_damage_behind_the_rows_is_told_and_names_the_file(
        self, tmp_path, from_end, monkeypatch
    ):
        """A flipped bit in footer or index would else hide rows, or make up others."""
        table = sleeper.connect(tmp_path, create=True).create_table("t", SCHEMA, row_keys=["key"])
        table.ingest(ROWS)
        (file,) = Path(tmp_path).glob("*/data/*/*.parquet")
        body = bytearray(file.read_bytes())
        body[-from_end] ^= 0x10
        file.write_bytes(body)
        asked = {"range": {"key": ("k00100", "k00200")}}

        found, error = attempt(tmp_path, asked, None)
        # The page reader needs no page sums: it compares pages with the checksums in their headers.
        assert (found == ROWS[100:200]) if error is None else (file.name in error)

        monkeypatch.setattr(few_rows, "FEW_ROWS", BY_DATAFUSION)
        with pytest.raises(DataDamaged, match=file.name):
            sleeper.connect(tmp_path).table("t").query(**asked).to_arrow()


class TestRangesOfDamagedPages:
    """Every page is compared with its checksum before a row of it comes out."""

    VALUES = pa.schema(
        [
            ("key", pa.string()),
            ("n", pa.int64()),
            ("text", pa.string()),
            ("x", pa.float64()),
            ("list", pa.list_(pa.field("element", pa.int32(), False))),
        ]
    )

    @pytest.fixture
    def written(self, tmp_path):
        """Two files of small pages and row groups, the rows in them, and the table's folder."""
        properties = {
            "sleeper.table.parquet.page.rows": "100",
            "sleeper.table.parquet.rowgroup.rows.max": "1000",
        }
        table = sleeper.connect(tmp_path, create=True).create_table(
            "t", self.VALUES, row_keys=["key"], properties=properties
        )
        rows = [
            {
                "key": f"k{n:05}",
                "n": n,
                "text": f"{n * 7919 % 65537}",
                "x": n / 3,
                "list": [n] * (n % 3),
            }
            for n in range(4000)
        ]
        table.ingest(rows[::2])
        table.ingest(rows[1::2])
        return tmp_path, rows

    @pytest.fixture
    def written_before(self, monkeypatch, request):
        """The same, as versions wrote them that had no page sums."""
        monkeypatch.setattr(data_file, "page_sums_bytes", lambda *_: b"")
        return request.getfixturevalue("written")

    @pytest.mark.parametrize("window", ["in one go", "window by window"])
    def test_raise_or_give_the_rows_as_they_were(self, written, monkeypatch, window):
        """Of single bits flipped anywhere in a file, none becomes a value."""
        if window == "window by window":
            monkeypatch.setattr(verified_pages, "FIRST_BYTES", 5_000)
        assert min(self.flips_found(*written, Random(window)).values()) > 15

    def test_raise_or_give_the_rows_without_page_sums_too(self, written_before):
        """Files of older versions have checksums in their page headers alone."""
        assert min(self.flips_found(*written_before, Random(5)).values()) > 15

    def flips_found(self, folder, rows, pick):
        """Ask each reader for ranges after each of 60 flipped bits; return how often it raises."""
        raised = {BY_DATAFUSION: 0, few_rows.FEW_ROWS: 0}
        files = sorted(Path(folder).glob("*/data/*/*.parquet"))
        for _ in range(60):
            file = pick.choice(files)
            body = file.read_bytes()
            place = pick.randrange(len(body))
            damaged = bytearray(body)
            damaged[place] ^= 1 << pick.randrange(8)
            file.write_bytes(damaged)
            low = pick.choice((0, 500, 2_000, 3_990))
            high = pick.choice((low + 5, low + 900, 4_000))
            columns = pick.choice((None, ["n"], ["key", "text"], ["list", "x"]))
            asked = {"range": {"key": (f"k{low:05}", f"k{high:05}")}} if pick.random() < 0.7 else {}
            expected = rows[low:high] if asked else rows
            names = columns or self.VALUES.names
            for reader in raised:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(few_rows, "FEW_ROWS", reader)
                    found, error = attempt(folder, asked, columns)
                if error is None:
                    assert found == [{name: row[name] for name in names} for row in expected], place
                else:
                    assert file.name in error
                    raised[reader] += 1
            file.write_bytes(body)
        return raised

    def test_name_file_row_group_and_column(self, written):
        """Who restores the file learns what is wrong with it."""
        folder, _ = written
        file = min(Path(folder).glob("*/data/*/*.parquet"))
        flip(file, pq.ParquetFile(file).metadata.row_group(1).column(2))
        table = sleeper.connect(folder).table("t")

        with pytest.raises(DataDamaged, match=rf"{file.name}.*row group 1 .*'text'.*checksum"):
            table.query().to_arrow()
        assert table.query(columns=["n"]).count() == 4_000

    def test_stay_damaged_for_exports_and_compactions(self, written, tmp_path):
        """What reads a table whole stops at the page, and leaves nothing behind."""
        folder, _ = written
        file = min(Path(folder).glob("*/data/*/*.parquet"))
        flip(file, pq.ParquetFile(file).metadata.row_group(0).column(3))
        table = sleeper.connect(folder).table("t")

        with pytest.raises(DataDamaged, match=file.name):
            table.export(tmp_path / "out")

    def test_are_found_after_rows_before_them_were_read(self, written, monkeypatch):
        """A long read checks its pages piece by piece: whoever stops early reads little."""
        monkeypatch.setattr(verified_pages, "FIRST_BYTES", 5_000)
        folder, rows = written
        for file in Path(folder).glob("*/data/*/*.parquet"):
            flip(file, pq.ParquetFile(file).metadata.row_group(1).column(1))
        found = iter(sleeper.connect(folder).table("t").query(columns=["key", "n"]))

        first = next(found).to_pylist()
        with pytest.raises(DataDamaged):
            list(found)

        assert first == [{"key": row["key"], "n": row["n"]} for row in rows[: len(first)]]


def attempt(folder, asked, columns):
    """The rows that a fresh handle finds, or else what the error says."""
    try:
        found = sleeper.connect(folder).table("t").query(**asked, columns=columns)
        return found.to_pylist(), None
    except DataDamaged as error:
        return None, str(error)


def flip(file, chunk):
    """Flip a bit in the last page of a column chunk."""
    body = bytearray(file.read_bytes())
    body[chunk.data_page_offset + chunk.total_compressed_size - 3] ^= 0x04
    file.write_bytes(body)


class TestTruncatedFiles:
    """A file that is shorter than when it was written is damaged, however it is read."""

    WAYS = {  # noqa: RUF012 - it is not changed
        "key": lambda table, _: table.query(key="k00002").to_arrow(),
        "few rows": lambda table, _: table.query(range={"key": ("k0001", "k00012")}).to_arrow(),
        "range": lambda table, _: table.query(range={"key": ("k01", None)}).to_arrow(),
        "all": lambda table, _: table.query().to_arrow(),
        "in any order": lambda table, _: table.query(ordered=False).to_arrow(),
        "where": lambda table, _: table.query(where="n > 5").to_arrow(),
        "statement": lambda table, _: table.sql("SELECT sum(n) FROM t").to_arrow(),
        "polars": lambda table, _: table.scan_polars().collect(),
        "export": lambda table, path: table.export(path / "out"),
    }

    @pytest.mark.parametrize("length", [0, 10, 5_000])
    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("opened", ["by whom it was written", "anew"])
    def test_are_reported_as_damaged(self, tmp_path, length, way, opened):
        """Given two files of a leaf, then the error names it and says what to do."""
        instance = sleeper.connect(tmp_path / "i", create=True)
        table = instance.create_table("t", SCHEMA, row_keys=["key"])
        table.ingest(ROWS[::2])
        table.ingest(ROWS[1::2])
        for file in (tmp_path / "i").glob("*/data/*/*.parquet"):
            file.write_bytes(file.read_bytes()[:length])
        if opened == "anew":
            table = sleeper.connect(tmp_path / "i").table("t")

        with pytest.raises(DataDamaged, match=r"data file '?\S+\.parquet'? .*[Rr]estore"):
            self.WAYS[way](table, tmp_path)
