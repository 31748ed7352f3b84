"""What users hand to `table.ingest`: files, folders, tables in memory, dicts."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest

from sleeper.engine.arrow_schema import conform, to_arrow
from sleeper.engine.inputs.sources import first_key_columns, open_source
from sleeper.errors import BadRequest, InputNotFound, InputSchemaMismatch, InputUnreadable
from sleeper.model.schema import Field, ListType, MapType, Primitive, Schema

SCHEMA = Schema(
    row_keys=(Field("id", Primitive.LONG),),
    values=(Field("name", Primitive.STRING, nullable=True),),
)
ARROW = to_arrow(SCHEMA)
ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": 3, "name": "c"}]


def parquet(path, rows=ROWS, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows, schema=ARROW)
    pq.write_table(table, path, **options)
    return path


def rows_of(data, arrow_schema=ARROW, *, ignore=False) -> list[dict]:
    source = open_source(data, arrow_schema)
    source.check(ignore_extra_columns=ignore)
    return [
        row
        for batch in source.batches()
        for row in conform(
            batch,
            arrow_schema,
            key_names=arrow_schema.names[:1],
            ignore_extra_columns=ignore,
            origin=source.origin,
        ).to_pylist()
    ]


class TestPaths:
    """A path is a file or a folder, never a prefix (rule ING-11)."""

    def test_may_be_a_file(self, tmp_path):
        """As text, as a Path, or as a file:// URL."""
        path = parquet(tmp_path / "a b.parquet")

        for given in (str(path), path, path.as_uri(), os.fsencode(path)):
            assert rows_of(given) == ROWS

    def test_may_be_a_folder(self, tmp_path):
        """All *.parquet below it, sorted; what tools leave beside them is no input."""
        for number, name in enumerate(("b.parquet", "sub/c.parquet", "a.parquet", "sub.parquet")):
            parquet(tmp_path / name, [{"id": number, "name": name}])
        for name in ("_metadata.parquet", ".hidden.parquet", "_tmp/x.parquet", ".a.parquet.crc"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("no Parquet")
        (tmp_path / "_SUCCESS").touch()
        (tmp_path / "notes.txt").touch()

        names = [row["name"] for row in rows_of(tmp_path)]

        assert names == ["a.parquet", "b.parquet", "sub.parquet", "sub/c.parquet"]

    def test_may_be_a_folder_that_is_named_like_a_file(self, tmp_path):
        """Spark writes folders called x.parquet."""
        parquet(tmp_path / "x.parquet" / "part-0.parquet")

        assert rows_of(tmp_path / "x.parquet") == ROWS
        assert rows_of(tmp_path) == ROWS

    def test_may_be_several(self, tmp_path):
        """Files are read in the order given."""
        first = parquet(tmp_path / "z.parquet", [{"id": 1, "name": "z"}])
        second = parquet(tmp_path / "a.parquet", [{"id": 2, "name": "a"}])

        assert [row["id"] for row in rows_of([first, str(second)])] == [1, 2]

    def test_never_stand_for_others_that_begin_alike(self, tmp_path):
        """`b/a` does not take `b/ab.parquet`."""
        parquet(tmp_path / "ab.parquet")

        with pytest.raises(InputNotFound, match="no file or folder"):
            open_source(tmp_path / "a", ARROW)

    def test_may_have_any_name(self, tmp_path):
        """A name that is no UTF-8 is read, and shown with escapes."""
        path = os.fsencode(tmp_path) + b"/\xff.parquet"
        parquet(tmp_path / "ok.parquet").rename(os.fsdecode(path))

        source = open_source(path, ARROW)

        assert rows_of(path) == ROWS
        assert r"\\xff.parquet" in source.name

    def test_are_refused_when_a_folder_has_no_parquet(self, tmp_path):
        """An empty folder is a mistake, not empty input."""
        (tmp_path / "data.txt").touch()

        with pytest.raises(InputNotFound, match=r"no \*\.parquet"):
            open_source(tmp_path, ARROW)

    def test_are_refused_when_a_file_is_named_twice(self, tmp_path):
        """Its rows would be doubled: by its name, its folder, or a link."""
        path = parquet(tmp_path / "a.parquet")
        link = tmp_path / "other" / "link.parquet"
        link.parent.mkdir()
        link.symlink_to(path)

        for paths in ([path, path], [tmp_path / "other", path], [path, tmp_path]):
            with pytest.raises(InputNotFound, match="twice"):
                open_source(paths, ARROW)

    def test_do_not_go_round_in_links(self, tmp_path):
        """A folder that links to itself is read once."""
        parquet(tmp_path / "a.parquet")
        (tmp_path / "again").symlink_to(tmp_path)

        assert rows_of(tmp_path) == ROWS

    def test_are_refused_on_other_machines(self):
        """The error says what is read."""
        with pytest.raises(InputNotFound, match="file://"):
            open_source("s3://bucket/a.parquet", ARROW)


class TestFiles:
    """What footers tell, and what goes wrong in files."""

    def test_tell_their_rows_beforehand(self, tmp_path):
        """The sum of all footers, for a progress bar."""
        parquet(tmp_path / "a.parquet")
        parquet(tmp_path / "b.parquet", ROWS[:1])

        source = open_source(tmp_path, ARROW)

        assert source.row_count == 4
        assert [Path(file).name for file in source.files] == ["a.parquet", "b.parquet"]
        assert source.name == "2 files"

    def test_may_have_no_rows(self, tmp_path):
        """An empty file is a file."""
        assert rows_of(parquet(tmp_path / "a.parquet", [])) == []

    @pytest.mark.parametrize(
        ("body", "reason"),
        [(b"", "empty"), (b"id,name\n1,a\n" * 50, "text"), (b"PAR1", "small|magic|bytes")],
    )
    def test_that_are_not_parquet_are_named(self, tmp_path, body, reason):
        """Before any row of any file is read."""
        parquet(tmp_path / "a.parquet")
        (tmp_path / "b.parquet").write_bytes(body)

        with pytest.raises(InputUnreadable, match=rf"b\.parquet.*{reason}"):
            open_source(tmp_path, ARROW).check(ignore_extra_columns=False)

    def test_that_are_cut_short_are_named(self, tmp_path):
        """However many bytes are missing."""
        whole = parquet(tmp_path / "a.parquet").read_bytes()

        for size in range(1, len(whole), 37):
            (tmp_path / "a.parquet").write_bytes(whole[:size])
            with pytest.raises(InputUnreadable, match=r"a\.parquet"):
                open_source(tmp_path, ARROW).check(ignore_extra_columns=False)

    def test_that_are_damaged_inside_are_named_when_they_are_read(self, tmp_path):
        """A page that does not match its checksum, or does not decode."""
        path = parquet(tmp_path / "a.parquet", write_page_checksum=True, compression="none")
        body = bytearray(path.read_bytes())
        body[4:40] = b"\xee" * 36
        path.write_bytes(body)

        with pytest.raises(InputUnreadable, match=r"a\.parquet"):
            rows_of(path)

    def test_that_vanish_are_named(self, tmp_path):
        """Between being found and being read."""
        path = parquet(tmp_path / "a.parquet")
        source = open_source(path, ARROW)
        source.check(ignore_extra_columns=False)
        path.unlink()

        with pytest.raises(InputNotFound, match="no longer exists"):
            list(source.batches())

    def test_are_all_compared_with_the_table_first(self, tmp_path):
        """A mismatch in the last file is told before the first is read."""
        parquet(tmp_path / "a.parquet")
        parquet(tmp_path / "z.parquet", pa.table({"id": ["text"], "name": ["a"]}))

        with pytest.raises(InputSchemaMismatch, match=r"'id' of .*z\.parquet"):
            open_source(tmp_path, ARROW).check(ignore_extra_columns=False)

    def test_may_have_columns_to_be_ignored(self, tmp_path):
        """Such columns are not even read."""
        path = parquet(tmp_path / "a.parquet", pa.table({"extra": [1.5], "id": [1], "name": ["a"]}))
        source = open_source(path, ARROW)

        with pytest.raises(InputSchemaMismatch, match="extra"):
            source.check(ignore_extra_columns=False)
        source.check(ignore_extra_columns=True)

        assert [batch.schema.names for batch in source.batches()] == [["id", "name"]]

    def test_are_checked_even_if_nobody_asked(self, tmp_path):
        """Reading without a check checks first."""
        path = parquet(tmp_path / "a.parquet", pa.table({"extra": [1.5], "id": [1], "name": ["a"]}))

        with pytest.raises(InputSchemaMismatch, match="extra"):
            next(open_source(path, ARROW).batches())

    def test_are_read_in_batches_of_bounded_size(self, tmp_path):
        """Rows of many bytes come in fewer at once."""
        wide = pa.table({"id": range(200), "name": ["x" * 1_000_000] * 200})
        path = parquet(tmp_path / "a.parquet", wide, use_dictionary=False)

        sizes = [batch.nbytes for batch in open_source(path, ARROW).batches()]

        assert max(sizes) <= 40 << 20
        assert sum(sizes) >= 200_000_000

    def test_name_the_file_that_a_batch_came_from(self, tmp_path):
        """`origin` follows the reading."""
        parquet(tmp_path / "a.parquet")
        parquet(tmp_path / "b.parquet")
        source = open_source(tmp_path, ARROW)

        origins = [Path(source.origin.strip("'")).name for _ in source.batches()]

        assert origins == ["a.parquet", "b.parquet"]


class TestMemory:
    """Rows that other libraries hold."""

    TABLE = pa.Table.from_pylist(ROWS, schema=ARROW)

    @pytest.mark.parametrize(
        ("make", "row_count"),
        [
            (lambda t: t, 3),
            (lambda t: t.to_batches()[0], 3),
            (lambda t: t.to_reader(), None),
            (pds.dataset, None),
            (pl.from_arrow, 3),
            (lambda t: duckdb.sql("select * from t order by id"), None),
            (lambda t: t.to_pandas(types_mapper=pd.ArrowDtype), 3),
            (lambda t: t.to_pylist(), 3),
            (lambda t: iter(t.to_pylist()), None),
        ],
        ids=[
            "Table",
            "batch",
            "reader",
            "dataset",
            "polars",
            "duckdb",
            "pandas",
            "dicts",
            "iterator",
        ],
    )
    def test_come_as_they_are(self, make, row_count):
        """Every way in gives the same rows."""
        data = make(self.TABLE)

        assert open_source(data, ARROW).row_count == row_count
        assert rows_of(make(self.TABLE)) == ROWS

    def test_are_cut_into_batches_of_bounded_size(self):
        """However large the chunks of a table are."""
        table = pa.table({"id": range(300_000), "name": pa.nulls(300_000, pa.string())})

        counts = [batch.num_rows for batch in open_source(table, ARROW).batches()]

        assert counts == [131_072, 131_072, 37_856]

    def test_are_refused_if_a_stream_is_read_twice(self):
        """The second time there would be nothing, in silence."""
        source = open_source(self.TABLE.to_reader(), ARROW)
        list(source.batches())

        with pytest.raises(BadRequest, match="already read"):
            list(source.batches())

    def test_are_compared_with_the_table_first(self):
        """Where the schema is known, a mismatch is told before a row is read."""
        with pytest.raises(InputSchemaMismatch, match="the DataFrame lacks"):
            open_source(pl.DataFrame({"other": [1]}), ARROW).check(ignore_extra_columns=False)

    @pytest.mark.parametrize("data", [None, 7, [1, 2], ["a", 1], {1, 2}])
    def test_are_refused_where_there_are_none(self, data):
        """What holds no rows is told apart from what cannot be read."""
        with pytest.raises(BadRequest, match="iterable of dicts"):
            open_source(data, ARROW)

    def test_may_be_none(self):
        """An empty list is no rows."""
        assert rows_of([]) == []


class TestDicts:
    """Rows as Python dicts."""

    TYPES = to_arrow(
        Schema(
            row_keys=(Field("id", Primitive.LONG),),
            values=(
                Field("at", Primitive.TIMESTAMP, nullable=True),
                Field("clock", Primitive.TIMESTAMP_NTZ, nullable=True),
                Field("day", Primitive.DATE, nullable=True),
                Field("float", Primitive.FLOAT, nullable=True),
                Field("flag", Primitive.BOOLEAN, nullable=True),
                Field("bytes", Primitive.BYTES, nullable=True),
                Field("list", ListType(Primitive.INT), nullable=True),
                Field("map", MapType(Primitive.STRING, Primitive.LONG), nullable=True),
            ),
        )
    )

    def test_may_have_values_of_every_type(self):
        """Python's own types; a nullable field may be missing."""
        row = {
            "id": 1,
            "at": datetime(2020, 1, 1, tzinfo=UTC),
            "clock": datetime(2020, 1, 1),
            "day": date(2020, 1, 1),
            "float": 0.5,
            "flag": True,
            "bytes": b"\xff",
            "list": [1, 2],
            "map": {"a": 1},
        }

        first, second = rows_of([row, {"id": 2, "list": [], "map": {}}], self.TYPES)

        assert first == {**row, "map": [("a", 1)]}
        assert second == {**dict.fromkeys(row), "id": 2, "list": [], "map": []}

    def test_take_the_nearest_float(self):
        """A Python number has no exact float otherwise."""
        assert rows_of([{"id": 1, "float": 0.1}], self.TYPES)[0]["float"] == pytest.approx(0.1)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("id", "1"),
            ("id", 1.5),
            ("id", True),
            ("id", 2**63),
            ("at", datetime(2020, 1, 1)),
            ("clock", datetime(2020, 1, 1, tzinfo=UTC)),
            ("day", datetime(2020, 1, 1)),
            ("float", "x"),
            ("bytes", 5),
            ("list", [1.5]),
            ("list", 1),
            ("map", {"a": 1.5}),
            ("map", {1: 1}),
        ],
    )
    def test_are_refused_where_a_value_does_not_fit(self, field, value):
        """The error names the row, the field and the value; nothing is cut or guessed."""
        rows = [{"id": 1}, {"id": 2, field: value}]

        with pytest.raises(InputSchemaMismatch, match="row 1 of the list of dicts") as refused:
            rows_of(rows, self.TYPES)

        assert repr(field) in str(refused.value)
        assert repr(value) in str(refused.value)

    def test_are_refused_with_fields_that_the_table_has_not(self):
        """A misspelt name is no reason to store null."""
        with pytest.raises(InputSchemaMismatch, match=r"row 1 .*\['nmae'\]"):
            rows_of([{"id": 1}, {"id": 2, "nmae": "a"}])

    def test_may_have_fields_to_be_ignored(self):
        """Of a list, and of rows that are read once; a field may be in some rows alone."""
        rows = [{"id": 4, "colour": "red", "name": None}, {"id": 5}, {"id": 6, "size": 2}]
        wanted = [{"id": number, "name": None} for number in (4, 5, 6)]

        assert rows_of(rows, ignore=True) == wanted
        assert rows_of(iter(rows), ignore=True) == wanted

    def test_ignore_no_field_that_may_be_misspelt(self):
        """All values of the field that is meant would be null."""
        with pytest.raises(InputSchemaMismatch, match=r"'Names'.*misspelt"):
            rows_of([{"id": 4, "Names": "a"}], ignore=True)

    def test_lack_required_fields_also_where_others_are_ignored(self):
        """The row is named."""
        with pytest.raises(InputSchemaMismatch, match=r"row 1 .* lacks required fields \['id'\]"):
            rows_of([{"id": 4, "x": 1}, {"name": "a", "x": 1}], ignore=True)

    def test_are_refused_without_required_fields(self):
        """The row is counted from 0, through all batches."""
        rows = ({"id": n} if n != 10_001 else {"name": "a"} for n in range(20_000))

        with pytest.raises(
            InputSchemaMismatch, match=r"row 10001 .*lacks required fields \['id'\]"
        ):
            rows_of(rows)

    def test_are_refused_among_other_things(self):
        """Every row is a dict."""
        with pytest.raises(InputSchemaMismatch, match=r"row 1 .*is not a dict"):
            rows_of([{"id": 1}, ("id", 2)])

    def test_may_have_null_keys_for_others_to_judge(self):
        """None in a key is null, as in any other input."""
        batches = list(open_source([{"id": None}], ARROW).batches())

        assert batches[0].column("id").null_count == 1


class TestFirstKeyColumns:
    """What split points are estimated from (rule TBL-10)."""

    def test_are_the_first_rows_of_each_file(self, tmp_path):
        """Only that column, whatever else is there."""
        parquet(
            tmp_path / "a.parquet", pa.table({"extra": [0] * 3, "id": [1, 2, 3], "name": ["a"] * 3})
        )
        parquet(
            tmp_path / "b.parquet",
            pa.table({"id": pa.array([4, 5, 6], pa.int32()), "name": ["a"] * 3}),
        )

        columns = list(first_key_columns(open_source(tmp_path, ARROW), ARROW, 2))

        assert [column.to_pylist() for column in columns] == [[1, 2], [4, 5]]

    def test_may_be_all_rows(self):
        """Without a limit every value is taken, in memory too."""
        columns = list(first_key_columns(open_source(TestMemory.TABLE, ARROW), ARROW, None))

        assert [column.to_pylist() for column in columns] == [[1, 2, 3]]
