"""The data source `sleeper`, as Spark users name it, and its options.

spark.read.format("sleeper").option("instance", URL).option("table", NAME).load()
frame.write.format("sleeper").option(...).option(...).mode("append").save()
spark.readStream.format("sleeper")...      frame.writeStream.format("sleeper")...

`spark_options.py` lists the options, and docs/reference/spark-options.md shows them.
"""

from __future__ import annotations

import re
from typing import Literal

from sleeper.errors import BadRequest
from sleeper.instance.instance import connect
from sleeper.interfaces.spark_options import check_names, check_use
from sleeper.model.formats.regions_json import regions_from_json
from sleeper.model.processing import checked_function_patterns
from sleeper.model.ranges import Region, whole_region
from sleeper.spark.data_source.open_table import OpenTable
from sleeper.spark.data_source.requests import ReadRequest, StreamRequest
from sleeper.spark.data_source.source import TableSource

_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`,]*[^`,\s]))\s*(?:,|$)")


class SleeperSource(TableSource):
    """Reads and writes one table of an instance, which the options name."""

    def open_table(self) -> OpenTable:
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

    def read_request(self, table: OpenTable) -> ReadRequest:
        """Return what the options `regions` and `as_of` ask for."""
        check_use(self.options, "read")
        return ReadRequest(regions=self._regions(table), as_of=self._number("as_of"))

    def stream_request(self, table: OpenTable) -> StreamRequest:
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
        return self._option("job_id")

    def _regions(self, table: OpenTable) -> tuple[Region, ...]:
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
                f"the data source 'sleeper' needs option({name!r}, ...). Tables that CREATE TABLE "
                "makes lose their options in Spark, so they cannot be read: use CREATE TEMPORARY "
                "VIEW ... USING sleeper OPTIONS (...), or sleeper.spark.register(spark, instance)"
            )
        return value

    def _option(self, name: str) -> str | None:
        # Whatever its letters' case; `get` of Spark's own mapping looks at it.
        return self.options[name] if name in self.options else None  # noqa: SIM401


def columns_from_text(text: str) -> list[str]:
    """Read the option `columns`.

    >>> columns_from_text("a, `b,c`")
    ['a', 'b,c']

    Raises:
        BadRequest: it is not names with commas between them.
    """
    names: list[str] = []
    place = 0
    while place < len(text):
        found = _COLUMN.match(text, place)
        if found is None:
            raise BadRequest(
                f"option 'columns' is names with commas between them, odd ones in backquotes, "
                f"not {text!r}"
            )
        names.append(found[2] if found[1] is None else found[1].replace("``", "`"))
        place = found.end()
    return names
