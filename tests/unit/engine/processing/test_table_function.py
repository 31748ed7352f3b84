"""A function of the user's own: what it may do, and how a break of its contract is told."""

from __future__ import annotations

import pickle
import sys
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.processing.process import process
from sleeper.engine.processing.table_function import KeyLimits
from sleeper.errors import DataDamaged, TableFunctionFailed
from sleeper.lookup.sorted_rows import first_out_of_order
from sleeper.model.processing import AgeOff, Aggregation, Processing, TableFunction
from sleeper.model.schema import Field, Primitive, Schema

SCHEMA = Schema(
    row_keys=(Field("a", Primitive.STRING), Field("b", Primitive.INT)),
    sort_keys=(Field("s", Primitive.INT),),
    values=(Field("n", Primitive.LONG), Field("note", Primitive.STRING, nullable=True)),
)
ARROW = to_arrow(SCHEMA)
ROWS = [
    ("x", 1, 1, 10, "one"),
    ("x", 1, 2, 20, None),
    ("y", 2, 1, 30, "three"),
    ("z", 0, 9, 40, ""),
]


def batches_of(rows, size=2):
    columns = [pa.array([row[n] for row in rows], kind) for n, kind in enumerate(ARROW.types)]
    whole = pa.RecordBatch.from_arrays(columns, schema=ARROW)
    return [whole.slice(start, size) for start in range(0, len(rows), size)]


def applied(function, rows=(), *, size=2, **processing):
    """What a function of this file makes of rows, as tuples."""
    name = TableFunction(__name__, function.__name__, ("*",))
    given = iter(batches_of(list(rows or ROWS), size))
    found = process(given, Processing(function=name, **processing), SCHEMA, now_ms=0)
    return [tuple(row.values()) for batch in found for row in batch.to_pylist()]


def refusal(function, rows=(), **options):
    """Why what a function does is refused, without the property's name and value."""
    with pytest.raises(TableFunctionFailed) as refused:
        applied(function, rows, **options)
    start = f"sleeper.table.function is '{__name__}:{function.__name__}': "
    message = str(refused.value)
    assert message.startswith(start)
    assert pickle.loads(pickle.dumps(refused.value)).args == refused.value.args
    assert not refused.value.retryable
    return message.removeprefix(start)


def redact(batches):
    """Nulls for notes, and no rows of x's second sort key. All columns get new fields."""
    for batch in batches:
        kept = batch.filter(pc.not_equal(batch.column("s"), 2))
        columns = [*kept.columns[:-1], pa.nulls(kept.num_rows, pa.string())]
        yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def hold_back(batches):
    """Everything at once, in the end, with a batch without rows before it."""
    held = list(batches)
    yield held[0].slice(0, 0)
    yield from held


def as_a_list(batches):
    return list(batches)


class TestWhatItMayDo:
    """A function takes batches in key order and yields batches in key order."""

    def test_it_may_drop_rows_and_change_values(self):
        """Batches need not have the schema's own fields, as long as names and types are right."""
        assert applied(redact) == [
            ("x", 1, 1, 10, None),
            ("y", 2, 1, 30, None),
            ("z", 0, 9, 40, None),
        ]

    @pytest.mark.parametrize("function", [hold_back, as_a_list])
    @pytest.mark.parametrize("size", [1, 3])
    def test_it_may_hold_rows_back(self, function, size):
        """How it is written, and how rows come in batches, means nothing."""
        assert applied(function, size=size) == ROWS

    def test_it_comes_after_filters_and_aggregations(self):
        """PRC-1: here it sees the sum of rows that are young enough."""
        found = applied(
            see_what_comes,
            [("x", 1, 1, 5, None), ("x", 1, 1, 7, None), ("x", 1, 1, -5, None)],
            filters=(AgeOff("n", 1),),
            aggregations=(Aggregation("sum", "n"), Aggregation("last", "note")),
        )

        assert found == [("x", 1, 1, 12, "1 rows")]

    def test_it_works_on_a_stream(self):
        """A batch that it yields is handed on before the next is read."""
        read = []

        def stream():
            for batch in batches_of(ROWS, 1):
                read.append(batch.num_rows)
                yield batch

        name = TableFunction(__name__, redact.__name__, ("*",))
        found = process(stream(), Processing(function=name), SCHEMA, now_ms=0)

        assert next(found).num_rows == 1
        assert read == [1]

    def test_it_is_closed_with_whoever_reads(self):
        """A reader that wants no more ends it, and that is no error."""
        name = TableFunction(__name__, ends_well.__name__, ("*",))
        found = process(iter(batches_of(ROWS)), Processing(function=name), SCHEMA, now_ms=0)
        ENDED.clear()

        next(found)
        found.close()

        assert ENDED == ["closed"]

    def test_what_fails_beneath_it_is_raised_as_it_is(self):
        """A damaged file is not the function's fault, even if the function hides it."""

        def damaged():
            yield from batches_of(ROWS)
            raise DataDamaged("f.parquet is missing")

        for function in (redact, hide_errors, give_other_errors):
            name = TableFunction(__name__, function.__name__, ("*",))
            with pytest.raises(DataDamaged, match=r"f\.parquet is missing"):
                list(process(damaged(), Processing(function=name), SCHEMA, now_ms=0))


