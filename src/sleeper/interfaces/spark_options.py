"""The options of the data source `sleeper`, and the check that none is misspelt.

`docs/reference/spark-options.md` is generated from here.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final, Literal

from sleeper.errors import BadRequest
from sleeper.language.value_classes import dataclass

Use = Literal["read", "write", "stream read", "stream write"]

_ALL: Final = ("read", "write", "stream read", "stream write")
_READS: Final = ("read", "stream read")
_WRITES: Final = ("write", "stream write")


@dataclass(frozen=True, slots=True)
class SparkOption:
    """One option.

    Attributes:
        name: Its name; letters may be upper or lower case.
        uses: Where it may be given.
        text: What it means, in Markdown.
    """

    name: str
    uses: tuple[Use, ...]
    text: str


OPTIONS: Final = (
    SparkOption(
        "instance",
        _ALL,
        "Required. The instance: a folder or URL, which the driver and all workers reach.",
    ),
    SparkOption("table", _ALL, "Required. The table's name."),
    SparkOption(
        "allow_functions",
        _ALL,
        "Modules whose functions may run where a table names one (`sleeper.table.function`): names "
        "or patterns such as `my_package.*`, with commas between them. Default: those of the "
        "variable `SLEEPER_ALLOW_FUNCTIONS` of Spark's Python on the driver; none otherwise.",
    ),
    SparkOption(
        "columns",
        _READS,
        "The columns to read: names with commas between them. A name with a comma, a backquote "
        "or spaces at its ends goes in backquotes, as in SQL. Default: all columns.",
    ),
    SparkOption(
        "regions",
        _READS,
        'The keys to read: regions as JSON, such as `[{"id": {"min": "a", "max": "b"}}]`. '
        "Default: all keys.",
    ),
    SparkOption(
        "as_of",
        ("read",),
        "A transaction number: read the table as it was after this transaction. Default: the "
        "newest.",
    ),
    SparkOption(
        "from",
        ("stream read",),
        "Where a new stream begins: `earliest` (the table as it is, then what is added), `latest` "
        "(what is added from now on) or a transaction number (what is added after it). Default: "
        "`latest`.",
    ),
    SparkOption(
        "max_files_per_trigger",
        ("stream read",),
        "Spark 4.2 and later: the number of files in a micro-batch. A transaction is not divided. "
        "Default: no limit.",
    ),
    SparkOption(
        "job_id",
        _WRITES,
        "Names the work: a job that was committed adds nothing when it is repeated. A stream is "
        "named by its checkpoint; with this option by it.",
    ),
)
_BY_NAME: Final = {option.name: option for option in OPTIONS}

# Options that Spark or its users set for Spark itself. All of them reach a data source, too.
_OF_SPARK: Final = frozenset({"checkpointlocation", "path", "queryname", "outputmode"})
_REMOVED: Final = {
    "push_filters": "it was removed, because Spark 4.1 to 4.3 use rows that were read for one "
    "filter for other queries as well, so rows were missing. Read by table.to_spark(...) or by "
    "views of sleeper.spark.register(spark, instance), where Spark prunes by itself, or name the "
    "keys by option 'regions'"
}


def check_names(given: Iterable[str]) -> None:
    """Check that every option is known.

    Args:
        given: Names as Spark hands them over; case does not matter.

    Raises:
        BadRequest: a name is unknown; the message has the names that are near to it.
    """
    for name in map(str.lower, given):
        if name in _BY_NAME or name in _OF_SPARK:
            continue
        if name in _REMOVED:
            raise BadRequest(f"the data source 'sleeper' has no option {name!r}: {_REMOVED[name]}")
        near = get_close_matches(name, _BY_NAME, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(_BY_NAME)}"
        raise BadRequest(f"the data source 'sleeper' has no option {name!r}{hint}")


def check_use(given: Iterable[str], use: Use) -> None:
    """Check that every option may be given where it is.

    Raises:
        BadRequest: an option is for something else.
    """
    for name in map(str.lower, given):
        option = _BY_NAME.get(name)
        if option is not None and use not in option.uses:
            takes = ", ".join(each.name for each in OPTIONS if use in each.uses)
            raise BadRequest(
                f"option {name!r} is for a {' or a '.join(option.uses)}, not for a {use}, which "
                f"takes {takes}"
            )
