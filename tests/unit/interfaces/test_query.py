"""`sleeper query`: what can be asked on a command line, and how rows are written."""

from __future__ import annotations

import json

import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from tests.unit.interfaces.command_line import (
    ROWS,
    make_trips,
    rows_of,
    sleeper,
    write_rows,
    write_schema,
)


@pytest.fixture(scope="module")
def trips(tmp_path_factory):
    """A function that queries the table `trips`."""
    url = make_trips(tmp_path_factory.mktemp("trips"))
    return lambda *options: sleeper("query", "trips", *options, "--instance", url)


class TestQuestions:
    """--key, --range, --keys-file, --columns and --as-of."""

    def test_without_a_question_all_rows_come_in_key_order(self, trips):
        """An empty question is the whole table."""
        assert rows_of(trips("--json")) == ROWS

    @pytest.mark.parametrize(
        ("options", "wanted"),
        [
            (["--key", "taxi=a"], [0, 1]),
            (["--key", "taxi=a", "--key", "day=1234"], [1]),
            (["--key", "taxi=m", "--key", "day=1", "--key", "taxi=a"], [0, 2]),
            (["--key", "taxi=a", "--key", "taxi=m"], [0, 1, 2]),
            (["--key", "taxi=z, \u2028="], [3]),
            (["--key", "taxi=nobody"], []),
            (["--range", "taxi=a,m"], [0, 1]),
            (["--range", "taxi=m,"], [2, 3]),
            (["--range", "taxi=,m", "--range", "day=2,"], [1]),
            (["--range", "day=,0", "--range", "day=1000,2000"], [1, 3]),
        ],
    )
    def test_keys_and_ranges_may_be_repeated(self, trips, options, wanted):
        """The same field again asks for more values; another field narrows (design 7)."""
        assert rows_of(trips(*options, "--json")) == [ROWS[place] for place in wanted]

    @pytest.mark.parametrize(
        ("options", "wanted"),
        [
            (["--prefix", "taxi="], [0, 1, 2, 3]),
            (["--prefix", "taxi=z, "], [3]),
            (["--prefix", "taxi=a", "--prefix", "taxi=z"], [0, 1, 3]),
            (["--prefix", "taxi=a", "--key", "day=1234"], [1]),
            (["--prefix", "taxi=a", "--key", "day=1", "--key", "day=1234"], [0, 1]),
            (["--prefix", "taxi=", "--range", "day=,1"], [3]),
            (["--prefix", "taxi=", "--range", "day=,0", "--range", "day=1000,"], [1, 3]),
            (["--prefix", "taxi=b"], []),
            (["--key", "day=1"], [0, 2]),
        ],
    )
    def test_a_prefix_may_stand_with_other_fields(self, trips, options, wanted):
        """Also with a later field of a composite key alone."""
        assert rows_of(trips(*options, "--json")) == [ROWS[place] for place in wanted]
        count = trips(*options, "--count")
        assert count.stdout == f"{len(wanted)}\n"

    @pytest.mark.parametrize(
        ("text", "wanted"),
        [
            ('"z, ","z-"', [3]),
            ('"z, ",', [3]),
            (',"z, "', [0, 1, 2]),
            ('a,"m"', [0, 1]),
            ('"",b', [0, 1]),
            ('"a""",z', [2]),
            ('a",z', [2]),
        ],
    )
    def test_a_value_with_a_comma_is_quoted(self, trips, text, wanted):
        """As in CSV: a quote inside is doubled, and an unquoted value may contain one."""
        found = rows_of(trips("--range", f"taxi={text}", "--json"))

        assert found == [ROWS[place] for place in wanted]

    def test_bytes_and_prefixes_of_them_are_base64(self, tmp_path):
        """A prefix of bytes is any number of whole bytes."""
        url = make_trips(tmp_path)
        schema = write_schema(tmp_path, {"rowKeyFields": [{"name": "k", "type": "ByteArrayType"}]})
        sleeper("table", "add", "raw", "--schema", schema, "--instance", url)
        keys = [b"a\xff", b"a\xff\x00", b"b"]
        rows = write_rows(tmp_path / "r.parquet", [{"k": key} for key in keys])
        sleeper("ingest", "raw", rows, "--instance", url)

        found = sleeper("query", "raw", "--prefix", "k=Yf8=", "--json", "--instance", url)

        assert [row["k"] for row in rows_of(found)] == ["Yf8=", "Yf8A"]

    @pytest.mark.parametrize("ending", ["\n", "\r\n", ""])
    def test_a_file_holds_one_key_a_line(self, trips, tmp_path, ending):
        """Values of a composite key are separated by tabs; any line ending will do."""
        lines = ["m\t1", "z, \u2028=\t-5", "nobody\t7"]
        (tmp_path / "keys.txt").write_bytes(
            ("\ufeff" + (ending or "\n").join(lines) + ending).encode()
        )

        found = rows_of(trips("--keys-file", tmp_path / "keys.txt", "--json"))

        assert found == [ROWS[2], ROWS[3]]

    def test_a_file_without_keys_finds_nothing(self, trips, tmp_path):
        """No keys is a question too, and not the whole table."""
        (tmp_path / "keys.txt").touch()

        assert rows_of(trips("--keys-file", tmp_path / "keys.txt", "--json")) == []

    def test_a_table_with_one_key_field_takes_a_line_as_it_is(self, tmp_path):
        """Tabs are part of the key where there is nothing to separate."""
        url = make_trips(tmp_path)
        one_key = {"rowKeyFields": [{"name": "id", "type": "StringType"}]}
        schema = write_schema(tmp_path, one_key)
        sleeper("table", "add", "plain", "--schema", schema, "--instance", url)
        rows = write_rows(tmp_path / "r.parquet", [{"id": "a\tb"}, {"id": "c"}, {"id": "d"}])
        sleeper("ingest", "plain", rows, "--instance", url)
        (tmp_path / "keys.txt").write_text("a\tb\nc\n")

        found = sleeper(
            "query", "plain", "--keys-file", tmp_path / "keys.txt", "--json", "--instance", url
        )

        assert rows_of(found) == [{"id": "a\tb"}, {"id": "c"}]

    def test_columns_come_in_the_order_asked(self, trips):
        """--columns takes names between commas, and may be repeated."""
        assert rows_of(trips("--key", "taxi=m", "--columns", "fare,taxi", "--json")) == [
            {"fare": 3.0, "taxi": "m"}
        ]
        assert rows_of(
            trips("--key", "taxi=m", "--columns", "fare", "--columns", "at", "--json")
        ) == [{"fare": 3.0, "at": 30}]

    def test_the_table_as_it_was(self, trips):
        """--as-of asks one transaction; 1 made the table, 2 brought the rows."""
        assert rows_of(trips("--as-of", 1, "--json")) == []
        assert len(rows_of(trips("--as-of", 2, "--json"))) == 4
        assert len(rows_of(trips("--as-of", "2999-12-31T00:00:00+01:00", "--json"))) == 4

    def test_names_with_signs_in_them(self, tmp_path):
        """A field may have `=` or `,` in its name; a known name is not cut at them."""
        url = make_trips(tmp_path)
        odd = {
            "rowKeyFields": [{"name": "a=b", "type": "StringType"}],
            "valueFields": [{"name": "c,d", "type": "LongType"}, {"name": "c", "type": "LongType"}],
        }
        schema = write_schema(tmp_path, odd)
        sleeper("table", "add", "odd = name, v1.0", "--schema", schema, "--instance", url)
        rows = write_rows(tmp_path / "r.parquet", [{"a=b": "x=y", "c,d": 1, "c": 2}])
        sleeper("ingest", "odd = name, v1.0", rows, "--instance", url)

        found = sleeper(
            *("query", "odd = name, v1.0", "--key", "a=b=x=y", "--instance", url, "--json"),
            *("--columns", "c,d", "--columns", "c,a=b"),
        )

        assert rows_of(found) == [{"c,d": 1, "c": 2, "a=b": "x=y"}]