ENDED = []


def ends_well(batches):
    try:
        yield from batches
    finally:
        ENDED.append("closed")


def see_what_comes(batches):
    for batch in batches:
        notes = pa.array([f"{batch.num_rows} rows"] * batch.num_rows)
        yield pa.RecordBatch.from_arrays([*batch.columns[:-1], notes], schema=batch.schema)


def hide_errors(batches):
    try:
        yield from batches
    except DataDamaged:
        return


def give_other_errors(batches):
    try:
        yield from batches
    except DataDamaged as error:
        raise ValueError("something else") from error


def backwards(batches):
    for batch in batches:
        yield batch.take(pa.array(range(batch.num_rows)[::-1]))


def batches_backwards(batches):
    yield from list(batches)[::-1]


def other_leaf(batches):
    for batch in batches:
        b = pc.add(batch.column("b"), 1)
        yield pa.RecordBatch.from_arrays(
            [batch.column(0), b, *batch.columns[2:]], schema=batch.schema
        )


def before_reading(batches):
    yield batches_of(ROWS)[0]
    yield from batches


def without_notes(batches):
    for batch in batches:
        yield batch.drop_columns(["note"])


def with_text(batches):
    for batch in batches:
        columns = {**dict(zip(ARROW.names, batch.columns, strict=True))}
        columns["n"] = columns["n"].cast(pa.string())
        yield pa.RecordBatch.from_pydict(columns)


def with_nulls(batches):
    for batch in batches:
        nulls = pa.nulls(batch.num_rows, pa.int64())
        yield pa.RecordBatch.from_arrays([*batch.columns[:3], nulls, batch.column(4)], ARROW.names)


def as_table(batches):
    yield pa.Table.from_batches(batches)


def nothing(batches):
    list(batches)


def raising(batches):
    next(batches)
    yield next(batches)
    raise LookupError("no such colour: 'mauve'")


def only_the_first(batches):
    yield next(batches)


class TestWhatItMustNotDo:
    """A break of the contract is refused, and says what was broken."""

    def test_rows_out_of_order_are_named(self):
        """The row, and the one before it."""
        assert refusal(backwards) == (
            "the function yielded rows out of key order: {'a': 'x', 'b': 1, 's': 1} after "
            "{'a': 'x', 'b': 1, 's': 2}. Rows must keep the order of row keys, then sort keys."
        )

    def test_order_goes_on_from_batch_to_batch(self):
        """Each batch is in order, but the second is before the first."""
        assert refusal(batches_backwards).startswith(
            "the function yielded rows out of key order: {'a': 'x', 'b': 1, 's': 1} after "
            "{'a': 'z', 'b': 0, 's': 9}."
        )

    def test_row_keys_that_were_not_there_are_named(self):
        """b was 1 in all rows that it had read; in another leaf nobody would find the row."""
        assert refusal(other_leaf) == (
            "the function yielded the row {'a': 'x', 'b': 2, 's': 1}, but the row keys that it had "
            "read so far are between 'x' and 'x' (a), between 1 and 1 (b). It must not change row "
            "keys: queries would not find the row in another leaf."
        )

    def test_rows_from_nowhere_are_refused(self):
        """A row that is given before any is read has a key that nobody knows."""
        assert "are none, because it had read no row" in refusal(before_reading)

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (without_notes, "columns ['a', 'b', 's', 'n'] for ['a', 'b', 's', 'n', 'note']"),
            (with_text, "the function yielded field 'n' as string for int64"),
            (with_nulls, "the function yielded nulls in field 'n', which is not nullable"),
        ],
    )
    def test_another_schema_is_refused(self, function, message):
        """Columns, types, and nulls where there are none."""
        found = refusal(function)

        assert message in found
        assert found.endswith("from_arrays(columns, schema=batch.schema).")

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (as_table, "returned a Table, but it must be a generator of pyarrow.RecordBatch"),
            (nothing, "raised TypeError: 'NoneType' object is not iterable"),
        ],
    )
    def test_anything_but_batches_is_refused(self, function, message):
        """What it gave is told."""
        assert message in refusal(function)

    def test_what_it_raises_is_told(self):
        """With its class and its own message; the cause is kept for whoever debugs it."""
        assert refusal(raising) == (
            "the function raised LookupError: no such colour: 'mauve'. Nothing was changed. Correct "
            "it, or unset the property."
        )

    def test_it_must_read_all_rows(self):
        """Rows that it left would be gone after the next compaction."""
        assert refusal(only_the_first) == (
            "the function ended before it had read all of its batches, and the rows left would "
            "be lost. It may drop rows, but must read them."
        )


