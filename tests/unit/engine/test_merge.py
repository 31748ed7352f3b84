"""Several sorted files read as one stream in key order, by a plan that never sorts."""

from __future__ import annotations

import tempfile
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.reading.merged_scan import FileSlice, Scanner
from sleeper.engine.reading.session import FileMissing, Session, merge_plan, node_names
from sleeper.errors import QueryInvalid
from sleeper.model.schema import DecimalType, Field, ListType, MapType, Primitive, Schema
from tests.soak import tries

NUMBERS = Schema(
    row_keys=(Field("id", Primitive.STRING),),
    sort_keys=(Field("at", Primitive.LONG),),
    values=(Field("n", Primitive.INT),),
)

# Neighbours that an engine with another idea of order, or of text, would confuse.
ORDERED_VALUES = {
    Primitive.INT: [-(2**31), -1, 0, 1, 255, 256, 2**31 - 1],
    Primitive.LONG: [-(2**63), -(2**53) - 1, -1, 0, 2**53, 2**53 + 1, 2**63 - 1],
    Primitive.STRING: [
        "",
        "\0",
        " ",
        '"',
        "'",
        "''; --",
        "A",
        "\\",
        "a",
        "a\0",
        "aa",
        "é",
        "\uffff",
        "😀",
    ],
    Primitive.BYTES: [b"", b"\0", b"\x7f", b"\x80", b"\x80\0", b"\xff", b"\xff\xff"],
    Primitive.DATE: [date.min, date(1582, 10, 4), date(1969, 12, 31), date(1970, 1, 1), date.max],
    Primitive.TIMESTAMP_NTZ: [
        datetime.min,
        datetime(1969, 12, 31, 23, 59, 59, 999_999),
        datetime(1970, 1, 1),
        datetime(1970, 1, 1, 0, 0, 0, 1),
        datetime.max,
    ],
}
ORDERED_VALUES[Primitive.TIMESTAMP] = [
    value.replace(tzinfo=UTC) for value in ORDERED_VALUES[Primitive.TIMESTAMP_NTZ]
]


def write_sorted(folder, schema, rows, name="rows", row_group_size=1000):
    """Write one data file; `rows` are dicts or tuples in the schema's order, in any order."""
    rows = [
        row if isinstance(row, dict) else dict(zip(schema.names, row, strict=True)) for row in rows
    ]
    rows = sorted(rows, key=lambda row: [row[key] for key in schema.key_names])
    path = Path(folder) / f"{name}.parquet"
    pq.write_table(
        pa.Table.from_pylist(rows, to_arrow(schema)),
        path,
        compression="zstd",
        row_group_size=row_group_size,
        write_page_index=True,
        max_rows_per_page=100,
        data_page_version="2.0",
    )
    return str(path)


def merged(schema, paths, columns=None, **options):
    """Everything in the files, as tuples."""
    batches = list(Scanner(schema, **options).merge([FileSlice(path) for path in paths], columns))
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


