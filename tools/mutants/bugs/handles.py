"""Bugs in open handles."""

from __future__ import annotations

from ..bug import Bug

BUGS = (
    Bug(
        name="old-properties",
        breaks="An open handle goes on with filters and aggregations that were changed since.",
        module="table/handle.py",
        right="        elif opened.record.properties != record.properties:\n",
        wrong="        elif opened.record.table_id != record.table_id:\n",
        tests=("tests/stories/test_changed_properties.py",),
    ),
)
