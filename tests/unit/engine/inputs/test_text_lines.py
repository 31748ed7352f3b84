"""Where a row of CSV begins, and which values make a column text."""

from __future__ import annotations

import io
import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.engine.inputs import text_lines
from sleeper.engine.inputs.text_files import TextFiles
from sleeper.engine.inputs.text_lines import line_of_row, odd_texts
from sleeper.errors import InputRefused
from sleeper.model.csv_options import CsvOptions

VALUES = st.text('ab,\n"\r ;', max_size=4)
BLANKS = st.integers(0, 2)
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


@pytest.fixture(params=[3, 16, 8 << 20])
def small_blocks(request, monkeypatch):
    """Blocks that end anywhere: in values, between quotes, in line ends."""
    monkeypatch.setattr(text_lines, "_BLOCK_BYTES", request.param)
    return request.param


def written(values, blanks, end):
    """Return CSV, and the line at which each row begins, the header first."""
    body, lines = "", []
    for row, empty in zip(["id,text", *values], blanks, strict=True):
        body += end * empty
        lines.append(body.count("\n") + 1)
        quoted = row if not lines[1:] else f'{len(lines)},"{row.replace(chr(34), 2 * chr(34))}"'
        body += quoted + end
    return body, lines


@given(data=st.data(), end=st.sampled_from(["\n", "\r\n"]), has_end=st.booleans())
def test_a_row_begins_in_the_line_in_which_it_was_written(data, end, has_end):
    """Given values with line ends and quotes, and empty lines, then each row has its line."""
    values = data.draw(st.lists(VALUES, min_size=1, max_size=5))
    values = [value.replace("\r", "") for value in values]
    blanks = data.draw(st.lists(BLANKS, min_size=len(values) + 1, max_size=len(values) + 1))
    body, lines = written(values, blanks, end)
    if not has_end:
        body = body.removesuffix(end)
    size = data.draw(st.sampled_from([1, 2, 5, 1000]))

    class Pieces(io.BytesIO):
        def read(self, _=None):
            return super().read(size)

    found = [line_of_row(Pieces(body.encode()), n, CsvOptions()) for n in range(1, len(lines) + 1)]

    assert found == lines
    assert line_of_row(Pieces(body.encode()), len(lines) + 1, CsvOptions()) is None


@pytest.mark.parametrize(
    ("body", "options"),
    [
        (b'a,b\n1,x"y\n"\n2,z\n', {}),
        (b"a\r1\r2\n3\n", {}),
        (b'a;b\n1,"x\n"\n2,z\n', {"separator": ";"}),
    ],
)
def test_no_line_is_said_that_may_be_wrong(body, options):
    """Where quotes stand inside of values, or line ends are of the oldest kind."""
    assert line_of_row(io.BytesIO(body), 3, CsvOptions(**options)) is None


@pytest.mark.parametrize(
    ("body", "options", "line"),
    [
        (b'\xef\xbb\xbf"a"\n1\n\n2\n', {}, 4),
        (b"a|b\n'x\ny'|1\n2|z\n", {"separator": "|", "quote": "'"}, 4),
        (b'a\n"\n"\n', {"quote": None}, 3),
    ],
)
def test_options_of_csv_are_known(body, options, line):
    """Other quotes and separators, none, and a mark of the encoding."""
    assert line_of_row(io.BytesIO(body), 3, CsvOptions(**options)) == line


@pytest.mark.parametrize("bad", ["x,ok", "2,b,c", "9999999999999999999,ok"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_errors_name_the_line_and_the_row(tmp_path, small_blocks, bad, encoding):
    """Of a value, of a row with too many values, and of a number that does not fit."""
    path = tmp_path / "a.csv"
    path.write_bytes(f'id,text\r\n\r\n1,"é\r\n\r\n,"\r\n{bad}\r\n'.encode(encoding))

    with pytest.raises(InputRefused, match=r"line 6, row 3 .*the header is row 1") as refused:
        list(TextFiles((str(path),), SCHEMA, csv=CsvOptions(encoding=encoding)).batches())

    assert "a.csv" in str(refused.value)


def test_an_error_of_a_converted_value_names_the_line(tmp_path):
    """Also where we convert a text, and not pyarrow."""
    path = tmp_path / "a.csv"
    path.write_bytes(b'day,text\n2026-01-31,"a\nb"\n2026-02-30,c\n')
    schema = pa.schema([("day", pa.date32()), ("text", pa.string())])

    with pytest.raises(InputRefused, match=r"a\.csv', line 4, row 3, column 'day': '2026-02-30'"):
        list(TextFiles((str(path),), schema).batches())


@pytest.mark.parametrize(
    ("values", "kind", "value", "count"),
    [
        (["1", "n/a", None, "3", "x", "5"], "whole numbers", "n/a", 2),
        (["1.5", "-2e3", "1,5"], "numbers", "1,5", 1),
        (["2026-01-31", "", "2026-02-01"], "dates", "", 1),
        (["2026-01-31T12:00:00Z", "2026-01-31 12:00", "?"], "timestamps", "?", 1),
        (["true", "False", "yes", "TRUE"], "true or false", "yes", 1),
    ],
)
def test_a_column_is_text_because_of_its_first_odd_value(values, kind, value, count):
    """It is found where most values are of one kind."""
    (odd,) = odd_texts(pa.record_batch({"a": pa.array(values), "n": range(len(values))}))

    assert (odd.column, odd.kind, odd.value, odd.count) == ("a", kind, value, count)
    assert odd.place == values.index(value)
    assert odd.total == len(values) - values.count(None)


@pytest.mark.parametrize("values", [["a", "b", "1"], [None, None], ["N1", "N2"], ["007", "1"]])
def test_text_is_text(values):
    """Where most values are nothing else, and where nothing is odd."""
    assert odd_texts(pa.record_batch({"a": pa.array(values, pa.string())})) == []


def test_patterns_are_those_of_what_pyarrow_infers():
    """A value of a kind alone makes a column of another type than text."""
    for kind, text in (
        ("whole numbers", "-12"),
        ("numbers", "1.5e3"),
        ("dates", "2026-01-31"),
        ("timestamps", "2026-01-31 12:00:00"),
        ("true or false", "true"),
    ):
        assert re.search(text_lines._KINDS[kind], text)
        found = pa.csv.read_csv(io.BytesIO(f"a\n{text}\n".encode()))
        assert found.schema.field("a").type != pa.string()
