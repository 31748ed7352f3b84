"""A type of column is known to one table: who names a type by itself is found here."""

from __future__ import annotations

import ast

from tests.house.sources import Source, package

TABLE = ["columns/type_traits.py", "model/column_types.py"]
"""The modules that have a row for each type."""

TIMES = {"is_date", "is_date32", "is_date64", "is_timestamp", "is_time", "is_time32", "is_time64"}

ADVICE = {"engine/arrow_schema.py": {"is_timestamp"}}
"""Who asks for times in Arrow to give advice about columns that were refused."""


def names_a_type(source: Source) -> bool:
    """Whether code, without docstrings, names a type by itself."""
    return any(
        isinstance(node.value, ast.Name) and node.value.id == "Primitive" and node.attr.isupper()
        for node in source.nodes(ast.Attribute)
    )


def times_asked_for(source: Source) -> set[str]:
    return {node.attr for node in source.nodes(ast.Attribute)} & TIMES


def test_only_the_table_names_types():
    """Other modules ask the rows (`traits_of`, `key_traits`, `TRAITS_BY_ID`), so that a new type
    is a row and nothing else."""
    assert [source.in_package for source in package() if names_a_type(source)] == TABLE


def test_only_the_table_knows_which_arrow_types_are_times():
    """Whether values are days or ticks of a clock is asked nowhere else, but for advice."""
    asked = {source.in_package: found for source in package() if (found := times_asked_for(source))}
    del asked["columns/type_traits.py"]

    assert asked == ADVICE
