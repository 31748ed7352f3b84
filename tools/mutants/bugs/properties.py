"""Bugs in properties."""

from __future__ import annotations

from ..bug import Bug

SETTINGS = ("tests/stories/test_setting_properties.py", "tests/unit/model/test_given_properties.py")

BUGS = (
    Bug(
        name="slip-accepted",
        breaks="A property's name with a letter too many is stored, without effect.",
        module="model/known_properties/given.py",
        right="left[1:] == right or left == right[1:]",
        wrong="left == right[1:]",
        tests=SETTINGS,
    ),
    Bug(
        name="stored-name-judged",
        breaks="A misspelt name that is stored stops every other change of the table.",
        module="operations/tables/change_table.py",
        right="given=set_now)",
        wrong="given=after)",
        tests=SETTINGS,
    ),
    Bug(
        name="name-of-properties-ignored",
        breaks="A table gets another name than its properties say, and nobody notices.",
        module="operations/tables/create_table.py",
        right="    _check_agreement(set_now, name, schema)\n",
        wrong="",
        tests=("tests/unit/operations/test_tables.py", "-k", "disagree"),
    ),
    Bug(
        name="no-split-points-means-those-of-the-file",
        breaks="An empty list of split points counts as none, and the file's are taken.",
        module="instance.py",
        right="        if split_points is None:\n",
        wrong="        if not split_points:\n",
        tests=("tests/unit/operations/test_tables.py", "-k", "split_points"),
    ),
)
