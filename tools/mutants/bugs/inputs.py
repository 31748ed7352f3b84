"""Bugs in taking values in."""

from __future__ import annotations

from ..bug import Bug

VALUES = ("tests/stories/test_values_unchanged.py",)

BUGS = (
    Bug(
        name="blank-id-counts",
        breaks="A blank job id is an id: the second job of that name adds nothing.",
        module="ports/ids.py",
        right="    return job_id if job_id is not None and job_id.strip() else None\n",
        wrong="    return job_id\n",
        tests=("tests/stories/test_exactly_once.py",),
    ),
    Bug(
        name="classes-unchecked",
        breaks="pyarrow cuts 1.5 down to 1, in rows and in keys.",
        module="columns/python_values.py",
        right="        if not holds(cls, kind):\n",
        wrong="        if cls is object:\n",
        tests=VALUES,
    ),
    Bug(
        name="nanoseconds-dropped",
        breaks="A pandas timestamp loses its nanoseconds.",
        module="model/keys.py",
        right='    if getattr(value, "nanosecond", 0):\n',
        wrong='    if getattr(value, "nanoseconds", 0):\n',
        tests=VALUES,
    ),
    Bug(
        name="zone-ignored",
        breaks="A clock time without a zone is taken for UTC.",
        module="columns/python_values.py",
        right="        if None in offsets:\n",
        wrong="        if None in present:\n",
        tests=VALUES,
    ),
)
