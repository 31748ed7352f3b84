"""Errors of DataFusion become errors that say what to do."""

from __future__ import annotations

import pytest

from sleeper.engine.panics import translated_panics
from sleeper.engine.sql.failures import translated
from sleeper.errors import LibraryFailed, QueryInvalid


class PanicException(BaseException):
    """What Python gets where code in Rust failed that should not."""


@pytest.mark.parametrize(
    "error",
    [
        PanicException("attempt to subtract with overflow"),
        RuntimeError("DataFusion error: Join Error caused by External error: task 7 panicked"),
        ValueError("thread 'tokio-runtime-worker' panicked at src/lib.rs:1:1: overflow"),
    ],
)
def test_a_panic_is_an_error_of_the_statement_that_says_what_to_do(error):
    """It is no mistake of the caller, who can only ask otherwise."""
    with (
        pytest.raises(QueryInvalid, match=r"^statement 'x': DataFusion has an error.*another way"),
        translated("statement 'x'", ["a"]),
    ):
        raise error


@pytest.mark.parametrize(
    ("name", "near", "words"),
    [
        ("LEN", "ln", r"no function len\(\) here: use length\(text\)"),
        ("date", "tan", r"use CAST\(time AS DATE\)"),
        ("lenght", "length", r"no function lenght\(\) here: did you mean length\(\)\?"),
        ("first", "digest", r"use first_value\(column ORDER BY other\)"),
        ("dayofweek", "decode", r"use date_part\('dow', time\)"),
        ("std", "sin", r"use stddev\(column\)"),
        ("isnull", "ifnull", r"write column IS NULL, or coalesce"),
        ("row_number", "power", r"row_number\(\) needs a window: .* OVER \(ORDER BY column\)"),
        ("pivot", "right", r"no function pivot\(\) here: the functions are those of DataFusion"),
    ],
)
def test_a_function_of_other_databases_is_answered_with_what_does_the_same(name, near, words):
    """DataFusion offers the name that is nearest in letters, which may do something else."""
    with (
        pytest.raises(QueryInvalid, match=words) as refused,
        translated("statement 'x'", ["a"]),
    ):
        raise ValueError(
            f"DataFusion error: Error during planning: Invalid function '{name}'.\n"
            f"Did you mean '{near}'?"
        )

    assert near in words or near not in str(refused.value)


def test_an_interrupt_is_no_error_of_datafusion():
    """Ctrl-C stays what it is."""
    with pytest.raises(KeyboardInterrupt), translated("statement 'x'", []):
        raise KeyboardInterrupt


def test_a_panic_of_any_library_is_an_error_that_names_it():
    """It is ours, so workers, the command line and the REST server report it as others."""
    with pytest.raises(LibraryFailed, match=r"^the library polars has an error here.*unwrap"):
        sort()


def test_what_is_no_panic_passes_as_it_is():
    """Ctrl-C, and errors of callers."""
    for error in (KeyboardInterrupt(), ValueError("x"), SystemExit(1)):
        with pytest.raises(type(error)), translated_panics("polars"):
            raise error


@translated_panics("polars")
def sort() -> None:
    """A function that calls a library."""
    raise PanicException("unwrap")