class TestFinding:
    """A module is imported when the first rows come."""

    def found(self, module, name):
        processing = Processing(function=TableFunction(module, name, ("*",)))
        return list(process(iter(batches_of(ROWS)), processing, SCHEMA, now_ms=0))

    def test_a_module_that_is_missing_is_named(self):
        """And the two ways to have it found."""
        with pytest.raises(TableFunctionFailed) as refused:
            self.found("no_such_rows.clean", "redact")

        assert str(refused.value) == (
            "sleeper.table.function is 'no_such_rows.clean:redact': module 'no_such_rows.clean' "
            "cannot be imported (ModuleNotFoundError: No module named 'no_such_rows'). Put its "
            "folder on PYTHONPATH, or install its package, on every machine that reads or writes "
            "this table, including Spark's workers."
        )

    def test_a_module_that_cannot_be_imported_says_why(self, tmp_path, monkeypatch):
        """Whatever it raises on its way."""
        (tmp_path / "breaks_at_once.py").write_text("1 / 0\n")
        monkeypatch.syspath_prepend(tmp_path)

        with pytest.raises(TableFunctionFailed, match="ZeroDivisionError: division by zero"):
            self.found("breaks_at_once", "f")

    @pytest.mark.parametrize(
        ("name", "reason"),
        [("redct", "has nothing with that name"), ("ROWS", "has no function with that name")],
    )
    def test_a_name_that_is_no_function_is_told(self, name, reason):
        """With the file that was looked at, which may be an older one than was meant."""
        with pytest.raises(TableFunctionFailed, match=reason) as refused:
            self.found(__name__, name)

        assert sys.modules[__name__].__file__ in str(refused.value)

    def test_it_is_imported_only_when_there_are_rows(self):
        """Whoever makes a table or looks at an empty one need not have it."""
        processing = Processing(function=TableFunction("no_such_rows", "f", ("*",)))

        assert list(process(iter(()), processing, SCHEMA, now_ms=0)) == []


class TestKeyChecks:
    """The two checks, beside plain Python."""

    KEYS = st.lists(
        st.tuples(st.text("a😀￿\0", max_size=2), st.binary(max_size=2), st.integers(-1, 1)),
        max_size=12,
    )

    def batch(self, keys):
        columns = [*zip(*keys, strict=True)] or [(), (), ()]
        kinds = (pa.string(), pa.binary(), pa.int32())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=["a", "b", "c"])

    @given(keys=KEYS, cut=st.integers(0, 12))
    def test_order_is_that_of_python(self, keys, cut):
        """By code point, by unsigned byte, by number; fields in turn."""
        keys = sorted(keys[:cut]) + keys[cut:]
        falls = [n for n, (before, after) in enumerate(pairwise(keys), 1) if after < before]

        assert first_out_of_order(self.batch(keys)) == (falls[0] if falls else None)

    @given(seen=st.lists(KEYS, max_size=3), keys=KEYS.filter(bool))
    def test_limits_are_those_of_each_field(self, seen, keys):
        """A row is inside when each of its fields is."""
        limits = KeyLimits(["a", "b", "c"])
        for part in seen:
            limits.widen(self.batch(part))

        known = [key for part in seen for key in part]
        columns = [*zip(*known, strict=True)]
        outside = [
            n
            for n, key in enumerate(keys)
            if not known
            or not all(min(c) <= v <= max(c) for v, c in zip(key, columns, strict=True))
        ]
        assert limits.first_outside(self.batch(keys)) == (outside[0] if outside else None)
