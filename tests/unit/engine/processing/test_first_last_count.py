"""First, last and count: one row for each row key, the same wherever its rows meet."""

from __future__ import annotations

from itertools import groupby

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.processing.aggregations import as_counts
from sleeper.engine.processing.process import process
from sleeper.engine.sorting.sort import SortSettings
from sleeper.engine.writing.leaf_files import sorted_groups
from sleeper.model.partitions import leaf_groups, tree_from_split_points
from sleeper.model.processing import Processing, parse_processing
from sleeper.model.schema import Field, ListType, MapType, Primitive, Schema

SCHEMA = Schema(
    row_keys=(Field("a", Primitive.STRING), Field("b", Primitive.INT)),
    sort_keys=(Field("s", Primitive.STRING), Field("t", Primitive.LONG)),
    values=(
        Field("words", ListType(Primitive.STRING), nullable=True),
        Field("entries", MapType(Primitive.STRING, Primitive.LONG)),
        Field("seen", Primitive.INT, nullable=True),
        Field("total", Primitive.LONG),
        Field("most", Primitive.STRING),
    ),
)
ARROW = to_arrow(SCHEMA)
VALUES = (
    st.none() | st.lists(st.sampled_from("xyz"), max_size=2),
    st.dictionaries(st.sampled_from("xy"), st.integers(0, 9), max_size=2).map(
        lambda entries: [*entries.items()]
    ),
    st.none() | st.integers(-3, 3),
    st.integers(-(2**63), 2**63 - 1),
    st.text("a😀", max_size=2),
)
ROWS = st.lists(
    st.tuples(
        st.sampled_from("pq"), st.integers(0, 1), st.text("é\0", max_size=1), st.integers(-1, 1), *VALUES
    ),
    max_size=30,
    unique_by=lambda row: row[:4],
)  # fmt: skip
SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=3)


def processing_of(words, entries) -> Processing:
    """First or last for two fields, or for one of them alone."""
    text = f"{words}(words),{entries}(entries),count(seen),sum(total),max(most)"
    return parse_processing(None, text, SCHEMA)


LAST = processing_of("last", "last")


def batches_of(rows, sizes=(10**6,)):
    """Rows in key order, as batches; sizes are taken in turn."""
    ordered = sorted(rows, key=lambda row: row[:4])
    columns = [pa.array([row[n] for row in ordered], field.type) for n, field in enumerate(ARROW)]
    whole = pa.RecordBatch.from_arrays(columns, schema=ARROW)
    start = turn = 0
    while start < len(rows):
        yield whole.slice(start, sizes[turn % len(sizes)])
        start, turn = start + sizes[turn % len(sizes)], turn + 1


def tuples(batches):
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def come_in(rows, processing, sizes=(10**6,)):
    """What a file holds after rows came in."""
    fresh = as_counts(batches_of(rows, sizes), processing)
    return tuples(process(fresh, processing, SCHEMA, now_ms=0))


def processed(rows, processing, sizes=(10**6,)):
    """What is made of rows that were in files."""
    return tuples(process(batches_of(rows, sizes), processing, SCHEMA, now_ms=0))


def expected(rows, end):
    """The same in plain Python."""
    found = []
    ordered = sorted(rows, key=lambda row: row[:4])
    for key, group in groupby(ordered, key=lambda row: row[:2]):
        members = list(group)
        kept = members[0 if end == "first" else -1]
        total = (sum(row[7] for row in members) + 2**63) % 2**64 - 2**63
        seen = sum(row[6] is not None for row in members)
        found.append((*key, *kept[2:6], seen, total, max(row[8] for row in members)))
    return found


