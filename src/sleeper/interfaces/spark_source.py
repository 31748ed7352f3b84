"""The data source `sleeper`, as Spark users name it, and its options.

spark.read.format("sleeper").option("instance", URL).option("table", NAME).load()
frame.write.format("sleeper").option(...).option(...).mode("append").save()
spark.readStream.format("sleeper")...      frame.writeStream.format("sleeper")...

`spark_options.py` lists the options, and docs/reference/spark-options.md shows them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal

from sleeper.errors import BadRequest
from sleeper.instance.instance import connect
from sleeper.model.formats.query_json import regions_from_json
from sleeper.model.processing import checked_function_patterns
from sleeper.model.ranges import Region, whole_region
from sleeper.ports.ids import given_job_id
from sleeper.spark.column_names import columns_from_text
from sleeper.spark.data_source.open_table import SparkTable
from sleeper.spark.data_source.reader import ReadRequest, StreamRequest
from sleeper.spark.data_source.source import TableSource

# ---------------------------------------------------------------- spark options
#
# The options of the data source `sleeper`, and the check that none is misspelt.
#
# `docs/reference/spark-options.md` is generated from here.

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
    SparkOption(
        "upsert",
        _WRITES,
        "`true`: rows that have the same row keys are replaced, in the same commit; of a stream, "
        "in that of each micro-batch. A key that is in one write twice is refused. Spark writes "
        "the new rows, and its driver takes the old ones out. Default: `false`, rows are added.",
    ),
)
_BY_NAME: Final = {option.name: option for option in OPTIONS}

# Options that Spark or its users set for Spark itself. All of them reach a data source, too.
_OF_SPARK: Final = frozenset({"checkpointlocation", "path", "queryname", "outputmode"})
_CREATED: Final = (
    "Spark loses the options of such a table, so nothing is behind it. Make tables in Spark's "
    "catalog of Sleeper, after sleeper.spark.add_catalog(spark, instance), by CREATE TABLE "
    "sleeper.NAME (...) TBLPROPERTIES ('row_keys' = 'COLUMN'); or name a table that exists by "
    "CREATE TEMPORARY VIEW ... USING sleeper OPTIONS (instance '...', table '...')"
)
_NOT_HERE: Final = {
    "push_filters": "it was removed, because Spark 4.1 to 4.3 use rows that were read for one "
    "filter for other queries as well, so rows were missing. Read by table.to_spark(...) or by "
    "views of sleeper.spark.register(spark, instance), where Spark prunes by itself, or name the "
    "keys by option 'regions'",
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
        if name.startswith("option."):
            raise BadRequest(f"CREATE TABLE ... USING sleeper is not possible: {_CREATED}")
        if name in _NOT_HERE:
            raise BadRequest(f"the data source 'sleeper' has no option {name!r}: {_NOT_HERE[name]}")
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


class SleeperSource(TableSource):
    """Reads and writes one table of an instance, which the options name."""

    def open_table(self) -> SparkTable:
        """Open the table that the options `instance` and `table` name."""
        check_names(self.options)
        if self._option("path") is not None:
            raise BadRequest(
                "a table has no path: name it by option('instance', ...) and option('table', ...), "
                "and call load() or save() without one"
            )
        text = self._option("allow_functions")
        allowed = None if text is None else checked_function_patterns(text, "allow_functions")
        instance = connect(self._required("instance"), allow_functions=allowed)
        return instance.table(self._required("table")).open_for_spark()

    def columns(self) -> list[str] | None:
        """Return the names of the option `columns`."""
        text = self._option("columns")
        return None if text is None else columns_from_text(text)

    def as_of(self) -> int | None:
        """Return the option `as_of`."""
        return self._number("as_of")

    def read_request(self, table: SparkTable) -> ReadRequest:
        """Return what the options `regions` and `as_of` ask for."""
        check_use(self.options, "read")
        return ReadRequest(regions=self._regions(table), as_of=self.as_of())

    def stream_request(self, table: SparkTable) -> StreamRequest:
        """Return what the options `regions`, `from` and `max_files_per_trigger` ask for."""
        if self._option("as_of") is not None:
            raise BadRequest("as_of reads one state of a table; a stream begins at option 'from'")
        check_use(self.options, "stream read")
        files_max = self._number("max_files_per_trigger")
        if files_max == 0:
            raise BadRequest("option 'max_files_per_trigger' must be 1 or more")
        return StreamRequest(regions=self._regions(table), start=self._start(), files_max=files_max)

    def job_id(self) -> str | None:
        """Return the option `job_id` of a write."""
        check_use(self.options, "write")
        return given_job_id(self._option("job_id"))

    def upsert(self) -> bool:
        """Return the option `upsert` of a write."""
        text = (self._option("upsert") or "false").lower()
        if text not in ("true", "false"):
            raise BadRequest(f"option 'upsert' is 'true' or 'false', not {text!r}")
        return text == "true"

    def _regions(self, table: SparkTable) -> tuple[Region, ...]:
        text = self._option("regions")
        return (
            (whole_region(table.schema),) if text is None else regions_from_json(table.schema, text)
        )

    def _start(self) -> Literal["earliest", "latest"] | int:
        match self._option("from"):
            case None | "latest":
                return "latest"
            case "earliest":
                return "earliest"
            case text if text.isdecimal():
                return int(text)
            case text:
                raise BadRequest(
                    f"option 'from' is 'earliest', 'latest' or a transaction number, not {text!r}"
                )

    def _number(self, name: str) -> int | None:
        text = self._option(name)
        if text is not None and not text.isdecimal():
            raise BadRequest(f"option {name!r} is a number, not {text!r}")
        return None if text is None else int(text)

    def _required(self, name: str) -> str:
        value = self._option(name)
        if not value:
            raise BadRequest(
                f"the data source 'sleeper' needs option({name!r}, ...). If this table was made by "
                f"CREATE TABLE ... USING sleeper, drop it: {_CREATED}"
            )
        return value

    def _option(self, name: str) -> str | None:
        # Whatever its letters' case; `get` of Spark's own mapping looks at it.
        return self.options[name] if name in self.options else None  # noqa: SIM401
