"""Columns are added, dropped, renamed and widened; no file is written (rules COL-1 to COL-8)."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sleeper
from sleeper.errors import BadRequest, PropertiesInvalid, SchemaInvalid, TableChanged
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.model.tables import SCHEMA as SCHEMA_PROPERTY
from sleeper.tables import alter as verb
from sleeper.tables import open_table
from tests.soak import tries
from tests.stories.changed_columns_model import drawn_change, drawn_rows, first_models, in_order

SCHEMA = pa.schema(
    [
        pa.field("n", pa.int32(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        ("note", pa.string()),
        ("price", pa.float32()),
    ]
)


@pytest.fixture
def instance(tmp_path):
    with sleeper.connect(tmp_path / "instance", create=True) as opened:
        yield opened


@pytest.fixture
def table(instance):
    """Rows 0 to 9 in two files of two leaves."""
    table = instance.create_table("t", SCHEMA, row_keys=["id"], split_points=[5])
    table.ingest(rows(0, 10))
    return table


def rows(first, last):
    ids = range(first, last)
    return pa.table(
        {
            "n": [i * 10 for i in ids],
            "id": [*ids],
            "note": [f"note {i}" for i in ids],
            "price": [i / 2 for i in ids],
        },
        schema=SCHEMA,
    )


def files_of(table):
    return {each.filename for each in table.references()}


class TestOneChange:
    """What rows of before show afterwards."""

    def test_an_added_column_is_null_in_rows_of_before(self, table):
        """And it comes last."""
        files = files_of(table)

        table.alter(add=[pa.field("late", pa.int64())])

        assert table.columns == ["n", "id", "note", "price", "late"]
        assert table.query(7).to_pylist() == [
            {"n": 70, "id": 7, "note": "note 7", "price": 3.5, "late": None}
        ]
        assert files_of(table) == files

    def test_an_added_column_has_its_default_in_rows_of_before_alone(self, table):
        """Given a default, rows that are written later have the values that they are given."""
        table.alter(add=[pa.field("kind", pa.string(), nullable=False)], defaults={"kind": "old"})

        table.ingest([{"n": 1, "id": 99, "note": None, "price": None, "kind": "new"}])

        assert [row["kind"] for row in table.query(keys=[3, 99]).to_pylist()] == ["old", "new"]

    def test_a_field_of_ours_may_have_its_default_in_itself(self, table):
        """As text; an id that it brings along is that of another table."""
        table.alter(
            add=[
                Field("x", Primitive.LONG, default="5"),
                Field("y", Primitive.INT, nullable=True, id=2, first_name="n"),
            ]
        )

        assert table.query(key=1, columns=["x", "y"]).to_pylist() == [{"x": 5, "y": None}]

    def test_a_renamed_column_keeps_its_values(self, table):
        """Nobody finds it by its old name."""
        table.alter(rename={"note": "remark", "n": "note"})

        assert table.query(key=4).to_pylist() == [
            {"note": 40, "id": 4, "remark": "note 4", "price": 2.0}
        ]
        assert table.sql("SELECT remark FROM t WHERE note = 40").to_pylist() == [
            {"remark": "note 4"}
        ]

    def test_a_widened_column_takes_larger_values(self, table):
        """Rows of before and of now are read together."""
        table.alter(widen={"n": pa.int64(), "price": pa.float64()})

        table.ingest([{"n": 2**40, "id": 4, "note": "", "price": 0.1}])

        found = table.query(range={"id": (4, 6)}).to_arrow()
        assert found.schema.field("n").type == pa.int64()
        assert sorted(found.column("n").to_pylist()) == [40, 50, 2**40]
        assert 0.1 in found.column("price").to_pylist()

    def test_a_column_that_is_dropped_and_added_again_has_none_of_its_old_values(self, table):
        """Whether files are compacted in between or not."""
        table.alter(drop=["note"], add=[pa.field("note", pa.string())])

        assert {row["note"] for row in table.query().to_pylist()} == {None}

        table.ingest([{"n": 0, "id": 3, "price": None, "note": "again"}])
        table.compact(all_files=True)

        assert {row["note"] for row in table.query().to_pylist()} == {None, "again"}

    def test_a_compaction_of_all_files_writes_single_files_anew(self, table):
        """Given one file in each leaf, they have the columns of now, and stay as they are then."""
        table.alter(rename={"n": "m"})

        table.compact(all_files=True)
        again = table.compact(all_files=True)

        assert {each.schema_id for each in table.references()} == {2}
        assert again.jobs == ()

    def test_a_column_that_may_be_null_takes_nulls(self, table):
        """It was required before."""
        table.alter(nullable=["n"])

        table.ingest([{"id": 50, "note": "x", "price": 1.0}])

        assert table.query(50).to_pylist()[0]["n"] is None

    def test_several_changes_are_one(self, table):
        """Names are those of before the change, and exchanged ones are no conflict."""
        before = table.refresh()

        done = table.alter(
            drop=["price"],
            rename={"n": "note", "note": "n"},
            widen={"n": pa.int64()},
            add=pa.schema([("price", pa.decimal128(9, 2))]),
            reason="ticket 12",
        )

        assert done.transaction == before + 1
        assert table.query(key=2).to_pylist() == [
            {"note": 20, "id": 2, "n": "note 2", "price": None}
        ]
        newest = next(iter(table.history()))
        assert (newest.kinds, newest.reasons) == (("columns changed",), ("ticket 12",))

    @pytest.mark.parametrize(
        ("kind", "default"),
        [
            (pa.int32(), -5),
            (pa.float32(), 0.1),
            (pa.float64(), float("inf")),
            (pa.string(), "é\n"),
            (pa.binary(), b"\0\xff"),
            (pa.bool_(), True),
            (pa.date32(), date(1, 1, 1)),
            (pa.timestamp("us"), datetime(9999, 12, 31, 23, 59, 59, 999_999)),
            (pa.timestamp("us", "UTC"), datetime(2026, 1, 1, tzinfo=UTC)),
            (pa.time64("us"), time(1, 2, 3, 4)),
            (pa.duration("us"), timedelta(days=-1, microseconds=7)),
            (pa.decimal128(30, 2), Decimal("-12345678901234567890.25")),
            (pa.list_(pa.field("element", pa.int64(), nullable=False)), None),
            (pa.map_(pa.string(), pa.list_(pa.int64())), None),
            (pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))]), None),
        ],
        ids=str,
    )
    def test_a_column_of_each_type_is_added(self, table, kind, default):
        """By all readers, while several files are merged, and when they are compacted."""
        table.ingest(rows(0, 10))  # so that each leaf has several files

        table.alter(
            add=[pa.field("null", kind), pa.field("value", kind, default is None)],
            defaults={"value": default},
        )

        def check(read):
            found = read.select(["null", "value"]).to_pylist()
            assert {repr(row) for row in found} == {repr({"null": None, "value": as_read})}

        as_read = pa.scalar(default, kind).as_py()
        for question in ({}, {"ordered": False}, {"key": 3}, {"range": {"id": (2, 7)}}):
            check(table.query(**question).to_arrow())
        check(table.sql("SELECT * FROM t").to_arrow())
        done = table.compact(all_files=True)
        assert [job.failure for job in done.jobs] == [None, None]
        check(table.query().to_arrow())


class TestNoChange:
    """A change to what is there already is made, and leaves the table as it is."""

    @pytest.mark.parametrize("is_first", [True, False], ids=["first schema", "later schema"])
    @pytest.mark.parametrize(
        "change",
        [{"nullable": ["note"]}, {"rename": {"note": "note"}}],
        ids=["nullable", "own name"],
    )
    def test_no_entry_is_committed_and_no_record_stored(self, table, change, is_first):
        """Given a script that is run again, then the history does not grow, nor the index."""
        if not is_first:
            table.alter(add=[pa.field("x", pa.int64())])
        before = table.refresh(), table.schema, table.properties.text(SCHEMA_PROPERTY)

        done = table.alter(**change)

        assert (done.transaction, done.schema) == before[:2]
        assert (table.refresh(), table.schema, table.properties.text(SCHEMA_PROPERTY)) == before

    def test_properties_beside_it_are_set(self, table):
        """They are a change of their own."""
        name = "sleeper.table.gc.delay.minutes"
        before = table.refresh()

        table.alter(nullable=["note"], properties={name: 7})

        assert table.properties.gc.delay_minutes == 7
        assert table.refresh() == before

    def test_beside_a_change_it_does_no_harm(self, table):
        """The rest is made, in one entry."""
        before = table.refresh()

        table.alter(nullable=["note", "n"])

        assert table.refresh() == before + 1
        assert {each.name: each.nullable for each in table.schema.values}["n"]


class TestVersions:
    """Each version has the columns that it had."""

    def test_an_old_version_has_the_columns_of_then(self, table):
        """In the order of then, by key, by range, in SQL and exports."""
        then = table.refresh()
        table.alter(drop=["note"], rename={"n": "m"}, add=[pa.field("late", pa.int64())])

        old = table.query(as_of=then).to_arrow()

        assert old.schema.equals(SCHEMA)
        assert old.sort_by("id").to_pylist() == rows(0, 10).to_pylist()
        assert table.query(key=1, columns=["note"], as_of=then).to_pylist() == [{"note": "note 1"}]
        assert table.sql("SELECT max(n) AS n FROM t", as_of=then).to_pylist() == [{"n": 90}]

    def test_old_versions_with_the_same_columns_are_read_by_the_same_readers(self, table):
        """They have what is known of files; other properties, and another name, are seen."""
        first, then = table.state(), table.refresh()
        table.alter(drop=["note"])
        opened = table._current()

        assert opened.as_of(first).reader is opened.as_of(first).reader is not opened.reader
        table.rename("renamed")
        assert table._current().as_of(first).name == "renamed"
        table.set_properties({"sleeper.table.filters": "ageOff(id,1)"})
        assert table.query(as_of=then).to_arrow().num_rows == 0

    def test_an_export_of_an_old_version_has_its_columns(self, table, tmp_path):
        """And one of now those of now."""
        then = table.refresh()
        table.alter(drop=["note"])

        table.export(tmp_path / "then", as_of=then)
        table.export(tmp_path / "now")

        assert pq.read_table(tmp_path / "then").column_names == SCHEMA.names
        assert pq.read_table(tmp_path / "now").column_names == ["n", "id", "price"]

    def test_a_garbage_collector_deletes_no_file_that_lacks_columns(self, table):
        """No file is garbage because of a change."""
        table.alter(drop=["note"], add=[pa.field("x", pa.string())])

        assert table.collect_garbage().deleted == ()
        assert table.verify().findings == ()


class TestWriters:
    """Those that know the columns of before go on."""

    def test_a_handle_of_before_reads_and_writes_the_columns_of_now(self, instance, table):
        """It looks for a newer record first."""
        other = instance.table("t")
        assert other.columns == SCHEMA.names
        table.alter(drop=["price"], add=[pa.field("x", pa.int64())])

        other.ingest([{"n": 1, "id": 70, "note": "", "x": 5}])

        assert other.query(70).to_pylist() == [{"n": 1, "id": 70, "note": "", "x": 5}]

    def test_a_writer_of_before_may_commit_its_files(self, instance, table, monkeypatch):
        """Given rows that are sorted while columns change, they are committed and read."""
        other = instance.table("t")
        opened = other._current()
        table.alter(drop=["price"], rename={"n": "m"}, add=[pa.field("x", pa.int64())])
        monkeypatch.setattr(other, "_current", lambda: opened)
        other.ingest(rows(70, 72))

        assert table.query(range={"id": (70, None)}).to_pylist() == [
            {"m": i * 10, "id": i, "note": f"note {i}", "x": None} for i in (70, 71)
        ]
        assert table.verify().findings == ()

    def test_a_compaction_of_before_may_be_committed(self, instance, table, monkeypatch):
        """Its file has the columns of before, and is read as any other."""
        other = instance.table("t")
        opened = other._current()
        table.ingest(rows(0, 10))
        table.alter(rename={"n": "m"}, add=[pa.field("x", pa.int64())])
        expected = in_order(rename_k(table))

        monkeypatch.setattr(other, "_current", lambda: opened)
        other.compact(all_files=True)

        assert in_order(rename_k(table)) == expected
        assert {each.schema_id for each in table.references()} == {1}

    def test_a_compaction_of_before_leaves_files_with_columns_of_now(self, instance, table):
        """Given rows with a new column while a compaction runs, then it does not write them anew."""
        other = instance.table("t")
        table.ingest(rows(0, 10))

        def add_column(done, planned):
            if "x" not in other.columns:
                other.alter(add=[pa.field("x", pa.string())])
                for first in (70, 80):
                    extra = pa.array([f"x of {first}"] * 2, pa.string())
                    other.ingest(rows(first, first + 2).append_column("x", extra))

        table.compact(all_files=True, progress=add_column)

        kept = other.query(keys=[70, 71, 80, 81], columns=["x"]).to_arrow().column(0).to_pylist()
        assert kept == ["x of 70", "x of 70", "x of 80", "x of 80"]

    def test_a_change_whose_process_died_before_the_log_is_completed(
        self, instance, table, monkeypatch
    ):
        """The next commit adds the schema to the log; nothing differs for readers meanwhile."""

        def died(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(verb, "record_change", died)
            with pytest.raises(KeyboardInterrupt):
                table.alter(drop=["note"], add=[pa.field("x", pa.int64())])
        fresh = instance.table("t")

        assert fresh.columns == ["n", "id", "price", "x"]
        fresh.ingest([{"n": 1, "id": 70, "price": 0.5, "x": 1}])
        assert fresh.state().schema_id == 2
        fresh.alter(drop=["x"])
        assert fresh.state().schema_id == 3
        assert fresh.query(70).to_pylist() == [{"n": 1, "id": 70, "price": 0.5}]
        assert fresh.verify().findings == ()

    def test_threads_that_adopt_other_records_have_their_own_schema(
        self, instance, table, monkeypatch
    ):
        """Given one that adopts an older record while another opens the newest, none mixes both."""
        other = instance.table("t")
        old = other._record
        table.alter(drop=["note"])
        newest, opened, real = table._record, [], open_table.TableProperties

        def between(*given):
            monkeypatch.setattr(open_table, "TableProperties", real)
            opened.append(other._adopt(old))
            return real(*given)

        monkeypatch.setattr(open_table, "TableProperties", between)
        opened.append(other._adopt(newest))

        assert [each.schema.number for each in opened] == [1, 2]
        assert [len(each.arrow_schema) for each in opened] == [4, 3]
        assert (other.columns, other.schema.number) == (["n", "id", "price"], 2)

    def test_a_change_completes_one_that_was_made_after_it_began(
        self, instance, table, monkeypatch
    ):
        """The log has the columns of both, so whoever made the second reads the version it got."""
        other, opened = instance.table("t"), table._current()

        def died(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(verb, "record_change", died)
            with pytest.raises(KeyboardInterrupt):
                other.alter(add=[pa.field("x", pa.int64())])
        with monkeypatch.context() as patched:
            patched.setattr(table, "_current", lambda: opened)
            done = table.alter(add=[pa.field("y", pa.int64())])

        assert [*table.state().schemas] == [1, 2, 3]
        asked = table.query(key=1, as_of=done.transaction).to_arrow()
        assert asked.column_names == [*SCHEMA.names, "x", "y"]

    def test_two_changes_at_once_are_both_made(self, instance, table):
        """Each is made of the newest columns."""
        other = instance.table("t")

        table.alter(add=[pa.field("x", pa.int64())])
        other.alter(add=[pa.field("y", pa.int64())])

        table.refresh()
        assert table.columns == [*SCHEMA.names, "x", "y"]


def rename_k(table):
    return [{**row, "k": row["id"]} for row in table.query().to_pylist()]


def test_an_unknown_property_beside_a_change_is_told(table, caplog):
    """As where properties alone are set."""
    table.alter(drop=["note"], properties={"sleeper.table.nope": "1"})

    assert "sleeper.table.nope is stored, but no property has this name" in caplog.text


class TestRefusals:
    """A change that cannot be made says why, and changes nothing."""

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({}, "something to add, drop, rename"),
            ({"drop": 5}, "list of names"),
            ({"drop": [None]}, "needs a name, not None"),
            ({"drop": ["notes"]}, "is 'note' meant"),
            ({"nullable": "n"}, r"write \['n'\]"),
            ({"rename": [("n", "m")]}, "a dict by name"),
            ({"rename": {"n": "a\0"}}, "NUL"),
            ({"widen": {"n": "int64"}}, "such as pa.int64"),
            ({"add": "x"}, "a list of fields"),
            ({"add": pa.field("x", pa.int64())}, "a list of fields"),
            ({"add": [("x", pa.int64())]}, "is a field, such as"),
            (
                {"add": [pa.field("x", pa.string())], "defaults": {"x": "y" * 1_001}},
                "may have 1,000",
            ),
            ({"add": [pa.field("x", pa.int64())], "defaults": {"x": 10**5000}}, "not a int"),
            ({"add": [Field("x", Primitive.LONG, default="one")]}, "of field 'x' is no value"),
            ({"drop": ["id"]}, "'id' is a key"),
            ({"rename": {"id": "key"}}, "'id' is a key"),
            ({"widen": {"id": pa.int64()}}, "'id' is a key"),
            ({"drop": ["nope"]}, "none of this name"),
            ({"drop": "note"}, "list of names"),
            ({"rename": {"n": "note"}}, "more than one field named 'note'"),
            ({"rename": {"n": ""}}, "a field needs a name"),
            ({"add": [pa.field("note", pa.int64())]}, "more than one field named 'note'"),
            ({"add": [pa.field("x", pa.int64(), nullable=False)]}, "give it a default"),
            ({"add": [pa.field("x", pa.large_list(pa.null()))]}, "no field can have"),
            ({"widen": {"n": pa.int32()}}, "cannot become IntType"),
            ({"widen": {"n": pa.string()}}, "cannot become StringType"),
            ({"widen": {"price": pa.int64()}}, "cannot become LongType"),
            ({"drop": ["n"], "rename": {"n": "m"}}, "is dropped"),
            ({"defaults": {"n": 1}}, "'n', which is not added"),
            ({"add": [pa.field("x", pa.int32())], "defaults": {"x": 2**31}}, "the default of"),
            ({"add": [pa.field("x", pa.date32())], "defaults": {"x": "soon"}}, "the default of"),
            (
                {"add": [pa.field("x", pa.list_(pa.int64()))], "defaults": {"x": [1]}},
                "no default",
            ),
        ],
    )
    def test_an_impossible_change_is_refused(self, table, change, words):
        """By name."""
        before = table.refresh(), table.schema

        with pytest.raises((SchemaInvalid, BadRequest), match=words):
            table.alter(**change)

        assert (table.refresh(), table.schema) == before

    def test_a_table_of_format_1_says_how_to_upgrade(self, instance):
        """Its readers would find columns by their names."""
        table = instance.create_table("old", SCHEMA, row_keys=["id"])
        table.downgrade()

        with pytest.raises(BadRequest, match="sleeper table upgrade old"):
            table.alter(drop=["note"])

    def test_a_table_whose_columns_changed_cannot_be_of_format_1_again(self, table):
        """Its readers do not know ids."""
        table.alter(drop=["note"])

        with pytest.raises(TableChanged, match="columns of the table were changed"):
            table.downgrade()

    def test_a_column_that_a_filter_names_stays(self, instance):
        """Unless the filter goes in the same step."""
        table = instance.create_table(
            "aged",
            SCHEMA,
            row_keys=["id"],
            properties={"sleeper.table.filters": "ageOff(id,3600000)"},
        )
        table.alter(drop=["note"])
        table.set_properties({"sleeper.table.filters": None})
        other = instance.create_table(
            "summed",
            pa.schema([("id", pa.int64()), pa.field("n", pa.int64(), nullable=False)]),
            row_keys=["id"],
            properties={"sleeper.table.aggregations": "sum(n)"},
        )
        other.ingest([{"id": 1, "n": 2}, {"id": 1, "n": 3}])

        with pytest.raises(PropertiesInvalid):
            other.alter(rename={"n": "m"})
        with pytest.raises(PropertiesInvalid):
            other.alter(add=[pa.field("x", pa.int64(), nullable=False)], defaults={"x": 0})
        other.alter(
            rename={"n": "m"},
            add=[pa.field("x", pa.int64(), nullable=False)],
            defaults={"x": 0},
            properties={"sleeper.table.aggregations": "sum(m),max(x)"},
        )
        other.ingest([{"id": 1, "m": 5, "x": 7}])

        assert other.query().to_pylist() == [{"id": 1, "m": 10, "x": 7}]


def test_a_new_table_takes_the_columns_of_a_changed_one(instance, table):
    """Without the ids of its fields, which are those of one table."""
    table.alter(drop=["note"], add=[pa.field("x", pa.int64())])

    other = instance.create_table("u", table.schema)

    other.ingest(table.query())

    assert {each.id for each in other.schema.fields} == {None}
    assert other.schema == Schema.from_json(other.schema.to_json()) == table.schema.as_new()
    assert other.columns == table.columns
    assert other.query().to_arrow() == table.query().to_arrow()


def test_a_file_that_has_lost_a_column_is_found(table):
    """It would be read as a file of before the column was added."""
    table.alter(add=[pa.field("x", pa.string())])
    table.ingest([{"n": 1, "id": 100, "note": "", "price": 1.0, "x": "lost"}])
    (newest,) = (each for each in table.references() if each.schema_id == 2)
    path = table._current().files.url(newest.filename)

    pq.write_table(pq.read_table(path).drop_columns(["x"]), path)

    told = [str(each.what) for each in table.verify().findings]
    assert any("no column 'x', with which it was written" in each for each in told)


def test_files_have_the_ids_of_fields(table):
    """So that other readers of Parquet find a field that was renamed."""
    table.alter(rename={"n": "m"}, drop=["note"], add=[pa.field("note", pa.string())])
    table.ingest([{"m": 1, "id": 100, "price": 1.0, "note": "x"}])
    (newest,) = (each for each in table.references() if each.schema_id == 2)

    schema = pq.read_schema(table._current().files.url(newest.filename))

    ids = {field.name: field.metadata[b"PARQUET:field_id"] for field in schema}
    assert ids == {"id": b"1", "m": b"2", "price": b"4", "note": b"5"}


@settings(max_examples=tries(15, soak=2_000), deadline=None, suppress_health_check=[*HealthCheck])
@given(model=first_models(), data=st.data())
def test_every_reader_agrees_with_a_model(tmp_path_factory, model, data):
    """Whatever was written, changed, deleted and compacted, in whatever order."""
    folder = tmp_path_factory.mktemp("changed")
    with sleeper.connect(folder / "instance", create=True) as instance:
        points = data.draw(st.sampled_from([[], [20], [20, 40]]))
        table = instance.create_table("t", model.schema(), row_keys=["k"], split_points=points)
        for _ in range(data.draw(st.integers(2, 7))):
            do = data.draw(
                st.sampled_from(["ingest", "ingest", "alter", "alter", "compact", "drop"])
            )
            if do == "ingest":
                new = drawn_rows(data, model, data.draw(st.integers(1, 12)))
                model.rows += new
                named = [{c.name: row[c.number] for c in model.columns} for row in new]
                table.ingest(pa.Table.from_pylist(named, schema=model.schema()))
            elif do == "alter":
                change = drawn_change(data, model)
                if any(change.values()):
                    table.alter(**change)
            elif do == "compact":
                table.compact(all_files=True)
            else:
                key = data.draw(st.integers(0, 60))
                table.delete(key=key)
                (number,) = (c.number for c in model.columns if c.name == "k")
                model.rows = [row for row in model.rows if row[number] != key]
        check_every_reader(table, model, folder)


def check_every_reader(table, model, folder):
    expected, schema = model.shown(), model.schema()
    names = schema.names
    whole = table.query().to_arrow()
    assert whole.schema.equals(schema)
    assert whole.column("k").to_pylist() == sorted(row["k"] for row in expected)
    assert in_order(whole.to_pylist()) == expected
    assert in_order(table.query(ordered=False).to_pylist()) == expected
    assert table.count() == len(expected)
    keys = sorted({row["k"] for row in expected})
    for key in keys[:3]:
        assert in_order(table.query(key).to_pylist()) == [r for r in expected if r["k"] == key]
    assert in_order(table.query(keys=keys).to_pylist()) == expected
    some = [row for row in expected if 15 <= row["k"] < 30]
    assert in_order(table.query(range={"k": (15, 30)}).to_pylist()) == some
    assert in_order(table.query(where="k >= 15 AND k < 30").to_pylist()) == some
    quoted = ", ".join(f'"{name}"' for name in names)
    assert in_order(table.sql(f"SELECT {quoted} FROM t").to_pylist()) == expected
    first = table.query(limit=2).to_pylist()
    assert [row["k"] for row in first] == [row["k"] for row in expected][:2]
    for name in names:
        alone = table.query(columns=[name]).to_arrow()
        assert alone.schema.names == [name]
        found = sorted(map(repr, alone.column(name).to_pylist()))
        assert found == sorted(repr(row[name]) for row in expected)
        counted = table.sql(f'SELECT count("{name}") AS n FROM t').to_pylist()[0]["n"]
        assert counted == sum(row[name] is not None for row in expected)
    assert in_order(table.query().to_polars().to_dicts()) == expected
    assert in_order(table.scan_polars().collect().to_dicts()) == expected
    with duckdb.connect() as engine:
        table.to_duckdb(engine, "t")
        read = engine.sql("FROM t").fetchall()
        assert in_order([dict(zip(names, row, strict=True)) for row in read]) == expected
    table.export(folder / "out")
    exported = pq.read_table(folder / "out") if expected else None
    assert exported is None or in_order(exported.to_pylist()) == expected
    assert table.verify().findings == ()
