"""What notebooks show: everything is escaped and bounded, and looking changes nothing."""

from __future__ import annotations

import io
import sys
from html.parser import HTMLParser
from types import ModuleType, SimpleNamespace

import pyarrow as pa
import pytest

import sleeper
from sleeper.engine.row_grid import COLUMNS_MAX, row_grid
from sleeper.engine.rows import FIRST_ROWS, Rows
from sleeper.errors import DataDamaged
from sleeper.html.markup import Markup, compact, counted, element, size_text, text

HOSTILE = "<img src=x onerror=alert(1)>\"'&"
SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64())])


class Tags(HTMLParser):
    """The tags of a text, and the words between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.words += data


@pytest.fixture
def instance():
    return sleeper.connect("memory://")


@pytest.fixture
def table(instance):
    made = instance.create_table(HOSTILE, SCHEMA, row_keys=["key"])
    made.ingest([{"key": f"k{n:04}", "n": n} for n in range(50)])
    return made


def test_a_history_is_a_table_and_a_tuple(table):
    """Given two ingests, then a notebook shows a row for each transaction; the value is a tuple."""
    table.ingest([{"key": "x" + HOSTILE, "n": 1}])

    history = table.history()

    seen = Tags(history._repr_html_())
    assert history == tuple(history) == (history[0], *history[1:])
    assert seen.tags.count("tr") == 1 + len(history) == 4
    assert "rows added" in seen.words
    assert "HistoryEntry" not in seen.words
    assert "none" in Tags(table.history(0)._repr_html_()).words


def test_names_with_markup_are_shown_as_text(instance, table):
    """Given a table and a value that are HTML, no element of theirs is made."""
    table.ingest([{"key": "\0" + HOSTILE, "n": 1}])

    for shown in (instance, table, table.query(), table.schema):
        seen = Tags(shown._repr_html_())
        assert "img" not in seen.tags
    assert HOSTILE in Tags(table.query()._repr_html_()).words
    assert HOSTILE in Tags(table._repr_html_()).words


def test_a_stream_that_was_shown_can_still_be_read_in_full(table):
    """A notebook shows the first rows of a result, and the next cell reads all of them."""
    rows = table.query()

    shown = Tags(rows._repr_html_())

    assert f"The first {FIRST_ROWS} of 50 rows, of transaction 2" in shown.words
    assert shown.tags.count("tr") == FIRST_ROWS + 1
    assert "k0019" in shown.words
    assert "k0020" not in shown.words
    assert rows.count() == 50
    assert rows.to_arrow().num_rows == 50


def test_a_stream_that_was_read_says_what_to_do(table):
    """A result that was read has no rows left to show."""
    rows = table.query()
    rows.to_arrow()

    assert "Query again" in rows._repr_html_()


def test_a_stream_that_fails_while_it_is_shown_is_not_empty_afterwards():
    """A failure must not turn into a result without rows."""

    def batches():
        yield pa.record_batch([["a"], [1]], schema=SCHEMA)
        raise DataDamaged("a page is damaged")

    rows = Rows(batches(), SCHEMA, 1)

    with pytest.raises(DataDamaged):
        rows._repr_html_()
    with pytest.raises(sleeper.BadRequest, match="Query again"):
        rows.to_arrow()


def test_peeking_leaves_the_stream_as_it_was():
    """Rows that were looked at come again, in order, once."""
    batches = [pa.record_batch([[str(n)], [n]], schema=SCHEMA) for n in range(5)]
    rows = Rows(iter(batches), SCHEMA, 1)

    assert rows.peek(2).column("n").to_pylist() == [0, 1]
    assert rows.peek(4).column("n").to_pylist() == [0, 1, 2, 3]
    assert rows.to_arrow().column("n").to_pylist() == [0, 1, 2, 3, 4]
    assert rows.peek(1) is None


def test_results_and_reports_are_tables_of_their_fields(table):
    """Whatever a method returns as a value with fields is readable."""
    result = table.ingest([{"key": "x", "n": 1}])

    words = Tags(result._repr_html_()).words
    assert "IngestResult" in words
    assert "rows written" in words
    assert "references per leaf" in Tags(table.report_files()._repr_html_()).words
    assert "reason" in Tags(table.plan_compaction()._repr_html_()).words
    assert "sleeper.table.schema" in Tags(table.properties._repr_html_()).words
    assert "sleeper.id" in Tags(sleeper.connect("memory://").properties._repr_html_()).words


def test_wide_rows_and_long_values_are_cut():
    """Given 200 columns and a value of a megabyte, the HTML stays small."""
    rows = pa.table({f"c{n}": ["x" * 1_000_000 if n == 0 else b"\xff" * 1000] for n in range(200)})

    html = row_grid(rows, "rows")

    assert len(html) < 20_000
    assert f"{200 - COLUMNS_MAX} columns more" in html


def test_markup_is_not_escaped_twice():
    """Text is escaped once, also by templates that know `__html__`."""
    assert element("b", element("i", "<"), a_b=None, hidden=True) == "<b hidden><i>&lt;</i></b>"
    assert text(Markup("<")).__html__() == "<"


@pytest.mark.parametrize(
    ("amount", "written"),
    [(0, "0"), (999, "999"), (1_000, "1k"), (12_345, "12.3k"), (10**6, "1M"), (-1500, "-1.5k")],
)
def test_amounts_are_short(amount, written):
    """Labels of pictures have little room."""
    assert compact(amount) == written


def test_amounts_have_their_noun():
    """One is singular, all others are plural."""
    assert (counted(1, "row"), counted(0, "row")) == ("1 row", "0 rows")
    assert (size_text(1), size_text(2**40)) == ("1 byte", "1 TiB")


def test_a_progress_bar_writes_a_line_outside_notebooks(table, monkeypatch):
    """Each change of the percentage is one writing; the last one ends the line."""
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    bar = sleeper.progress_bar("rows")

    table.ingest([{"key": str(n), "n": n} for n in range(3)], progress=bar)
    for done in (0, 1, 500, 1000):
        bar(done, 1000)

    lines = written.getvalue().split("\r")
    assert lines[-2:] == ["rows: 500 of 1k, 50%", "rows: 1k of 1k, 100%\n"]


def test_a_progress_bar_in_a_notebook_is_one_element_that_moves(monkeypatch):
    """The kernel's display is updated in place, and its title is escaped."""
    shown: list[str] = []
    shell, display = ModuleType("IPython"), ModuleType("IPython.display")
    shell.get_ipython = lambda: SimpleNamespace(kernel=object())
    handle = SimpleNamespace(update=lambda bar: shown.append(bar._repr_html_()))
    display.display = lambda bar, display_id: shown.append(bar._repr_html_()) or handle
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", display)

    bar = sleeper.progress_bar("<i>")
    for done in (0, 50, 50, 100):
        bar(done, 100)

    assert len(shown) == 3
    assert Tags(shown[-1]).tags == ["progress"]
    assert 'max="100"' in shown[-1]
