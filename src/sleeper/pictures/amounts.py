"""Writes numbers, sizes and times for people."""

from __future__ import annotations

from datetime import datetime

_STEPS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
_SIZES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def compact(amount: float) -> str:
    """Return a number in at most five characters or so.

    >>> compact(999), compact(12_345), compact(4_500_000)
    ('999', '12.3k', '4.5M')
    """
    for size, letter in _STEPS:
        if abs(amount) >= size:
            return f"{_short(amount / size)}{letter}"
    return _short(amount)


def size_text(amount: int) -> str:
    """Return a number of bytes.

    >>> size_text(100), size_text(1536), size_text(3 * 2**30)
    ('100 bytes', '1.5 KiB', '3 GiB')
    """
    for size, letters in _SIZES:
        if abs(amount) >= size:
            return f"{_short(amount / size)} {letters}"
    return counted(amount, "byte")


def counted(amount: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun.

    >>> counted(1, "leaf", "leaves"), counted(2000, "file")
    ('1 leaf', '2,000 files')
    """
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"


def time_text(moment: datetime) -> str:
    """Return a time to the second, with its zone."""
    zone = " UTC" if moment.utcoffset() is not None and not moment.utcoffset() else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}" + (zone or f"{moment:%z}")


def shortened(words: str, length_max: int) -> str:
    """Return text of at most so many characters; an ellipsis stands for what is left out."""
    return words if len(words) <= length_max else words[: max(0, length_max - 1)] + "\u2026"


def _short(amount: float) -> str:
    digits = 0 if abs(amount) >= 100 else 1
    written = f"{amount:.{digits}f}"
    return written.removesuffix(".0")