class TestOutput:
    """--format, --json and --output."""

    def test_a_table_for_people_shows_values_that_can_be_asked_for(self, trips):
        """Numbers are written as --key reads them; what does not print is an escape."""
        shown = trips().stdout.splitlines()

        assert shown[0].split() == ["taxi", "day", "at", "fare"]
        assert shown[3].split() == ["a", "1234", "20"]
        assert shown[5].startswith("z, \\u2028=")
        assert shown[-1] == "4 rows (transaction 2)"

    def test_a_value_cannot_move_the_cursor_or_become_something_else(self, tmp_path):
        """Control characters are escapes, markup and emoji codes stay text, a row is one line."""
        url = make_trips(tmp_path)
        text = "\x1b[31m[bold]:cat:\nnext" + "w" * 12_000
        rows = write_rows(tmp_path / "r.parquet", [{**ROWS[0], "taxi": text}])
        sleeper("ingest", "trips", rows, "--instance", url)

        shown = sleeper("query", "trips", "--range", "taxi=,a", "--instance", url).stdout

        assert "\\x1b[31m[bold]:cat:\\nnext" + "w" * 12_000 in shown
        assert len(shown.splitlines()) == 4

    def test_only_the_first_rows_are_shown(self, tmp_path):
        """A table for people stops at 1,000 rows and says how many there are."""
        url = make_trips(tmp_path)
        many = [{**ROWS[0], "taxi": "k", "at": n} for n in range(1500)]
        sleeper("ingest", "trips", write_rows(tmp_path / "r.parquet", many), "--instance", url)

        shown = sleeper("query", "trips", "--key", "taxi=k", "--instance", url).stdout.splitlines()

        assert len(shown) == 1003
        assert shown[-1] == "1,500 rows, the first 1,000 shown (transaction 3)"

    def test_without_a_question_the_first_rows_are_shown(self, tmp_path):
        """Given more than 20 rows, then stderr says how to see more; scripts get all rows."""
        url = make_trips(tmp_path)
        many = [{**ROWS[0], "taxi": "k", "at": n} for n in range(1500)]
        sleeper("ingest", "trips", write_rows(tmp_path / "r.parquet", many), "--instance", url)

        def ask(*options):
            done = sleeper("query", "trips", *options, "--instance", url)
            assert done.exit_code == 0, done.output
            return done

        first = ask()
        lines = first.stdout.splitlines()
        assert len(lines) == 23
        assert lines[-1] == "1,504 rows, the first 20 shown (transaction 3)"
        assert first.stderr == (
            "--limit N shows more, --all shows all, --output FILE writes all; --key, --range, "
            "--prefix and --where find others\n"
        )
        assert ask("--as-of", 2).stdout.splitlines()[-1] == "4 rows (transaction 2)"
        everything = ask("--all")
        assert len(everything.stdout.splitlines()) == 1504 + 2 * 2 + 1
        assert everything.stdout.splitlines()[-1] == "1,504 rows (transaction 3)"
        assert everything.stderr == ""
        for limit in (0, 3, 1000, 1001, 2000):
            found = min(limit, 1504)
            assert f"\n{found:,} rows (transaction 3)\n" in ask("--limit", limit).stdout
            assert len(rows_of(ask("--limit", limit, "--json"))) == found
        ask("--limit", 7, "--output", tmp_path / "few.csv")
        assert len((tmp_path / "few.csv").read_text().splitlines()) == 8
        ask("--output", tmp_path / "all.csv")
        assert (tmp_path / "all.csv").read_text().count("\n") == 1505
        assert ask("--format", "csv").stdout.count("\n") == 1505

    def test_a_filtered_table_has_more_rows_of_unknown_number(self, tmp_path):
        """Given a filter, then the first rows are shown without counting all of them."""
        url = make_trips(tmp_path)
        many = [{**ROWS[0], "taxi": "k", "at": n + 2**60} for n in range(30)]
        sleeper("ingest", "trips", write_rows(tmp_path / "r.parquet", many), "--instance", url)
        filtered = "sleeper.table.filters=ageOff(at,1000)"
        assert sleeper("table", "set", "trips", filtered, "--instance", url).exit_code == 0

        shown = sleeper("query", "trips", "--instance", url).stdout.splitlines()

        assert shown[-1] == "more rows, the first 20 shown (transaction 3)"

    @pytest.mark.parametrize("name", ["json", "csv", "parquet", "arrow"])
    def test_each_format_goes_to_a_file_or_to_stdout(self, trips, tmp_path, name):
        """A file's ending says its format; stdout holds the rows and nothing else."""
        read = {
            "json": lambda source: pl.read_ndjson(source).to_arrow(),
            "csv": lambda source: pyarrow.csv.read_csv(pa.BufferReader(source)),
            "parquet": lambda source: pq.read_table(pa.BufferReader(source)),
            "arrow": lambda source: pa.ipc.open_file(source).read_all(),
        }[name]
        path = tmp_path / f"out.{name}"

        to_file = trips("--key", "taxi=a", "--output", path)
        to_stdout = trips("--key", "taxi=a", "--format", name)

        assert (to_file.exit_code, to_file.stdout) == (0, "")
        assert to_file.stderr == f"wrote 2 rows to {path}\n"
        assert read(path.read_bytes()).to_pylist() == ROWS[:2]
        assert to_stdout.stdout_bytes[:200] == path.read_bytes()[:200]
        assert read(to_stdout.stdout_bytes).to_pylist() == ROWS[:2]

    def test_a_format_may_be_given_for_any_name(self, trips, tmp_path):
        """--format decides over the ending."""
        trips("--key", "taxi=m", "--output", tmp_path / "rows.txt", "--format", "json")

        assert json.loads((tmp_path / "rows.txt").read_text()) == ROWS[2]

    @pytest.mark.parametrize(
        ("options", "complaint"),
        [
            (["--output", "x.txt"], "'x.txt' does not end with a known format: give --format"),
            (["--output", "x.csv", "--format", "table"], "--format table is for the terminal"),
            (["--output", "x.csv", "--json"], "contradict each other"),
            (["--format", "csv", "--json"], "contradict each other"),
            (["--output", "no/such/x.csv"], "folder 'no/such' does not exist"),
            (["--key", "taxi"], "'taxi' should be NAME=VALUE"),
            (["--range", "taxi=a"], "'a' should be MIN,MAX"),
            (["--range", "taxi=a,b,c"], "'a,b,c' has more than one comma"),
            (["--key", "taxi=a", "--range", "day=1,2"], "give only one of --key"),
            (["--range", 'taxi="a,b'], "quote a value that contains a comma"),
            (["--range", 'taxi="a"b,c'], "should be MIN,MAX; quote a value"),
            (["--prefix", "taxi"], "'taxi' should be NAME=VALUE"),
            (["--prefix", "taxi=a", "--key", "taxi=a"], "given for 'taxi': leave one out"),
            (["--prefix", "taxi=a", "--range", "taxi=a,b"], "given for 'taxi': leave one out"),
            (["--limit", "-1"], "not in the range"),
            (["--limit", "x"], "not a valid integer"),
            (["--limit", "1", "--all"], "--all and --limit contradict each other"),
            (["--limit", "1", "--count"], "leave out --limit and --all"),
            (["--as-of", "-1"], "not in the range"),
            (["--as-of", "yesterday"], "neither a transaction number nor a time in ISO 8601"),
            (["--as-of", "2026-01-01T12:00"], "has no time zone: add Z for UTC"),
            (["--keys-file", "nowhere.txt"], "does not exist"),
        ],
    )
    def test_wrong_use_is_told_before_anything_is_read(self, trips, options, complaint):
        """Exit code 2, the complaint on stderr, nothing on stdout."""
        done = trips(*options)

        assert (done.exit_code, done.stdout) == (2, "")
        assert complaint in done.stderr

    @pytest.mark.parametrize(
        ("options", "complaint"),
        [
            (["--key", "day=soon"], "'soon' is not a value for key field 'day'"),
            (["--key", "fare=1"], "was not a row key field"),
            (["--prefix", "day=1"], "'day' has no prefixes"),
            (["--prefix", "fare=1"], "was not a row key field"),
            (["--range", "day=3,2"], "minimum 3 above its maximum 2"),
            (["--columns", "taxi,price"], "no column 'price'; it has taxi, day, at, fare"),
            (["--as-of", "9"], "no transaction 9; the newest is 2"),
            (["--as-of", "2020-01-01T00:00Z"], "no transaction from 2020-01-01T00:00:00.000000Z"),
        ],
    )
    def test_questions_that_cannot_be_are_refused(self, trips, options, complaint):
        """Exit code 1, the reason on stderr (rules QRY-1, PRT-1)."""
        done = trips(*options)

        assert (done.exit_code, done.stdout) == (1, "")
        assert complaint in done.stderr

    def test_a_line_of_keys_with_too_few_values_is_named(self, trips, tmp_path):
        """The refusal has the line's number and the fields that are wanted."""
        (tmp_path / "keys.txt").write_text("a\t1\nm\n")

        done = trips("--keys-file", tmp_path / "keys.txt")

        assert done.exit_code == 1
        assert "line 2 of" in done.stderr
        assert "taxi, day" in done.stderr

    @pytest.mark.parametrize("line", ["", "a\tsoon"])
    def test_a_line_of_keys_that_cannot_be_read_is_named(self, trips, tmp_path, line):
        """A blank one too, where no key can be blank."""
        (tmp_path / "keys.txt").write_text(f"a\t1\n{line}\nm\t1\n")

        done = trips("--keys-file", tmp_path / "keys.txt")

        assert (done.exit_code, done.stdout) == (1, "")
        assert "line 2 of" in done.stderr
