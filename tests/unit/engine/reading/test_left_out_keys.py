"""Rows whose row keys other files have are left out, against a plain set of keys."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from sleeper.engine.reading import left_out_keys
from sleeper.engine.reading.left_out_keys import LeftOutKeys
from sleeper.errors import DataDamaged
from sleeper.model.schema import Primitive
from tests.unit.engine.reading.test_few_rows import reader_of, rows_of, schema_of


def keys_of(table, schema):
    return [*zip(*(table.column(name).to_pylist() for name in schema.row_key_names), strict=True)]


@pytest.fixture(params=[1, 50, 262_144], ids=["one at a time", "some ahead", "all ahead"])
def read_ahead(request, monkeypatch):
    monkeypatch.setattr(left_out_keys, "_KEYS_AHEAD", request.param)


@pytest.mark.usefixtures("read_ahead")
class TestRowsThatStay:
    """Any keys, in files of small pages, read in chunks of any length."""

    @pytest.mark.parametrize(
        "kinds",
        [
            [Primitive.STRING],
            [Primitive.BYTES],
            [Primitive.LONG],
            [Primitive.INT, Primitive.STRING],
            [Primitive.STRING, Primitive.LONG],
            [Primitive.DATE, Primitive.BYTES],
        ],
        ids=lambda kinds: "-".join(each.name for each in kinds),
    )
    @pytest.mark.parametrize("seed", range(4))
    def test_are_those_of_other_keys(self, tmp_path, kinds, seed):
        """Given two files of keys, no chunk of a third has one of them, and no other row is gone."""
        pick, schema = Random(seed), schema_of(*kinds)
        tables = [rows_of(schema, pick, pick.choice((1, 40, 400))) for _ in range(3)]
        reader, names = reader_of(tmp_path, schema, tables)
        out = LeftOutKeys(reader.lookup, schema, reader.arrow_schema, tuple(names[1:]))
        gone = {key for table in tables[1:] for key in keys_of(table, schema)}

        length = pick.choice((1, 7, 100))
        found = []
        for batch in tables[0].combine_chunks().to_batches(max_chunksize=length):
            found += keys_of(pa.Table.from_batches([out.staying(batch)]), schema)

        assert found == [key for key in keys_of(tables[0], schema) if key not in gone]

    def test_are_found_behind_the_page_of_an_equal_first_key(self, tmp_path):
        """Given keys of one first value over several pages, each is found, also where a read ended."""
        schema = schema_of(Primitive.LONG, Primitive.LONG)
        pairs = [(first, n) for first, count in ((1, 7), (2, 3), (3, 15)) for n in range(count)]
        columns = [[pair[place] for pair in pairs] for place in (0, 1)]
        rows = rows_of(schema, Random(1), len(pairs))
        for place, column in enumerate(columns):
            rows = rows.set_column(place, rows.schema.field(place), pa.array(column))
        reader, names = reader_of(tmp_path, schema, [rows])
        out = LeftOutKeys(reader.lookup, schema, reader.arrow_schema, (names[0],))
        (batch,) = rows.combine_chunks().to_batches()

        for place in (0, 20, 1, 24):
            assert out.staying(batch.slice(place, 1)).num_rows == 0

    def test_are_found_wherever_a_reader_begins(self, tmp_path):
        """Given chunks that come in any order, each is compared with the keys near it."""
        pick, schema = Random(5), schema_of(Primitive.LONG)
        keys = pa.table({"k0": range(0, 3_000, 3)})
        every = rows_of(schema, pick, 3_000).set_column(0, "k0", pa.array(range(3_000)))
        some = rows_of(schema, pick, 1_000).set_column(0, "k0", keys.column(0))
        table = every.cast(rows_of(schema, pick, 1).schema)
        reader, names = reader_of(tmp_path, schema, [table, some.cast(table.schema)])
        out = LeftOutKeys(reader.lookup, schema, reader.arrow_schema, (names[1],))
        chunks = table.combine_chunks().to_batches(max_chunksize=100)
        pick.shuffle(chunks)

        for chunk in chunks:
            left = out.staying(chunk).column(0).to_pylist()
            assert left == [key for key in chunk.column(0).to_pylist() if key % 3]


class TestEdges:
    """No rows, no keys, no file."""

    def test_of_no_rows_none_stay(self, tmp_path):
        """Given a chunk without rows, no file is read."""
        schema = schema_of(Primitive.STRING)
        reader, _ = reader_of(tmp_path, schema, [])
        out = LeftOutKeys(reader.lookup, schema, reader.arrow_schema, ("missing.parquet",))

        (batch,) = rows_of(schema, Random(1), 1).to_batches()
        assert out.staying(batch.slice(0, 0)).num_rows == 0

    def test_of_a_file_without_rows_all_stay(self, tmp_path):
        """Given a file of keys that has none, then nothing is left out."""
        schema = schema_of(Primitive.STRING)
        rows = rows_of(schema, Random(1), 20)
        reader, names = reader_of(tmp_path, schema, [rows.slice(0, 0)])
        out = LeftOutKeys(reader.lookup, schema, reader.arrow_schema, (names[0],))

        (batch,) = rows.combine_chunks().to_batches()
        assert out.staying(batch).num_rows == 20

    def test_a_missing_file_is_an_error(self, tmp_path):
        """Given that its keys cannot be read, no row is shown."""
        schema = schema_of(Primitive.STRING)
        reader, _ = reader_of(tmp_path, schema, [])
        out = LeftOutKeys(reader.lookup, schema, reader.arrow_schema, ("missing.parquet",))

        (batch,) = rows_of(schema, Random(1), 20).combine_chunks().to_batches()
        with pytest.raises(DataDamaged, match=r"missing\.parquet"):
            out.staying(batch)
