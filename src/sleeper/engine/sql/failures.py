"""Translates DataFusion's errors of statements: mistakes of the caller, or a lack of memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Final

from sleeper.engine.reading.session import is_read_failure
from sleeper.engine.sql.float_aggregates import NOT_FINITE
from sleeper.engine.sql.table_scan import OpenScans
from sleeper.errors import QueryInvalid, StorageFailed

_PREFIXES: Final = re.compile(
    r"^(?:DataFusion error: |Error during planning: |SQL error: |Schema error: |External error: "
    r"|Arrow error: |Execution error: |Internal error: |Invalid argument error: "
    r"|This feature is not implemented: |Optimizer rule '\w+' failed\s+caused by\s+"
    r"|type_coercion\s+caused by\s+)+"
)
_PARSER: Final = re.compile(r'^ParserError\("(.*)"\)$', re.DOTALL)
_NO_FIELD: Final = re.compile(r"No field named (?P<name>.+?)\.(?=\s|$)", re.DOTALL)
_DETAIL: Final = re.compile(r"\n(?:This issue was likely caused|backtrace:)", re.IGNORECASE)
_TEXT_MAX: Final = 600


@contextmanager
def translated(what: str, columns: Iterable[str], scans: OpenScans | None = None) -> Iterator[None]:
    """Raise errors of DataFusion as ours.

    Args:
        what: The condition or statement, for messages, such as `where='n > 1'`.
        columns: The names of all columns, of which messages name similar ones.
        scans: The reads; what one of them raised is raised itself.

    Raises:
        QueryInvalid: what was asked is wrong, or a value does not fit it.
        StorageFailed: memory or disk is full.
    """
    try:
        yield
    except BaseException as error:
        if scans is not None and scans.failure is not None:
            raise scans.failure from None
        if not is_read_failure(error):
            raise
        text = str(error)
        if "Resources exhausted" in text or "No space left" in text:
            raise StorageFailed(
                f"{what} needs more memory or disk than a statement may use: read fewer rows by "
                f"conditions on row keys, select fewer columns, or set TMPDIR to a folder with "
                f"more room ({_shortened(text)})"
            ) from error
        reason = _panic(text) if _is_panic(error) else _reason(text, [*columns], what)
        raise QueryInvalid(f"{what}: {reason}") from None  # the reason has all that the cause says


def _is_panic(error: BaseException) -> bool:
    """Return whether code of DataFusion failed that should not: its own error, or of a task."""
    return type(error).__name__ == "PanicException" or "panicked" in str(error)


def _panic(text: str) -> str:
    return (
        f"DataFusion has an error here, and cannot compute it ({_shortened(text)}). Write it in "
        "another way, or leave that part out and compute it from the rows in Python"
    )


_ONLY_REWRITTEN: Final = re.compile(r"should have been simplified|on a simplified")
_NUL_IN_NAME: Final = "not allowed in name"
_AGGREGATE: Final = re.compile(
    r"Physical plan does not support logical expression (?:Aggregate|Window)Function"
)


_NO_FUNCTION: Final = re.compile(r"Invalid function '(?P<name>\w+)'")
_ELSEWHERE: Final = {
    "strftime": "use to_char(time, '%Y-%m-%d')",
    "strptime": "use to_timestamp(text, '%Y-%m-%d %H:%M:%S')",
    "datediff": "subtract one time from the other, as in later - earlier",
    "group_concat": "use string_agg(text, ',')",
    "listagg": "use string_agg(text, ',')",
    "year": "use date_part('year', time)",
    "month": "use date_part('month', time)",
    "day": "use date_part('day', time)",
    "hour": "use date_part('hour', time)",
    "date": "use CAST(time AS DATE)",
    "getdate": "use now()",
    "len": "use length(text)",
    "charindex": "use strpos(text, part)",
    "collect_list": "use array_agg(column)",
    "regexp_extract": "use regexp_match(text, pattern)[1]",
    "count_if": "use count(*) FILTER (WHERE condition)",
    "if": "use CASE WHEN condition THEN a ELSE b END",
    "iff": "use CASE WHEN condition THEN a ELSE b END",
}
"""Functions of other engines, whose names are like others that do something else."""

_TIMES: Final = {
    "Date": "a date, such as DATE '2026-01-31'",
    "Timestamp": "a timestamp, such as TIMESTAMP '2026-01-31 12:00:00'",
    "Duration": "a length of time, such as INTERVAL '36 hours'",
    "Time": "the text of a time of day, such as '12:00:00'",
}


def time_text(kind: str) -> str:
    """Return how a value of a type of DataFusion, such as Date32, is written in SQL."""
    return next(text for start, text in _TIMES.items() if kind.startswith(start))


_KIND: Final = r"([A-Z]\w*(?:\([^)]*\))?)"
_UNLIKE: Final = re.compile(
    rf"Cannot infer common argument type for comparison operation {_KIND} \S.*? {_KIND}"
)
_IS_TIME_OF_DAY: Final = re.compile(r"Time(?:32|64)\(")
_OF_MANY_ROWS: Final = (
    "a condition is about one row, and cannot have functions over many rows such as count(*): use "
    "Table.sql() with GROUP BY and HAVING"
)
_NAMED_BY_NUL: Final = (
    "a column of the result has a zero byte in its name: name it, as in SELECT ... AS a"
)
_SEVERAL_LISTS: Final = (
    "it has several lists (IN) of one column, which are compared as they are written, and then "
    "coalesce, nvl, nvl2, now, current_date and arrow_cast are not known: use CASE and CAST, or "
    "one list"
)
_KNOWN: Final = (
    (_AGGREGATE, _OF_MANY_ROWS),
    (re.compile(_NUL_IN_NAME), _NAMED_BY_NUL),
    (re.compile(re.escape(NOT_FINITE)), NOT_FINITE),
    (_ONLY_REWRITTEN, _SEVERAL_LISTS),
)
"""What DataFusion says, and what to say in its place."""


def _reason(text: str, columns: Sequence[str], what: str) -> str:
    """Return what is wrong, and what to do, from what DataFusion says of it."""
    for found, reason in _KNOWN:
        if found.search(text):
            return reason
    called = _NO_FUNCTION.search(text)
    if called:
        name = called["name"].lower()
        return f"there is no function {name}() here: {_ELSEWHERE.get(name) or _similar(text)}"
    missing = _NO_FIELD.search(text)
    if missing:
        name = missing["name"].rpartition(".")[2].strip('"') if columns else missing["name"]
        return no_such_column(name, columns, what)
    return _shortened(text) + _advice(text, columns, what)


def _advice(text: str, columns: Sequence[str], what: str) -> str:
    """Return what to do besides what DataFusion says; nothing where nothing is known."""
    unlike = _UNLIKE.search(text)
    if unlike and any(map(_IS_TIME_OF_DAY.match, unlike.groups())):
        return (
            ". Compare a time of day with its text, such as at > '12:00:00', or with "
            "arrow_cast('12:00:00', 'Time64(Microsecond)')"
        )
    if unlike:
        times = [kind for kind in unlike.groups() if re.match("Date|Time|Duration", kind)]
        wanted = time_text(times[0]) if times else "CAST(column AS type)"
        return f". Compare values of one type: write {wanted}"
    if "ParserError(" in text and (quoting := _quoting(columns)):
        return f".{quoting}"
    if "ParserError(" in text and what.startswith("where="):
        return ". A condition is what stands after WHERE in SQL, such as n > 1 AND name = 'a'"
    if "Cast error: Cannot cast string" in text:
        return (
            ". Compare a column with values of its type: text is in single "
            "quotes; try_cast(column AS type) is null where a value does not fit"
        )
    return ""


def _similar(text: str) -> str:
    """Return what DataFusion says of similar functions."""
    found = re.search(r"Did you mean '(\w+)'", text)
    return f"did you mean {found[1]}()?" if found else "the functions are those of DataFusion"


def no_such_column(name: str, columns: Sequence[str], what: str = "") -> str:
    """Return what to say where no column has a name: similar names, or those that there are.

    Args:
        name: What was taken for a column.
        columns: The names of all columns.
        what: The statement or condition.
    """
    if name in columns:
        return (
            f"the column {name!r} is not known at this place: a part of FROM cannot use columns of "
            "another part; unnest a column in the list of SELECT, as in unnest(tags)"
        )
    if f'"{name}"' in what:
        return (
            f"no column {name!r}: names are in double quotes, and a text is in single ones: "
            f"write '{name}' for the text. {_columns_like(name, columns)}"
        )
    return (
        f"no column {name!r}; {_columns_like(name, columns)} Names are case-sensitive, and text is "
        "in single quotes"
    )


def _columns_like(name: str, columns: Sequence[str]) -> str:
    """Return the columns whose names are similar, or those that there are, and how to quote."""
    plain = {column.casefold(): column for column in columns}
    near = [plain[each] for each in get_close_matches(name.casefold(), plain, n=3)]
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?{_quoting(near)}"
    return f"there are {', '.join(columns[:20])}.{_quoting(columns)}"


def _quoting(columns: Sequence[str]) -> str:
    """Return how columns are quoted, if there is one that must be."""
    odd = [each for each in columns if not each.isidentifier()]
    return f' Quote names with spaces or signs, as in "{odd[0]}".' if odd else ""


def shortened(text: object) -> object:
    """Return a statement or condition for a message: its beginning, if it is long."""
    return f"{text[:200]}..." if isinstance(text, str) and len(text) > 200 else text


def _shortened(text: str) -> str:
    """Return the text without what DataFusion says about itself."""
    text = _DETAIL.split(text, maxsplit=1)[0]
    text = _PREFIXES.sub("", text).strip().replace("'stored.", "'")
    parsed = _PARSER.match(text)
    text = parsed[1] if parsed else text
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."
