"""`sleeper.progress_bar`: shows how far an ingest or a garbage collection is."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from sleeper.html.markup import compact, element, joined


def progress_bar(title: str = "rows") -> ProgressBar:
    """Return a progress bar, for the argument `progress` of methods such as `Table.ingest`.

    In a notebook it is one bar that moves; elsewhere it is a line on stderr. Without a known total
    it shows the number alone.

    >>> table.ingest("flights.parquet", progress=sleeper.progress_bar("flights"))

    Args:
        title: What is counted.
    """
    return ProgressBar(title)


class ProgressBar:
    """A bar that is called with what is done and the total, or None."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._done = 0
        self._total: int | None = None
        self._shown = ""
        self._display: Any = None

    def __call__(self, done: int, total: int | None = None) -> None:
        """Show that `done` of `total` is done; nothing is written while the text is the same."""
        self._done, self._total = done, total
        if (words := self._words()) == self._shown:
            return
        self._shown = words
        if not _in_notebook():
            end = "\n" if self._is_over() else ""
            sys.stderr.write(f"\r{words}{end}")
            sys.stderr.flush()
        elif self._display is None:
            self._display = import_module("IPython.display").display(self, display_id=True)
        else:
            self._display.update(self)

    def _words(self) -> str:
        if not self._total:
            return f"{self._title}: {compact(self._done)}"
        share = min(1.0, self._done / self._total)
        return f"{self._title}: {compact(self._done)} of {compact(self._total)}, {share:.0%}"

    def _is_over(self) -> bool:
        return self._total is not None and self._done >= self._total

    def _repr_html_(self) -> str:
        known = {"value": self._done, "max": self._total} if self._total else {}
        bar = element("progress", self._words(), aria_label=self._title, **known)
        return joined([bar, " ", self._words()])

    def __repr__(self) -> str:
        return f"<{self._words() or self._title}>"


def _in_notebook() -> bool:
    """Return whether this process is a kernel of notebooks, which shows rich output."""
    shell = sys.modules.get("IPython")
    running = None if shell is None else shell.get_ipython()
    return running is not None and hasattr(running, "kernel")
