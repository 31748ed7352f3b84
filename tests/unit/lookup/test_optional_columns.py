"""Columns with nulls: every pattern of nulls, however the pages are written."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import random
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sleeper.errors import DataDamaged
from sleeper.lookup.columns import FixedWidthValues, OptionalValues, with_nulls
from sleeper.lookup.parquet import compact_protocol as thrift
from sleeper.lookup.parquet.footer import TAIL_BYTES, footer_length, read_footer
from sleeper.lookup.parquet.pages import present_rows, read_pages
from sleeper.lookup.plain_pages import plain_values
from sleeper.lookup.reader import LookupReader

PATTERNS = {
    "none": lambda r, n: [True] * n,
    "all": lambda r, n: [False] * n,
    "alternating": lambda r, n: [i % 2 == 0 for i in range(n)],
    "runs": lambda r, n: list(chain(*([r.random() < 0.5] * r.randint(1, 60) for _ in range(n))))[
        :n
    ],
    "few nulls": lambda r, n: [r.random() > 0.03 for _ in range(n)],
    "few values": lambda r, n: [r.random() < 0.03 for _ in range(n)],
    "one null": lambda r, n: [i != n // 2 for i in range(n)],
    "a null first and last": lambda r, n: [0 < i < n - 1 for i in range(n)],
}

TYPES = {
    "int32": (pa.int32(), lambda r: r.randint(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), lambda r: r.randint(-(2**63), 2**63 - 1)),
    "float32": (pa.float32(), lambda r: float(r.randint(-999, 999))),
    "float64": (pa.float64(), lambda r: r.random()),
    "date": (pa.date32(), lambda r: dt.date(2000, 1, 1) + dt.timedelta(r.randint(0, 9_999))),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        lambda r: dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(0, r.randint(0, 9_999)),
    ),
    "even strings": (pa.string(), lambda r: f"{r.randint(0, 999):03d}"),
    "uneven strings": (pa.string(), lambda r: "é" * r.randint(1, 9)),
    "strings, some empty": (pa.string(), lambda r: "x" * r.choice((0, 0, 5, 300))),
    "empty strings": (pa.string(), lambda r: ""),
    "binary": (
        pa.binary(),
        lambda r: bytes(r.choice((0, 1, 4, 255)) for _ in range(r.randint(0, 9))),
    ),
    "boolean": (pa.bool_(), lambda r: r.random() < 0.5),
    "decimal": (pa.decimal128(9, 2), lambda r: decimal.Decimal(r.randint(-999, 999)) / 100),
}


def column(type_name, pattern, count, seed=0):
    """An array with values of a type where the pattern has a value."""
    r = random.Random(seed)
    arrow_type, draw = TYPES[type_name]
    present = PATTERNS[pattern](r, count)
    return pa.array([draw(r) if there else None for there in present], arrow_type)


def keyed(values, rows_of_key=7):
    """A table whose key is every so many rows another one."""
    keys = pa.array([f"{row // rows_of_key:05d}" for row in range(len(values))])
    schema = pa.schema([pa.field("k", pa.string(), nullable=False), pa.field("v", values.type)])
    return pa.Table.from_arrays([keys, values], schema=schema)


def write(folder, table, **options):
    """Write the table as a file of small pages."""
    options = {
        "use_dictionary": False,
        "write_page_index": True,
        "write_page_checksum": True,
        "max_rows_per_page": 100,
        "write_batch_size": 20,
    } | options
    pq.write_table(table, folder.path / "f.parquet", **options)


def look_up(folder, table, keys):
    """Look keys up in the file."""
    batch = pa.RecordBatch.from_arrays([pa.array(sorted(keys), pa.string())], names=["k"])
    (found,) = LookupReader(folder).look_up(["f.parquet"], batch, table.schema)
    found.validate(full=True)
    return found


def expected(table, keys):
    """The rows of the keys, found by pyarrow."""
    return table.filter(pc.is_in(table["k"], value_set=pa.array(sorted(keys))))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("type_name", TYPES)
class TestEveryTypeAndPattern:
    """All flat types with all patterns of nulls, in version 1 and version 2 pages."""

    def test_one_key_has_its_rows(self, folder, type_name, pattern, version):
        """A key in one page, and a key whose rows lie in two pages."""
        table = keyed(column(type_name, pattern, 350))
        write(folder, table, data_page_version=version)

        for key in ("00000", "00014", "00049"):
            assert look_up(folder, table, [key]).equals(expected(table, [key]))

    def test_many_keys_have_their_rows(self, folder, type_name, pattern, version):
        """Rows here and there in several pages."""
        table = keyed(column(type_name, pattern, 350), rows_of_key=3)
        keys = [f"{n:05d}" for n in (0, 1, 7, 8, 33, 34, 60, 99, 116, 400)]
        write(folder, table, data_page_version=version)

        assert look_up(folder, table, keys).equals(expected(table, keys))


class TestAnyNulls:
    """Laws."""

    @settings(
        max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(
        st.lists(st.tuples(st.booleans(), st.integers(1, 70)), min_size=1, max_size=12),
        st.sampled_from(sorted(TYPES)),
        st.sampled_from(["zstd", "snappy", "gzip", "none", "brotli", "lz4"]),
        st.sampled_from(["1.0", "2.0"]),
        st.sampled_from([1, 7, 64, 1_000]),
        st.booleans(),
        st.data(),
    )
    def test_looking_up_is_filtering(
        self, folder, runs, type_name, codec, version, page_rows, page_index, data
    ):
        """Whatever the nulls, type, codec, page version and page size."""
        present = list(chain(*([there] * length for there, length in runs)))
        arrow_type, draw = TYPES[type_name]
        r = random.Random(len(present))
        table = keyed(pa.array([draw(r) if there else None for there in present], arrow_type), 5)
        keys = data.draw(st.sets(st.sampled_from(table["k"].to_pylist()), min_size=1, max_size=9))

        write(
            folder,
            table,
            compression=codec,
            data_page_version=version,
            max_rows_per_page=page_rows,
            write_batch_size=page_rows,
            write_page_index=page_index,
        )

        assert look_up(folder, table, keys).equals(expected(table, keys))

    @given(
        st.lists(st.none() | st.text(max_size=3), max_size=40).map(
            lambda x: pa.array(x, pa.string())
        )
        | st.lists(st.none() | st.integers(0, 99), max_size=40).map(
            lambda x: pa.array(x, pa.int32())
        ),
        st.integers(0, 3),
    )
    def test_nulls_are_put_between_the_values(self, whole, start):
        """Dense values, maybe a slice, and flags make the array with nulls where these say so."""
        values = whole.to_pylist()
        present = np.array([value is not None for value in values], np.bool_)
        dense = pa.concat_arrays([whole.drop_null()[:1]] * start + [whole.drop_null()])
        dense = dense[len(dense) - int(present.sum()) :]

        found = with_nulls(dense, present)

        found.validate(full=True)
        assert found.to_pylist() == values
        assert found.null_count == whole.null_count


class TestOptionalKeys:
    """Row keys in columns that could hold nulls, in a file of another writer."""

    def table(self, keys):
        return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array(range(len(keys)))})

    def asked(self, keys):
        return pa.RecordBatch.from_arrays([pa.array(keys, pa.int64())], names=["k"])

    def test_an_optional_key_is_found(self, folder):
        """Without a null in the page it is as any other key."""
        table = self.table(list(range(100)))
        pq.write_table(table, folder.path / "f.parquet", use_dictionary=False)

        (found,) = LookupReader(folder).look_up(["f.parquet"], self.asked([42]), table.schema)

        assert found.to_pylist() == [{"k": 42, "v": 42}]

    def test_a_null_among_the_keys_is_refused(self, folder):
        """One key is looked for by bisection, which nulls would lead astray."""
        table = self.table([1, 2, None, 4])
        pq.write_table(table, folder.path / "f.parquet", use_dictionary=False)

        with pytest.raises(DataDamaged, match="row key is null"):
            LookupReader(folder).look_up(["f.parquet"], self.asked([2]), table.schema)

    def test_values_beside_nulls_are_found(self):
        """Positions count nulls, also those before the rows that are searched."""
        values = FixedWidthValues(np.arange(5, 9).tobytes(), 2, pa.int64(), 4)
        optional = OptionalValues(values, np.array([0, 1, 0, 1, 1, 1, 0], np.bool_))

        assert optional.find(7, 3, 6) == (4, 5)
        assert optional.find(6, 3, 6) == (3, 4)
        assert optional.find(9, 3, 6) == (6, 6)
        with pytest.raises(ValueError, match="null"):
            optional.find(7, 2, 6)


def encoded(runs):
    """Levels as runs: (packed or not, levels)."""
    out = bytearray()
    for packed, levels in runs:
        if packed:
            bits = np.packbits(np.array(levels, np.uint8), bitorder="little").tobytes()
            out += _number(len(bits) << 1 | 1) + bits
        else:
            out += _number(len(levels) << 1) + bytes(levels[:1])
    return bytes(out)


def _number(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


RUNS = st.lists(
    st.tuples(
        st.just(False), st.builds(lambda v, n: [v] * n, st.integers(0, 1), st.integers(1, 900))
    )
    | st.tuples(
        st.just(True),
        st.lists(st.integers(0, 1), min_size=8, max_size=160).map(lambda x: x[: len(x) // 8 * 8]),
    ),
    min_size=1,
    max_size=12,
)


class TestLevels:
    """Definition levels of 0 and 1."""

    @given(RUNS)
    def test_runs_are_expanded(self, runs):
        """Runs of one level and packed groups of eight, one after the other in any way."""
        levels = [level for _, part in runs for level in part]

        present = present_rows(encoded(runs), len(levels))

        found = [True] * len(levels) if present is None else present.tolist()
        assert found == [bool(level) for level in levels]
        assert present is not None or all(levels)

    @given(st.lists(st.integers(0, 1), min_size=1, max_size=70))
    def test_the_last_group_is_padded(self, levels):
        """Packed levels come in eights, so up to seven at the end do not count."""
        present = present_rows(encoded([(True, levels)]), len(levels))

        assert (present is None) == all(levels)
        assert present is None or present.tolist() == [bool(level) for level in levels]

    @given(st.binary(max_size=60), st.integers(0, 300))
    def test_any_bytes_are_levels_or_refused(self, levels, count):
        """Nothing but ValueError is raised, and never another number of rows returned."""
        try:
            present = present_rows(levels, count)
        except ValueError:
            return
        assert present is None or len(present) == count

    @pytest.mark.parametrize(
        ("levels", "count"),
        [
            (encoded([(False, [1] * 10)]), 9),
            (encoded([(False, [1] * 10)]), 11),
            (encoded([(False, [0] * 9), (False, [1] * 9)]), 17),
            (encoded([(True, [1, 0] * 8)]), 8),
            (encoded([(True, [1, 0] * 8)]), 17),
            (encoded([(True, [1, 0] * 8)])[:-1], 16),
            (encoded([(False, [1] * 10)]) + b"\x00", 10),
            (encoded([(False, [2] * 10)]), 10),
            (encoded([(False, [1] * 10)])[:1], 10),
            (_number(1 << 40) + b"\x01", 10),
            (b"\xff" * 20, 10),
            (b"", 1),
        ],
    )
    def test_levels_that_do_not_fit_are_refused(self, levels, count):
        """Too few, too many, cut off, too long, larger than 1, or far more than memory holds."""
        with pytest.raises(ValueError, match=r"levels|integer"):
            present_rows(levels, count)


def chunk_and_leaf():
    """What the footer of a real file says about an optional int64 column."""
    sink = io.BytesIO()
    table = pa.table({"v": pa.array([1, None] * 99, pa.int64())})
    pq.write_table(table, sink, use_dictionary=False, compression="none")
    body = sink.getvalue()
    start = len(body) - TAIL_BYTES - footer_length(body[-TAIL_BYTES:], len(body))
    footer = read_footer(body[start:-TAIL_BYTES], start)
    return footer.chunks[0][0], footer.leaves[0]


CHUNK, LEAF = chunk_and_leaf()


def page_2(levels, values, *, rows, nulls, repetition=0):
    """A version 2 page of an optional int64 column, not compressed and without checksum."""
    about = [rows, nulls, rows, 0, len(levels) - repetition, repetition]
    size = len(levels) + len(values)
    head = [(1, thrift.I32, 3), (2, thrift.I32, size), (3, thrift.I32, size)]
    fields = [(n, thrift.I32, value) for n, value in enumerate(about, 1)]
    return thrift.struct_bytes([*head, (8, thrift.STRUCT, fields)]) + levels + values


def page_1(levels, values, *, rows, levels_size=None):
    """The same column in a version 1 page."""
    size = (len(levels) if levels_size is None else levels_size).to_bytes(4, "little")
    body = size + levels + values
    head = [(1, thrift.I32, 0), (2, thrift.I32, len(body)), (3, thrift.I32, len(body))]
    fields = [(n, thrift.I32, value) for n, value in enumerate((rows, 0, 3, 3), 1)]
    return thrift.struct_bytes([*head, (5, thrift.STRUCT, fields)]) + body


LEVELS = encoded([(True, [1, 0, 1, 1, 0, 1, 1, 1])])
SIX = np.arange(6).tobytes()


class TestPagesWithNulls:
    """Whether the parts of a page agree."""

    def values(self, *pages):
        return plain_values(read_pages(b"".join(pages), CHUNK, LEAF), CHUNK, LEAF)

    def test_pages_are_put_together(self):
        """Pages with nulls and without, of both versions."""
        full = encoded([(False, [1] * 6)])

        found = self.values(
            page_2(LEVELS, SIX, rows=8, nulls=2),
            page_1(full, SIX, rows=6),
            page_1(LEVELS, SIX, rows=8),
        )

        some = [True, False, True, True, False, True, True, True]
        assert found.present.tolist() == [*some, *[True] * 6, *some]
        assert found.value_count == 18
        assert found.data == SIX * 3

    @pytest.mark.parametrize(
        "page",
        [
            page_2(LEVELS, SIX, rows=8, nulls=1),
            page_2(LEVELS, SIX[:-8], rows=8, nulls=2),
            page_2(LEVELS, SIX + SIX, rows=8, nulls=2),
            page_2(LEVELS, SIX, rows=9, nulls=3),
            page_2(LEVELS + b"\x00", SIX, rows=8, nulls=2, repetition=1),
            page_1(LEVELS, SIX[:-8], rows=8),
            page_1(LEVELS, SIX + SIX, rows=8),
            page_1(encoded([(False, [0] * 8)]), b"", rows=8, levels_size=99),
            page_1(LEVELS, SIX, rows=8, levels_size=3),
            page_1(b"", b"", rows=8, levels_size=0),
        ],
    )
    def test_a_page_whose_parts_disagree_is_refused(self, page):
        """Levels, values and counts must fit each other."""
        with pytest.raises(ValueError, match=r"page|levels"):
            self.values(page)