class TestMerging:
    """Rows of several files in one order."""

    def test_orders_rows_by_row_keys_then_sort_keys(self, tmp_path):
        """Files overlap; equal row keys are ordered by the sort key; equal rows all stay."""
        one = write_sorted(tmp_path, NUMBERS, [("a", 2, 1), ("b", 1, 2), ("b", 9, 3)], "one")
        two = write_sorted(tmp_path, NUMBERS, [("a", 1, 4), ("b", 5, 5), ("b", 9, 3)], "two")

        rows = merged(NUMBERS, [one, two])

        assert rows == [
            ("a", 1, 4),
            ("a", 2, 1),
            ("b", 1, 2),
            ("b", 5, 5),
            ("b", 9, 3),
            ("b", 9, 3),
        ]

    @pytest.mark.parametrize("kind", ORDERED_VALUES, ids=lambda kind: kind.value)
    def test_orders_every_key_type_as_python_does(self, tmp_path, kind):
        """Code points, unsigned bytes, values: the order of keys is the same everywhere."""
        values = ORDERED_VALUES[kind]
        schema = Schema(row_keys=(Field("k", kind),), sort_keys=(Field("s", kind),))
        rows = [(one, other) for one in values for other in values]
        paths = [write_sorted(tmp_path, schema, rows[part::3], str(part)) for part in range(3)]

        assert merged(schema, paths) == sorted(rows)

    def test_keeps_every_type_exactly(self, tmp_path):
        """What comes out of one file or a merge has the schema's types and the values written."""
        values = {
            "int": (Primitive.INT, -(2**31)),
            "long": (Primitive.LONG, 2**63 - 1),
            "string": (Primitive.STRING, "q'uo\"te 😀"),
            "bytes": (Primitive.BYTES, b"\x00\xff"),
            "date": (Primitive.DATE, date(1, 1, 1)),
            "instant": (Primitive.TIMESTAMP, datetime(2025, 1, 1, tzinfo=UTC)),
            "clock": (Primitive.TIMESTAMP_NTZ, datetime(9999, 12, 31, 23, 59, 59, 999_999)),
            "float": (Primitive.FLOAT, 0.5),
            "double": (Primitive.DOUBLE, -1e308),
            "flag": (Primitive.BOOLEAN, True),
            "money": (DecimalType(20, 3), Decimal("12345678901234567.891")),
            "list": (ListType(Primitive.STRING), ["", "a"]),
            "map": (MapType(Primitive.STRING, Primitive.LONG), [("a", 1), ("b", -1)]),
        }
        fields = [Field(name, kind) for name, (kind, _) in values.items()]
        nullable = [Field(f"{name}?", kind, nullable=True) for name, (kind, _) in values.items()]
        schema = Schema(row_keys=(Field("k", Primitive.INT),), values=(*fields, *nullable))
        row = {"k": 1} | {name: value for name, (_, value) in values.items()}
        full = row | {f"{name}?": value for name, (_, value) in values.items()}
        written = [full, row | {"k": 2}]
        paths = [write_sorted(tmp_path, schema, [one], str(one["k"])) for one in written]

        for some in (paths[:1], paths):
            batches = list(Scanner(schema).merge([FileSlice(path) for path in some]))
            table = pa.Table.from_batches(batches)

            assert all(batch.schema.equals(to_arrow(schema)) for batch in batches)
            assert table.equals(pa.Table.from_pylist(written[: len(some)], to_arrow(schema)))

    def test_takes_any_text_as_a_field_name(self, tmp_path):
        """Names are data: quotes, dots, capitals, keywords and emoji mean nothing to the plan."""
        names = ['Key"x.y', "a b", "É😀", "SELECT", "it's", "a.b", "SortExec: x", "$1", "?", "%s"]
        schema = Schema(
            row_keys=(Field(names[0], Primitive.STRING),),
            sort_keys=(Field(names[1], Primitive.LONG),),
            values=tuple(Field(name, Primitive.INT) for name in names[2:]),
        )
        rows = [("😀", 1, *range(8)), ("b", 2, *range(8)), ("b", 1, *range(8))]
        paths = [write_sorted(tmp_path, schema, [row], str(at)) for at, row in enumerate(rows)]

        assert merged(schema, paths) == sorted(rows)
        assert merged(schema, paths, ["a.b", 'Key"x.y']) == [(3, "b"), (3, "b"), (3, "😀")]

    def test_takes_any_text_as_a_file_name(self, tmp_path):
        """A path is a path: stars, brackets, percent signs and spaces are no patterns."""
        folder = tmp_path / "a [b]*? #%41 é{x}"
        folder.mkdir()
        paths = [write_sorted(folder, NUMBERS, [("a", n, n)], f"f*[{n}]%20?#") for n in range(2)]

        assert merged(NUMBERS, paths) == [("a", 0, 0), ("a", 1, 1)]
        assert merged(NUMBERS, [Path(paths[0]).as_uri()]) == [("a", 0, 0)]

    def test_merges_a_hundred_files_at_once(self, tmp_path):
        """A leaf that nobody compacted for long is still one merge."""
        rows = [(f"{n % 70:02}", n, n) for n in range(1000)]
        paths = [write_sorted(tmp_path, NUMBERS, rows[part::100], str(part)) for part in range(100)]

        assert merged(NUMBERS, paths, memory_bytes=64 << 20) == sorted(rows)

    def test_merges_more_files_than_the_fan_in_in_two_rounds(self, tmp_path):
        """Memory stays that of the fan-in; the files in between are gone afterwards."""
        rows = [(f"{n % 7}", n, n) for n in range(100)]
        paths = [write_sorted(tmp_path, NUMBERS, rows[part::10], str(part)) for part in range(10)]
        between = tmp_path / "between"
        between.mkdir()

        found = merged(NUMBERS, paths, ["n", "id"], fan_in_max=3, temp_folder=between)

        assert found == [(n, key) for key, _, n in sorted(rows)]
        assert [path for path in between.rglob("*") if path.is_file()] == []

    @pytest.mark.soak
    @settings(max_examples=tries(25, soak=500))
    @given(
        files=st.lists(
            st.lists(
                st.tuples(
                    st.text(st.sampled_from("ab'\"\0é😀"), max_size=3),
                    st.binary(max_size=2),
                    st.integers(-(2**31), 2**31 - 1),
                ),
                max_size=30,
            ),
            min_size=1,
            max_size=5,
        )
    )
    def test_loses_and_doubles_no_row(self, files):
        """Whatever the files hold, empty ones too, the merge is their sorted concatenation."""
        schema = Schema(
            row_keys=(Field("s", Primitive.STRING), Field("b", Primitive.BYTES)),
            sort_keys=(Field("i", Primitive.INT),),
        )
        with tempfile.TemporaryDirectory() as folder:
            paths = [write_sorted(folder, schema, rows, str(n)) for n, rows in enumerate(files)]

            assert merged(schema, paths) == sorted(row for rows in files for row in rows)


