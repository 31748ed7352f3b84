"""A type of column is known to one table: who names a type by itself is found here."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "sleeper"

TABLE = ["columns/type_traits.py", "model/column_types.py"]
"""The modules that have a row for each type."""

TIMES = {"is_date", "is_date32", "is_date64", "is_timestamp", "is_time", "is_time32", "is_time64"}

ADVICE = {"engine/arrow_schema.py": {"is_timestamp", "is_time"}}
"""Who asks for times in Arrow to give advice about columns that were refused."""


def modules_with(wanted) -> list[str]:
    """Return the modules whose code, without docstrings, has a node that is wanted."""
    return [
        path.relative_to(SOURCE).as_posix()
        for path in sorted(SOURCE.rglob("*.py"))
        if any(wanted(node) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    ]


def names_a_type(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "Primitive"
        and node.attr.isupper()
    )


def times_asked_for(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} & TIMES


def test_only_the_table_names_types():
    """Other modules ask the rows (`traits_of`, `key_traits`, `TRAITS_BY_ID`), so that a new type
    is a row and nothing else."""
    assert modules_with(names_a_type) == TABLE


def test_only_the_table_knows_which_arrow_types_are_times():
    """Whether values are days or ticks of a clock is asked nowhere else, but for advice."""
    asked = {
        path.relative_to(SOURCE).as_posix(): found
        for path in SOURCE.rglob("*.py")
        if (found := times_asked_for(path))
    }
    del asked["columns/type_traits.py"]

    assert asked == ADVICE
