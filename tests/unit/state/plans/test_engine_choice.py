"""Which engine does a bulk import."""

from __future__ import annotations

import pytest

from sleeper.errors import BadRequest
from sleeper.state.plans.bulk_imports import LOCAL_BYTES_MAX, choose_engine


def chosen(asked="auto", kind="files", *, size=10**9, free=10**12, given=False, installed=True):
    return choose_engine(
        asked,
        kind,
        input_bytes=size,
        free_bytes=free,
        spark_given=given,
        spark_installed=installed,
    )


class TestEngineChoice:
    """Who does an import, and why."""

    @pytest.mark.parametrize("asked", ["local", "spark"])
    def test_does_as_it_is_asked(self, asked):
        """A named engine is used, whatever would be cheaper."""
        assert chosen(asked).engine == asked
        assert chosen(asked, size=10**15).engine == asked

    def test_takes_this_machine_for_what_fits_it(self):
        """A few gigabytes are done by the local engine, and the reason names the size."""
        choice = chosen(size=2_200_000_000)

        assert choice.engine == "local"
        assert "2.2 GB" in choice.reason

    def test_takes_spark_for_what_one_machine_does_not_do_soon(self):
        """Input beyond the limit is Spark's."""
        assert chosen(size=LOCAL_BYTES_MAX + 1).engine == "spark"

    def test_takes_spark_when_sorting_would_fill_the_disk(self):
        """The local sort spills about as much as it reads."""
        choice = chosen(size=10**10, free=10**10)

        assert choice.engine == "spark"
        assert "temporary folder" in choice.reason

    def test_takes_the_session_that_was_given(self):
        """Whoever brings a session wants it used."""
        assert chosen(given=True).engine == "spark"

    def test_does_without_spark_where_it_is_not_installed(self):
        """Better slow than not at all."""
        choice = chosen(size=LOCAL_BYTES_MAX + 1, installed=False)

        assert choice.engine == "local"
        assert "not installed" in choice.reason

    def test_keeps_rows_where_they_are(self):
        """A DataFrame is imported by Spark, rows of this process by this process."""
        assert chosen(kind="frame").engine == "spark"
        assert chosen(kind="memory").engine == "local"
        with pytest.raises(BadRequest, match="DataFrame"):
            chosen("local", kind="frame")
        with pytest.raises(BadRequest, match="in this process"):
            chosen("spark", kind="memory")
