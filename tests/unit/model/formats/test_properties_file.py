"""Properties files in Java's syntax."""

from __future__ import annotations

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import PropertiesInvalid
from sleeper.model.formats.properties_file import read_properties, write_properties
from sleeper.model.known_properties.catalogue import KNOWN_INSTANCE_PROPERTIES, TABLE_PROPERTIES

texts = st.text(st.characters(exclude_categories=["Cs"]))
KNOWN = [known.name for known in TABLE_PROPERTIES]


class TestReading:
    """What Java reads, and what upstream and people write (2.10)."""

    @pytest.mark.parametrize(
        "line", ["a.b=c d", "a.b = c d", "a.b:c d", "a.b c d", "  a.b\t=\tc d", "a.b=c \\\n   d"]
    )
    def test_names_and_values(self, line):
        """Separated by `=`, `:` or space; a line may go on in the next."""
        assert read_properties(line) == {"a.b": "c d"}

    def test_escapes(self):
        """Of the separators, of characters by number, of the backslash itself."""
        text = r"sleeper.filesystem=s3a\://" + "\n" + r"a\=b=\u00e9\ud83c\udfd4\t\\" + "\n"

        assert read_properties(text) == {"sleeper.filesystem": "s3a://", "a=b": "é🏔\t\\"}

    def test_comments_and_empty_lines_are_skipped(self):
        """Both kinds of comments."""
        assert read_properties("# a=1\n! b=2\n\n   \nc=3\n") == {"c": "3"}

    def test_line_ends_of_windows_and_a_byte_order_mark_do_no_harm(self):
        """Files travel."""
        assert read_properties("\ufeffa=1\r\nb=2\r\n") == {"a": "1", "b": "2"}

    def test_letters_need_no_escape(self):
        """The text has been decoded already."""
        assert read_properties("ä=ß") == {"ä": "ß"}

    def test_a_name_may_have_no_value(self):
        """Which counts as not set."""
        assert read_properties("a=\nb\n") == {"a": "", "b": ""}

    def test_the_last_of_two_values_counts(self):
        """As in Java."""
        assert read_properties("a=1\na=2\n") == {"a": "2"}

    def test_nothing_is_no_properties(self):
        """An empty file is a file."""
        assert read_properties("") == {}

    def test_a_broken_escape_is_refused(self):
        """A Windows path is the usual cause: the line is told, and how to write it."""
        with pytest.raises(PropertiesInvalid, match=r"in line 2.*backslash itself") as refused:
            read_properties("a=1\nsplits=C:\\users\\x\n")

        assert list(refused.value.failures) == ["line 2"]

    @given(st.text(st.sampled_from("ab \\\\\\=:#!u0DdcC89\t\f\r\n\ufeff\ud83c\udfd4é")))
    def test_reads_what_others_read(self, text):
        """Given any text; then javaproperties reads the same, or refuses it too."""
        try:
            theirs = javaproperties.loads(text.removeprefix("\ufeff"))
        except javaproperties.InvalidUEscapeError:
            with pytest.raises(PropertiesInvalid):
                read_properties(text)
        else:
            assert read_properties(text) == theirs


class TestWriting:
    """For people too: grouped, with descriptions (INS-4)."""

    def test_is_grouped_and_described(self):
        """In the order of the list; what nobody knows comes last, sorted."""
        written = write_properties(
            {
                "sleeper.table.zoo": "é",
                "sleeper.table.gc.delay.minutes": "5",
                "sleeper.table.a": "x=y",
                "sleeper.table.online": "false",
                "sleeper.table.name": "trades",
            },
            TABLE_PROPERTIES,
        )

        assert written == (
            "## Definition\n"
            "\n"
            "# Unique within the instance.\n"
            "sleeper.table.name=trades\n"
            "\n"
            "# False stops background work; ingest and queries still work.\n"
            "sleeper.table.online=false\n"
            "\n"
            "## Garbage collection\n"
            "\n"
            "# How long a file waits: longer than any query.\n"
            "sleeper.table.gc.delay.minutes=5\n"
            "\n"
            "## Unknown\n"
            "\n"
            "sleeper.table.a=x\\=y\n"
            "sleeper.table.zoo=\\u00e9\n"
        )

    def test_nothing_is_an_empty_file(self):
        """No heading without its properties."""
        assert write_properties({}, TABLE_PROPERTIES) == ""

    @given(st.dictionaries(texts | st.sampled_from(KNOWN), texts))
    def test_reads_back_what_it_writes(self, values):
        """Whatever names and values are, and in ASCII, so that any Java reads it."""
        written = write_properties(values, TABLE_PROPERTIES)

        assert written.isascii()
        assert read_properties(written) == values

    def test_every_known_property_can_be_written(self):
        """Comments never run into values."""
        known = (*KNOWN_INSTANCE_PROPERTIES, *TABLE_PROPERTIES)
        values = {each.name: each.default or "" for each in known}

        assert read_properties(write_properties(values, known)) == values
