"""What exceptions are that are no `Exception`: panics, and what ends the process."""

from __future__ import annotations


def is_panic(error: BaseException) -> bool:
    """Return whether an exception is a panic of a library in Rust.

    It is no `Exception`, and each library has a class of its own, which cannot be imported.
    """
    return not isinstance(error, Exception) and type(error).__name__ == "PanicException"


def ends_process(error: BaseException) -> bool:
    """Return whether an exception asks this process to end: it is no failure of what ran."""
    return isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)
