"""Bugs in special numbers."""

from __future__ import annotations

from ..bug import Bug

NUMBERS = ("tests/stories/test_special_numbers.py",)

BUGS = (
    Bug(
        name="column-folded",
        breaks="A column whose limits are equal is read as one value, NaN included.",
        module="engine/reading/session.py",
        right='"datafusion.execution.collect_statistics": "false"',
        wrong='"datafusion.execution.collect_statistics": "true"',
        tests=NUMBERS,
    ),
    Bug(
        name="floats-with-limits",
        breaks="Files say between which values a column with NaN lies.",
        module="engine/arrow_schema.py",
        right="if of_floats or not pa.types.is_floating(kind)",
        wrong="if of_floats or not pa.types.is_float32(kind)",
        tests=NUMBERS,
    ),
)
