"""Input that a table cannot take: a clear error, and the table is as it was."""

from __future__ import annotations

import datetime as dt

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import (
    BadRequest,
    InputNotFound,
    InputSchemaMismatch,
    InputUnreadable,
    NullKeys,
    PropertiesInvalid,
    QueryInvalid,
    SchemaInvalid,
    SplitPointsInvalid,
    TableAlreadyExists,
    TableNotFound,
)

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("at", pa.int64()),
        pa.field("count", pa.int32(), nullable=False),
        pa.field("note", pa.string()),
    ]
)
GOOD = {"id": "b", "at": 1, "count": 1, "note": None}


@pytest.fixture
def instance(tmp_path):
    return sleeper.connect(tmp_path / "instance", create=True)


@pytest.fixture
def table(instance):
    """A table with one row in one of its two leaves."""
    made = instance.create_table(
        "visits", SCHEMA, row_keys=["id"], sort_keys=["at"], split_points=["m"]
    )
    made.ingest([GOOD])
    return made


def files_of(instance: sleeper.Instance) -> set[str]:
    """Every file of an instance, hidden ones too."""
    objects = instance._context.objects
    return {str(path) for path in objects.root.rglob("*") if path.is_file()}


def refused(instance, table, data, error, *words, **options):
    """Ingest must fail with all these words, and leave rows, state and files as they were."""
    before = (table.state().number, files_of(instance), table.query().to_pylist())

    with pytest.raises(error) as caught:
        table.ingest(data, **options)

    message = str(caught.value)
    assert [word for word in words if word not in message] == [], message
    assert not caught.value.retryable
    assert (table.state().number, files_of(instance), table.query().to_pylist()) == before
    return caught.value


