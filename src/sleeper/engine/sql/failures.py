"""Translates DataFusion's errors of statements: mistakes of the caller, or a lack of memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher, get_close_matches
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
_SUBTRACTED: Final = "subtract one time from the other, as in later - earlier"
_ADDED: Final = "add an interval, as in time + INTERVAL '1 day', or subtract one"
_CHOSEN: Final = "use CASE WHEN condition THEN a ELSE b END"
_EPOCH: Final = "use date_part('epoch', time)"
_NO_JSON: Final = "texts of JSON are not read here: a part of a struct is column['part']"
_JOINED: Final = "use string_agg(text, ',')"
_MATCHED: Final = "use regexp_match(text, pattern)[1]"
_QUANTILE: Final = "use percentile_cont(0.9) WITHIN GROUP (ORDER BY column)"
_ELSEWHERE: Final = {
    **{
        part: f"use date_part('{part}', time)"
        for part in ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
    },
    **dict.fromkeys(("dayofweek", "weekday", "dow"), "use date_part('dow', time)"),
    **dict.fromkeys(("dayofyear", "doy"), "use date_part('doy', time)"),
    **dict.fromkeys(("epoch", "unix_timestamp"), _EPOCH),
    **dict.fromkeys(("datediff", "date_diff", "age", "timestampdiff"), _SUBTRACTED),
    **dict.fromkeys(("dateadd", "date_add", "adddate", "date_sub", "timestampadd"), _ADDED),
    **dict.fromkeys(("getdate", "sysdate"), "use now()"),
    "curdate": "use current_date",
    "date": "use CAST(time AS DATE)",
    "strftime": "use to_char(time, '%Y-%m-%d')",
    **dict.fromkeys(("strptime", "str_to_date"), "use to_timestamp(text, '%Y-%m-%d %H:%M:%S')"),
    **dict.fromkeys(("group_concat", "listagg"), _JOINED),
    "len": "use length(text)",
    "charindex": "use strpos(text, part)",
    **dict.fromkeys(("regexp_extract", "regexp_substr"), _MATCHED),
    **dict.fromkeys(("str", "string", "to_string"), "use CAST(column AS VARCHAR)"),
    **dict.fromkeys(("int", "integer", "to_int"), "use CAST(column AS BIGINT)"),
    **dict.fromkeys(("float", "double", "to_number"), "use CAST(column AS DOUBLE)"),
    "collect_list": "use array_agg(column)",
    "explode": "use unnest(list)",
    **dict.fromkeys(("size", "array_size"), "use cardinality(list)"),
    **dict.fromkeys(("count_if", "countif"), "use count(*) FILTER (WHERE condition)"),
    **dict.fromkeys(("if", "iff"), _CHOSEN),
    "isnull": "write column IS NULL, or coalesce(column, other)",
    "first": "use first_value(column ORDER BY other)",
    "last": "use last_value(column ORDER BY other)",
    **dict.fromkeys(("max_by", "arg_max"), "use first_value(column ORDER BY other DESC)"),
    **dict.fromkeys(("min_by", "arg_min"), "use first_value(column ORDER BY other)"),
    "mode": "group by the column, and order the groups by count(*) DESC",
    **dict.fromkeys(("quantile", "percentile", "quantile_cont"), _QUANTILE),
    "variance": "use var(column)",
    **dict.fromkeys(("std", "stdev"), "use stddev(column)"),
    **dict.fromkeys(
        ("json_extract", "json_value", "get_json_object", "json_extract_string"), _NO_JSON
    ),
}
"""Functions of other engines, whose names are like others that do something else."""
_WINDOWS: Final = frozenset(
    ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead")
)
"""Functions that DataFusion knows with OVER alone, and offers others for without it."""
_NEAR: Final = 0.75
_WHICH: Final = (
    "the functions are those of DataFusion, "
    "https://datafusion.apache.org/user-guide/sql/scalar_functions.html"
)

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
_DOT: Final = (
    "a part of a struct is column['part']; quote a column whose name is a word of SQL, as in "
    "\"user\"['part']"
)
_UNFIT: Final = re.compile(r"Function '(\w+)' failed to match any signature")
_RECEIVED: Final = re.compile(r"requires \w+, but received (\w+)")
_NO_TABLE: Final = re.compile(r"table '(?:datafusion|sleeper)\.([^']+)' not found")
_KNOWN: Final = (
    (_AGGREGATE, _OF_MANY_ROWS),
    (re.compile(_NUL_IN_NAME), _NAMED_BY_NUL),
    (re.compile(re.escape(NOT_FINITE)), NOT_FINITE),
    (_ONLY_REWRITTEN, _SEVERAL_LISTS),
    (re.compile(r"not implemented: TOP\b"), "write LIMIT n at the end in place of TOP n"),
    (re.compile("only supports a single SQL statement"), "give one statement at a time"),
    (re.compile("Dot access not supported"), _DOT),
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
        if name in _WINDOWS:
            return f"{name}() needs a window: write {name}(...) OVER (ORDER BY column)"
        instead = _ELSEWHERE.get(name) or _similar(name, text)
        return f"there is no function {name}() here: {instead}"
    unfit = _UNFIT.search(text)
    if unfit and (kinds := set(_RECEIVED.findall(text))):
        return (
            f"{unfit[1]}() takes values of other types, not {' and '.join(sorted(kinds))}: convert "
            "them, as by CAST(column AS DOUBLE), or by try_cast, which is null where a value does "
            "not fit"
        )
    absent = _NO_TABLE.search(text)
    if absent:
        return (
            f"no table {absent[1]}: tables have no database or schema before their names here; a "
            f'name that has a dot is in double quotes, as "{absent[1]}"'
        )
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
    if "Ambiguous reference" in text:
        return ". Several parts of FROM have it: write which one is meant, as in a.column"
    if "Cannot coerce arithmetic" in text:
        return ". Convert one side, as by CAST(column AS DOUBLE); texts are joined by ||"
    if "table function" in text and "not found" in text:
        return (
            ". A statement reads the tables of the instance, and no files: ingest them first "
            "(`sleeper ingest`)"
        )
    if "Cast error: Cannot cast string" in text:
        return (
            ". Compare a column with values of its type: text is in single "
            "quotes; try_cast(column AS type) is null where a value does not fit"
        )
    return ""


def _similar(name: str, text: str) -> str:
    """Return the function that DataFusion offers, if its name is similar, or where they are listed.

    DataFusion always offers one, whatever it does.
    """
    found = re.search(r"Did you mean '(\w+)'", text)
    near = found is not None and SequenceMatcher(None, name, found[1]).ratio() >= _NEAR
    return f"did you mean {found[1]}()?" if found is not None and near else _WHICH


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
            f"write '{name}' for the text. If it is meant as a name: {_columns_like(name, columns)}"
        )
    return (
        f"no column {name!r}; {_columns_like(name, columns)} Names are case-sensitive, and text is "
        "in single quotes"
    )


def _columns_like(name: str, columns: Sequence[str]) -> str:
    """Return the columns whose names are similar, or those that there are, and how to quote."""
    plain = {column.casefold(): column for column in columns}
    near = [plain[each] for each in get_close_matches(name.casefold(), plain, n=3)]
    if name.casefold() in plain:
        near = near[:1]
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
