"""Raises panics of the libraries that compute on rows as errors of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sleeper.errors import LibraryFailed, is_panic


@contextmanager
def translated_panics(library: str) -> Iterator[None]:
    """Raise panics of a native library as `LibraryFailed`.

    Args:
        library: Its name, for the message.
    """
    try:
        yield
    except BaseException as error:
        if is_panic(error):
            raise LibraryFailed(
                f"the library {library} has an error here, and cannot do this ({error!s:.300}). "
                "Write the call in another way, and report it with this message and what was asked"
            ) from error
        raise