class TestRows:
    """Rows that do not fit the table's schema (rules ING-14, SCH-5)."""

    def test_a_null_key_is_counted_and_placed(self, instance, table):
        """The refusal says how many, in which field, in which rows, and what to do."""
        rows = [GOOD, {**GOOD, "id": None}, {**GOOD, "id": None, "at": None}]

        error = refused(
            *(instance, table, rows, NullKeys),
            *("2 of 3 rows", "2 without 'id'", "1 without 'at'", "rows 1, 2", "set_aside"),
        )

        assert error.null_counts == {"id": 2, "at": 1}

    def test_a_bad_row_after_many_good_ones_leaves_nothing(self, instance, table):
        """Rows may have been sorted and spilled by then; no file of them stays."""
        table.set_properties({"sleeper.table.ingest.memory": "8M"})
        rows = pl.DataFrame({"id": [f"{n:07}" for n in range(200_000)]}).with_columns(
            at=pl.lit(1, pl.Int64), count=pl.lit(1, pl.Int32), note=pl.lit("x" * 50)
        )
        last = rows.tail(1).with_columns(id=pl.lit(None, pl.String))

        refused(instance, table, pl.concat([rows, last]), NullKeys, "1 of 200,001 rows")

    @pytest.mark.parametrize(
        ("row", "words"),
        [
            ({"id": "b", "count": 1}, ["lacks required fields", "'at'"]),
            ({"id": "b", "at": 1}, ["lacks required fields", "'count'"]),
            ({**GOOD, "colour": "red"}, ["'colour'", "the table does not have"]),
            ({**GOOD, "id": 7}, ["row 0", "'id'", "string"]),
            ({**GOOD, "at": "noon"}, ["row 0", "'noon'", "'at'"]),
            ({**GOOD, "at": 1.5}, ["row 0", "1.5", "'at'"]),
            ({**GOOD, "count": 2**31}, ["row 0", "2147483648", "'count'"]),
            ({**GOOD, "count": None}, ["'count'", "required"]),
            ({**GOOD, "at": dt.datetime(2024, 1, 1)}, ["row 0", "'at'"]),
        ],
    )
    def test_a_dict_that_does_not_fit(self, instance, table, row, words):
        """The row, the field and the value are named; a value is never bent to fit."""
        refused(instance, table, [row], InputSchemaMismatch, *words)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda t: t.drop_columns(["at"]), ["lacks required columns ['at']"]),
            (lambda t: t.drop_columns(["count"]), ["lacks required columns ['count']"]),
            (
                lambda t: t.append_column("colour", pa.array(["red"])),
                ["columns ['colour']", "leave them out", "ignore_extra_columns"],
            ),
            (
                lambda t: pa.table([*t.columns, t.column(0)], names=[*t.column_names, "id"]),
                ["more than one column named ['id']", "rename"],
            ),
            (
                lambda t: t.set_column(1, "at", pa.array(["noon"])),
                ["column 'at'", "is string", "int64"],
            ),
            (
                lambda t: t.set_column(2, "count", pa.array([2**31])),
                ["column 'count'", "does not fit"],
            ),
            (
                lambda t: t.set_column(0, "id", pa.array([b"\xff"])),
                ["column 'id'", "UTF"],
            ),
        ],
    )
    def test_columns_that_do_not_fit(self, instance, table, change, words, tmp_path):
        """The same from a file and from memory: the column is named, and what is wanted."""
        given = change(pa.Table.from_pylist([GOOD], SCHEMA))

        refused(instance, table, given, InputSchemaMismatch, *words)
        pq.write_table(given, tmp_path / "given.parquet")
        refused(instance, table, tmp_path / "given.parquet", InputSchemaMismatch, *words)

    def test_extra_columns_go_when_asked(self, table):
        """`ignore_extra_columns` leaves them out, of a table and of a file alike."""
        given = pa.Table.from_pylist([{**GOOD, "colour": "red"}])

        table.ingest(given, ignore_extra_columns=True)

        assert table.query().to_pylist() == [GOOD, GOOD]

    @pytest.mark.parametrize("name", ["notes", "Note", "not_e", "noote"])
    def test_a_misspelt_column_is_not_an_extra_one(self, instance, table, tmp_path, name):
        """It would be left out, and null be stored in its place, in silence."""
        given = pa.Table.from_pylist([{**GOOD, "note": "here", "colour": "red"}])
        given = given.rename_columns({"note": name})
        pq.write_table(given, tmp_path / "given.parquet")

        for data in (given, given.to_pandas(), tmp_path / "given.parquet"):
            refused(
                *(instance, table, data, InputSchemaMismatch, "'note'", repr(name), "misspelt"),
                ignore_extra_columns=True,
            )

    @pytest.mark.parametrize("name", ["colour", "count", "note2", "footnotes"])
    def test_other_columns_are_extra(self, instance, name):
        """Names of another word, or with another number."""
        table = instance.create_table(
            "t", pa.schema([("id", pa.string()), ("note1", pa.string())]), row_keys=["id"]
        )

        table.ingest(pa.table({"id": ["a"], name: ["x"]}), ignore_extra_columns=True)

        assert table.query().to_pylist() == [{"id": "a", "note1": None}]

    def test_a_nullable_column_may_be_missing(self, table):
        """It is null then (rule SCH-5)."""
        table.ingest(pa.Table.from_pylist([GOOD], SCHEMA).drop_columns(["note"]))

        assert table.query().to_pylist() == [GOOD, GOOD]

    def test_a_frame_whose_index_is_no_column(self, instance, table):
        """What pandas holds in a named index is not lost without a word."""
        frame = pd.DataFrame([GOOD], index=pd.Index(["row-1"], name="label"))

        refused(instance, table, frame, InputSchemaMismatch, "['label']", "reset_index(drop=True)")

    @pytest.mark.parametrize("data", [7, None, [1, 2], ["b", 2], object()])
    def test_what_holds_no_rows(self, instance, table, data):
        """The refusal says what can be given."""
        refused(instance, table, data, BadRequest, "iterable of dicts")

    def test_a_row_that_is_in_no_list(self, instance, table):
        """A dict is one of columns, so the refusal says how a single row is given."""
        refused(instance, table, GOOD, BadRequest, "one row is given as [row]")

    def test_a_source_that_fails_on_its_way(self, instance, table):
        """An error of the caller's own comes through as it is, and nothing of it stays."""

        def rows():
            yield GOOD
            raise ZeroDivisionError

        before = table.state().number, files_of(instance)

        with pytest.raises(ZeroDivisionError):
            table.ingest(rows())

        assert (table.state().number, files_of(instance)) == before


