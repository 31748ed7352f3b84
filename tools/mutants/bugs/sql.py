"""Bugs in SQL."""

from __future__ import annotations

from ..bug import Bug

STATEMENTS = ("tests/stories/test_sql.py",)
CONDITIONS = ("tests/unit/planning/test_key_conditions.py",)
NUMBERS = ("tests/stories/test_numbers_in_sql.py",)
ENGINES = ("tests/stories/test_other_engines.py",)

BUGS = (
    Bug(
        name="any-limit-is-a-barrier",
        breaks="A condition above a LIMIT of the statement narrows the rows that the LIMIT counts.",
        module="engine/sql/plans.py",
        right="if node.display() != BARRIER:",
        wrong='if not node.display().startswith("Limit:"):',
        tests=STATEMENTS,
    ),
    Bug(
        name="scans-in-subqueries-forgotten",
        breaks="A table that a subquery scans whole is read by the condition of another scan.",
        module="engine/sql/plans.py",
        right="if count == len(parts) else UNKNOWN",
        wrong="if parts else UNKNOWN",
        tests=STATEMENTS,
    ),
    Bug(
        name="case-of-patterns-ignored",
        breaks="ILIKE reads the keys that LIKE would match.",
        module="engine/sql/conditions.py",
        right='word = "NOT LIKE" if variant.negated() else "LIKE"',
        wrong='word = expression.canonical_name().split(" ")[1]',
        tests=STATEMENTS,
    ),
    Bug(
        name="pattern-is-its-prefix",
        breaks="NOT LIKE leaves out keys that begin as the pattern does and go on otherwise.",
        module="engine/sql/conditions.py",
        right='return Implied(KeyCondition(column, "prefix", prefix))',
        wrong='return KeyCondition(column, "prefix", prefix)',
        tests=STATEMENTS,
    ),
    Bug(
        name="error-of-a-file-lost",
        breaks="A damaged file is reported as a text of DataFusion.",
        module="engine/sql/failures.py",
        right="if scans is not None and scans.failure is not None:",
        wrong="if scans is None and error is None:",
        tests=STATEMENTS,
    ),
    Bug(
        name="sort-of-all-rows-in-memory",
        breaks="A sort of all rows is kept in memory, and refused if that is short.",
        module="engine/sql/statements.py",
        right="is not None and _SORT_IN_MEMORY in self._physical.display_indent():",
        wrong="is not None and not self._text:",
        tests=STATEMENTS,
    ),
    Bug(
        name="half-known-conditions-negated",
        breaks="NOT of a condition that is known in part leaves out rows.",
        module="planning/key_conditions.py",
        right="case Implied() | Unknown():",
        wrong="case Implied(part):\n            return _negated(part)\n        case Unknown():",
        tests=CONDITIONS,
    ),
    Bug(
        name="null-in-a-list-excludes",
        breaks="NOT IN with a null is taken as NOT IN without it.",
        module="planning/key_conditions.py",
        right='if operator == "not in" and None in (value := [*value]):',
        wrong='if operator == "not in" and 0 in (value := [*value]):',
        tests=CONDITIONS,
    ),
    Bug(
        name="expressions-trusted",
        breaks="What the text of pyarrow's expression seems to say narrows what DuckDB reads.",
        module="engine/sql/other_engines/expression_conditions.py",
        right="return found.condition if found.expression.equals(expression) else UNKNOWN",
        wrong="return found.condition",
        tests=ENGINES,
    ),
    Bug(
        name="nan-keeps-its-sign",
        breaks="A NaN with a sign is less than all numbers, and is not equal to NaN.",
        module="engine/sql/scans/comparable_floats.py",
        right="return pc.if_else(pc.is_nan(array), pa.scalar(math.nan, kind), without_sign)",
        wrong="return without_sign",
        tests=NUMBERS,
    ),
    Bug(
        name="zero-keeps-its-sign",
        breaks="A list of values that has 0.0 does not find -0.0.",
        module="engine/sql/scans/comparable_floats.py",
        right="without_sign = pc.add(array, pa.scalar(0.0, kind))",
        wrong="without_sign = pc.subtract(array, pa.scalar(0.0, kind))",
        tests=NUMBERS,
    ),
    Bug(
        name="where-changes-zeros",
        breaks="query(where=) returns 0.0 where -0.0 is stored.",
        module="engine/sql/conditional_rows.py",
        right="column(stored.get(name, name))",
        wrong="column(name)",
        tests=NUMBERS,
    ),
    Bug(
        name="minus-zero-in-lists",
        breaks="A list that has the constant -0.0 finds no zero.",
        module="engine/sql/refusals.py",
        right="if _COMPARED_BY_BITS.search(shown):",
        wrong="if _COMPARED_BY_BITS.fullmatch(shown):",
        tests=NUMBERS,
    ),
    Bug(
        name="lists-joined-without-nulls",
        breaks="x NOT IN (1, 2) OR x NOT IN (3, 4) returns rows where x is null.",
        module="engine/sql/joined_lists.py",
        right="return any(len(after.get(column, ())) < len(before[column]) for column in several)",
        wrong="return len(after) < 0",
        tests=("tests/stories/test_lists_in_sql.py",),
    ),
    Bug(
        name="nulls-of-marks-forgotten",
        breaks="NOT IN (SELECT ...) beside OR returns rows for which it is null.",
        module="engine/sql/refusals.py",
        right='return _is_alone(variant.predicate(), ("AND", "OR"))',
        wrong="return True",
        tests=("tests/stories/test_misread_sql.py",),
    ),
    Bug(
        name="distinct-takes-the-rest",
        breaks="a IS DISTINCT FROM b AND c compares a with b AND c.",
        module="engine/sql/refusals.py",
        right="if taken > len(_DISTINCT.findall(text)):",
        wrong="if taken < 0:",
        tests=("tests/stories/test_misread_sql.py",),
    ),
)