class TestFirstAndLast:
    """Rows of one row key become one, by the order of their sort keys."""

    @given(rows=ROWS, end=st.sampled_from(["first", "last"]), sizes=SIZES, data=st.data())
    def test_it_makes_no_difference_when_rows_meet(self, rows, end, sizes, data):
        """
        Rows come in by several files, in any batches; some files are put together, then all:
        the answer is that for all rows at once, and that of plain Python.
        """
        processing = processing_of(end, end)
        places = data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))
        files = [
            come_in(
                [row for row, at in zip(rows, places, strict=True) if at == n], processing, sizes
            )
            for n in range(4)
        ]

        compacted = processed([*files[0], *files[1]], processing, sizes)
        answer = processed([*compacted, *files[2], *files[3]], processing, sizes)

        assert answer == come_in(rows, processing) == expected(rows, end)
        assert processed(answer, processing) == answer

    def test_nulls_are_values(self):
        """The last one is taken even if it is null."""
        rows = [
            ("p", 0, "", 1, ["x"], [], 5, 1, "a"),
            ("p", 0, "", 2, None, [("x", 1)], None, 2, "b"),
        ]

        assert come_in(rows, LAST) == [("p", 0, "", 2, None, [("x", 1)], 1, 3, "b")]

    @pytest.mark.parametrize("end", ["first", "last"])
    def test_rows_that_tie_lend_all_their_fields_or_none(self, end):
        """Which row is taken is not promised, but all first or last fields are of the same."""
        rows = [("p", 0, "", 1, [str(n)], [(str(n), n)], n, 0, "") for n in range(4)]

        for parts in ([rows], [rows[:2], rows[2:]], [rows[::2], rows[1::2]]):
            processing = processing_of(end, end)
            files = [row for part in parts for row in come_in(part, processing)]
            ((*_, words, entries, seen, _, _),) = processed(files, processing)

            assert entries == [(words[0], int(words[0]))]
            assert seen == 4

    def test_some_columns_are_as_good_as_all(self):
        """Keys are read always; aggregated fields that nobody asks for may be missing."""
        rows = [("p", 0, "", n, [str(n)], [], n, n, "") for n in range(3)]
        narrow = (batch.select([*SCHEMA.key_names, "words"]) for batch in batches_of(rows))

        (found,) = process(narrow, LAST, SCHEMA, now_ms=0)

        assert tuples([found]) == [("p", 0, "", 2, ["2"])]


class TestCount:
    """How many rows had a value when they came in."""

    def test_alone_goes_by_row_and_sort_keys(self):
        """As upstream's aggregations do."""
        processing = parse_processing(None, "count(n)", counted())
        rows = [("p", 1, 7), ("p", 1, None), ("p", 1, 9), ("p", 2, 5), ("q", 1, None)]

        assert numbers_in(rows, processing) == [("p", 1, 2), ("p", 2, 1), ("q", 1, 0)]

    def test_rows_from_before_it_was_counted_keep_their_number(self):
        """What was null counts as none, even where no other row joins it."""
        processing = parse_processing(None, "count(n)", counted())
        rows = batches(counted(), [("p", 1, 40), ("p", 1, 2), ("q", 1, None)])

        assert tuples(process(rows, processing, counted(), now_ms=0)) == [("p", 1, 42), ("q", 1, 0)]

    def test_nothing_is_counted_without_it(self):
        """Rows go in as they are."""
        rows = batches(counted(), [("p", 1, 40)])

        assert list(as_counts(rows, Processing())) == rows

    @pytest.mark.parametrize("memory_bytes", [1 << 30, 1 << 16])
    def test_every_row_is_counted_once_on_its_way_in(self, tmp_path, memory_bytes):
        """Also where a sort spills runs, merges them in ranges of keys, and feeds several leaves."""
        schema = counted()
        processing = parse_processing(None, "count(n)", schema)
        tree = tree_from_split_points(schema, ["b", "c"], new_id=iter("01234").__next__)
        rows = [("abc"[n % 3], n % 7, n if n % 2 else None) for n in range(20_000)]

        groups = sorted_groups(
            batches(schema, rows, size=500),
            leaf_groups(tree.leaves()),
            schema,
            to_arrow(schema),
            processing,
            SortSettings(memory_bytes=memory_bytes, temp_folder=tmp_path),
            now_ms=0,
        )
        found = tuples(
            batch for _, chunks in groups for chunk in chunks for batch in chunk.to_batches()
        )

        assert found == [
            (key, sort, sum(n is not None for k, s, n in rows if (k, s) == (key, sort)))
            for key in "abc"
            for sort in range(7)
        ]


def counted() -> Schema:
    """A table with one nullable field to count."""
    return Schema(
        row_keys=(Field("key", Primitive.STRING),),
        sort_keys=(Field("sort", Primitive.INT),),
        values=(Field("n", Primitive.LONG, nullable=True),),
    )


def batches(schema, rows, size=10**6):
    columns = zip(*rows, strict=True)
    arrays = [
        pa.array(column, kind) for column, kind in zip(columns, to_arrow(schema).types, strict=True)
    ]
    whole = pa.RecordBatch.from_arrays(arrays, schema=to_arrow(schema))
    return [whole.slice(start, size) for start in range(0, len(rows), size)]


def numbers_in(rows, processing):
    fresh = as_counts(batches(counted(), rows), processing)
    return tuples(process(fresh, processing, counted(), now_ms=0))