class TestFiles:
    """Paths that name nothing good."""

    def test_no_such_file(self, instance, table, tmp_path):
        """The path is named."""
        refused(instance, table, tmp_path / "none.parquet", InputNotFound, "none.parquet")

    def test_a_folder_without_parquet(self, instance, table, tmp_path):
        """A folder must have at least one file (rule ING-11)."""
        (tmp_path / "in").mkdir()
        (tmp_path / "in/notes.txt").touch()

        refused(instance, table, tmp_path / "in", InputNotFound, "no *.parquet file below it")
        (tmp_path / "in/sheet.xlsx").touch()
        words = "JSON lines; it has notes.txt, sheet.xlsx"
        refused(instance, table, tmp_path / "in", InputNotFound, words)

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            (b"", ["is empty"]),
            (b"id,at\nb,1\n", ["cannot be read as Parquet"]),
            (b"PAR1" + b"\0" * 100 + b"PAR1", ["cannot be read as Parquet"]),
        ],
    )
    def test_a_file_of_something_else(self, instance, table, tmp_path, body, words):
        """The file is named, and what to do; good files beside it are not taken either."""
        (tmp_path / "in").mkdir()
        pq.write_table(pa.Table.from_pylist([GOOD], SCHEMA), tmp_path / "in/a.parquet")
        (tmp_path / "in/b.parquet").write_bytes(body)

        refused(instance, table, tmp_path / "in", InputUnreadable, "b.parquet", *words)

    @pytest.mark.parametrize("kept", [0.3, 0.9])
    def test_a_truncated_file(self, instance, table, tmp_path, kept):
        """Half a download is no input."""
        path = tmp_path / "a.parquet"
        pq.write_table(pa.Table.from_pylist([GOOD] * 1000, SCHEMA), path)
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * kept)])

        refused(instance, table, path, InputUnreadable, "a.parquet", "replace the file")

    def test_damage_in_the_middle(self, instance, table, tmp_path):
        """Seen while rows are read, when others were already written."""
        path = tmp_path / "a.parquet"
        rows = pa.Table.from_pylist([{**GOOD, "note": f"{n}" * 9} for n in range(5000)], SCHEMA)
        pq.write_table(rows, path, write_page_checksum=True, compression="none")
        whole = bytearray(path.read_bytes())
        whole[len(whole) // 2] ^= 0xFF
        path.write_bytes(whole)

        refused(instance, table, path, InputUnreadable, "a.parquet")

    def test_the_same_file_twice(self, instance, table, tmp_path):
        """Naming a file and its folder would double its rows."""
        pq.write_table(pa.Table.from_pylist([GOOD], SCHEMA), tmp_path / "a.parquet")

        refused(instance, table, [tmp_path / "a.parquet", tmp_path], InputNotFound, "given twice")

    def test_nothing_to_read_is_no_error(self, table, tmp_path):
        """Zero rows add nothing: no file, no transaction; with a job id, only the job."""
        empty = tmp_path / "a.parquet"
        pq.write_table(SCHEMA.empty_table(), empty)
        before = table.state()

        for data in (empty, [], iter([]), SCHEMA.empty_table()):
            assert table.ingest(data).rows_read == 0
        assert table.state().number == before.number
        assert table.ingest(empty, job_id="empty").transaction == before.number + 1
        assert table.ingest([GOOD], job_id="empty").already_committed
        assert table.query().to_pylist() == [GOOD]

    def test_rows_set_aside_go_nowhere_when_the_rest_fails(self, instance, table, tmp_path):
        """The file of rows set aside appears together with the commit, or not at all."""
        rows = [{**GOOD, "id": None}, {**GOOD, "count": None}]
        aside = tmp_path / "aside.parquet"

        refused(instance, table, rows, InputSchemaMismatch, "'count'", set_aside=aside)

        assert list(tmp_path.glob("*aside*")) == []


class TestTables:
    """Tables that cannot be made, or are not there."""

    def made_nothing(self, instance):
        return instance.tables() == () and files_of(instance) == {
            f"{instance.url}/instance.properties"
        }

    def test_an_unknown_table_has_its_neighbours_named(self, instance, table):
        """A slip of the pen is answered with the right name."""
        with pytest.raises(TableNotFound, match="did you mean 'visits'"):
            instance.table("visit")
        with pytest.raises(TableNotFound, match="the instance has visits"):
            instance.delete_table("else")

    def test_a_name_is_taken_once(self, instance, table):
        """Making or renaming to a taken name is refused (rules TBL-1, TBL-3)."""
        other = instance.create_table("other", SCHEMA, row_keys=["id"])

        with pytest.raises(TableAlreadyExists, match="visits"):
            instance.create_table("visits", SCHEMA, row_keys=["id"])
        with pytest.raises(TableAlreadyExists, match="visits"):
            other.rename("visits")

        assert [record.name for record in instance.tables()] == ["other", "visits"]
        assert table.query().to_pylist() == [GOOD]

    @pytest.mark.parametrize("name", ["", " x", "x\n", "a\x00b", "\udcff"])
    def test_a_name_must_be_text(self, instance, name):
        """Names that could not be typed or shown are refused, and nothing is made."""
        with pytest.raises(BadRequest, match="cannot be a table's name"):
            instance.create_table(name, SCHEMA, row_keys=["id"])

        assert self.made_nothing(instance)

    @pytest.mark.parametrize(
        ("schema", "keys", "message"),
        [
            (SCHEMA, {}, "give row_keys"),
            (SCHEMA, {"row_keys": ["no"]}, "not among the columns"),
            (pa.schema([("id", pa.time32("s"))]), {"row_keys": ["id"]}, "derive a key from it"),
            (pa.schema([("id", pa.float64())]), {"row_keys": ["id"]}, "id"),
            (pa.schema([("id", pa.string())] * 2), {"row_keys": ["id"]}, "more than one column"),
            ("{}", {}, "Must have at least one row key field"),
            ('{"rowKeyFields": 7}', {}, "must be a list"),
            ("not json", {}, "schema"),
        ],
    )
    def test_a_schema_that_breaks_a_rule(self, instance, schema, keys, message):
        """What is wrong is said (rules SCH-1 to SCH-6), and nothing is made."""
        with pytest.raises(BadRequest, match=message):
            instance.create_table("t", schema, **keys)

        assert self.made_nothing(instance)

    def test_all_wrong_properties_are_counted(self, instance, table):
        """The first is told, all are in `failures`, and no value changed (rule INS-6)."""
        wrong = {
            "sleeper.table.gc.delay.minutes": "soon",
            "sleeper.table.parquet.page.rows": "0",
            "sleeper.table.filters": "ageOff(nothing,1)",
        }

        with pytest.raises(PropertiesInvalid, match=r"Failure 1 of 3\.") as caught:
            instance.create_table("t", SCHEMA, row_keys=["id"], properties=wrong)
        with pytest.raises(PropertiesInvalid):
            table.set_properties(wrong)

        assert set(caught.value.failures) == set(wrong)
        assert [record.name for record in instance.tables()] == ["visits"]
        assert set(table.properties.values) == {"sleeper.table.schema"}

    @pytest.mark.parametrize(
        ("points", "message"),
        [
            (["b", "a"], "should be less than"),
            (["a", "a"], "duplicate"),
            ([1], "should be of type"),
            (["a", None], "should be of type"),
            ([""], "smallest|first|minimum|least|empty"),
        ],
    )
    def test_split_points_that_are_none(self, instance, points, message):
        """Of the wrong type, unsorted or repeated (rule TBL-9)."""
        with pytest.raises(SplitPointsInvalid, match=message):
            instance.create_table("t", SCHEMA, row_keys=["id"], split_points=points)

        assert self.made_nothing(instance)

    def test_new_split_points_are_checked_before_rows_go(self, table):
        """A table is emptied only if it can have the partitions asked for (rule TBL-5)."""
        with pytest.raises(SplitPointsInvalid):
            table.reinitialise(["b", "a"])

        assert table.query().to_pylist() == [GOOD]
        assert table.split_points() == ["m"]


class TestQuestions:
    """Queries that cannot be (rules QRY-1, PRT-1)."""

    @pytest.mark.parametrize(
        ("asked", "message"),
        [
            ({"range": {"count": (1, 2)}}, "not a row key field"),
            ({"range": {"nothing": (1, 2)}}, "not a row key field"),
            ({"range": {"id": ("b", "a")}}, "minimum 'b' above its maximum 'a'"),
            ({"range": {"id": ("a",)}}, "must be"),
            ({"range": {"id": (1, 2)}}, "1 is not a value for key field 'id'"),
            ({"key": 7}, "must be a string"),
            ({"key": ("a", 1)}, "a row key has 1 values"),
            ({"key": {}}, "needs a value"),
            ({"keys": ["a", 7]}, "7"),
            ({"key": "a", "keys": ["b"]}, "not by several"),
            ({"columns": []}, "at least one column"),
            ({"columns": ["id", "id"]}, "each once"),
            ({"columns": "id"}, r"did you mean \['id'\]"),
            ({"columns": ["colour"]}, "no column 'colour'; it has id, at, count, note"),
        ],
    )
    def test_the_question_is_named(self, table, asked, message):
        """What was asked is in the message; the table answers others."""
        with pytest.raises(QueryInvalid, match=message):
            table.query(**asked)

        assert table.query(key="b").to_pylist() == [GOOD]

    def test_a_schema_is_refused_by_its_own_class(self):
        """A schema made by hand is checked as one from a file."""
        with pytest.raises(SchemaInvalid, match="Must have at least one row key field"):
            sleeper.Schema(row_keys=())


@pytest.mark.parametrize("make", [lambda frame: frame, lambda frame: frame.lazy()])
def test_a_frame_of_polars_with_nul_in_a_name_is_refused(tmp_path, make):
    """polars would end the process: no exception could be caught."""
    table = sleeper.connect(tmp_path / "i", create=True).create_table(
        "t", pa.schema([pa.field("k", pa.int64(), nullable=False)]), row_keys=["k"]
    )
    frame = make(pl.DataFrame({"k": [1], "a\0b": [2]}))

    with pytest.raises(InputSchemaMismatch, match="NUL character"):
        table.ingest(frame, ignore_extra_columns=True)


@pytest.mark.parametrize("name", ["a\0b", "\0", "a\0"])
def test_a_field_with_nul_in_its_name_is_refused_when_a_table_is_created(tmp_path, name):
    """Later each ingest would end in a panic."""
    instance = sleeper.connect(tmp_path / "i", create=True)
    for fields in ([("k", pa.int64()), (name, pa.string())], [(name, pa.int64())]):
        with pytest.raises(SchemaInvalid, match="NUL character"):
            instance.create_table("t", pa.schema(fields), row_keys=[fields[0][0]])
    assert instance.tables() == ()
