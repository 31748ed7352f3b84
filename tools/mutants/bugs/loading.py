"""Bugs in what is loaded when."""

from __future__ import annotations

from ..bug import Bug

_LATE = ("tests/unit/test_late_imports.py",)

BUGS = (
    Bug(
        name="late-modules-are-seen-half-loaded",
        breaks="Threads that use a late module meanwhile wait until it is whole.",
        module="language/late_imports.py",
        right="        with self._lock:\n            if self._loading",
        wrong="        if True:\n            if self._loading",
        tests=_LATE,
    ),
    Bug(
        name="other-threads-import-late",
        breaks="Imports of other threads are as ever while a block is open.",
        module="language/late_imports.py",
        right=" or get_ident() != self._thread:",
        wrong=":",
        tests=_LATE,
    ),
)
