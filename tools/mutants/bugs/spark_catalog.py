"""Bugs in the Python side of Spark's catalog."""

from __future__ import annotations

from ..bug import Bug

ANSWERS = ("tests/spark/test_catalog_answers.py",)

BUGS = (
    Bug(
        name="catalog-regions-left-to-spark",
        breaks="Spark's reader returns rows outside the regions that a user named.",
        module="spark/catalog/scan_plan.py",
        right="parquet_files(table, state, leaves, s3_scheme) if regions is None else None",
        wrong="parquet_files(table, state, leaves, s3_scheme)",
        tests=ANSWERS,
    ),
    Bug(
        name="catalog-condition-or-as-and",
        breaks="A query with OR lacks rows, as leaves are left out.",
        module="spark/catalog/scan_plan.py",
        right="            return AnyOf((condition_of(left), condition_of(right)))",
        wrong="            return AllOf((condition_of(left), condition_of(right)))",
        tests=ANSWERS,
    ),
    Bug(
        name="catalog-negation-of-the-unknown",
        breaks="A query with NOT lacks rows, as leaves are left out.",
        module="spark/catalog/scan_plan.py",
        right="            return Negation(condition_of(part))",
        wrong="            return condition_of(part)",
        tests=ANSWERS,
    ),
    Bug(
        name="catalog-newest-for-the-version",
        breaks="The data source reads another version than the query began with.",
        module="spark/catalog/scan_plan.py",
        right='            "as_of": str(state.number),\n',
        wrong="",
        tests=ANSWERS,
    ),
    Bug(
        name="catalog-count-without-a-column",
        breaks="A count of a table that the data source reads fails, or counts no row.",
        module="spark/catalog/scan_plan.py",
        right="    read = [*columns] or [schema.row_keys[0].name]",
        wrong="    read = [*columns]",
        tests=ANSWERS,
    ),
    Bug(
        name="catalog-any-protocol",
        breaks="A jar of another release gets answers that it misunderstands.",
        module="interfaces/spark_catalog.py",
        right='        if request["protocol"] != PROTOCOL:',
        wrong='        if request["protocol"] < PROTOCOL:',
        tests=ANSWERS,
    ),
)