class TestColumns:
    """Exactly the columns asked for."""

    def test_come_in_the_order_asked(self, tmp_path):
        """Keys that order the rows are read, and left out of the answer unless asked for."""
        paths = [write_sorted(tmp_path, NUMBERS, [("a", n, -n)], str(n)) for n in range(3)]

        assert merged(NUMBERS, paths, ["n"]) == [(0,), (-1,), (-2,)]
        assert merged(NUMBERS, paths, ["n", "id"]) == [(0, "a"), (-1, "a"), (-2, "a")]
        assert merged(NUMBERS, paths[:1], ["at"]) == [(0,)]

    def test_may_be_none_at_all(self, tmp_path):
        """Batches without columns still have their row count."""
        path = write_sorted(tmp_path, NUMBERS, [("a", n, n) for n in range(3)])

        batches = list(Scanner(NUMBERS).merge([FileSlice(path)], []))

        assert [(batch.num_columns, batch.num_rows) for batch in batches] == [(0, 3)]

    @pytest.mark.parametrize("columns", [["m"], ["n", "n"]])
    def test_must_be_different_fields(self, columns):
        """An unknown or repeated column is refused before anything is read."""
        with pytest.raises(QueryInvalid, match="id, at, n"):
            Scanner(NUMBERS).merge([], columns)


class TestThePlan:
    """What DataFusion is made to do."""

    def plan_of(self, paths, columns):
        session = Session(to_arrow(NUMBERS), NUMBERS.key_names)
        return merge_plan([session.frame(path) for path in paths], session.order, columns)

    def test_merges_streams_and_never_sorts(self, tmp_path):
        """Several files: one merge of scans. No sort, no repartitioning, no filter of its own."""
        paths = [write_sorted(tmp_path, NUMBERS, [("a", n, n)], str(n)) for n in range(5)]

        names = list(node_names(self.plan_of(paths, NUMBERS.names)))

        assert names == ["SortPreservingMergeExec", "UnionExec", *["DataSourceExec"] * 5]

    def test_is_a_plain_scan_for_one_file(self, tmp_path):
        """Nothing is merged where there is nothing to merge."""
        path = write_sorted(tmp_path, NUMBERS, [("a", 1, 1)])

        assert list(node_names(self.plan_of([path], ["n"]))) == ["DataSourceExec"]

    def test_is_refused_where_it_would_sort(self, tmp_path):
        """A file whose order is not the one asked for is an error of ours, told with the plan."""
        path = write_sorted(tmp_path, NUMBERS, [("a", 1, 1)])
        by_number = Session(to_arrow(NUMBERS), ["n"])
        by_id = Session(to_arrow(NUMBERS), ["id"])

        with pytest.raises(AssertionError, match="SortExec"):
            merge_plan([by_number.frame(path)] * 2, by_id.order, ["id"])

    def test_sees_that_a_file_is_missing(self, tmp_path):
        """DataFusion would take a missing file for an empty one."""
        with pytest.raises(FileMissing):
            self.plan_of([str(tmp_path / "gone.parquet")], ["n"])
