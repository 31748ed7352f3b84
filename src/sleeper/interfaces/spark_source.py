"""The data source `sleeper`, as Spark users name it, and its options.

spark.read.format("sleeper").option("instance", URL).option("table", NAME).load()
frame.write.format("sleeper").option(...).option(...).mode("append").save()
spark.readStream.format("sleeper")...      frame.writeStream.format("sleeper")...

instance    Where the instance is: a folder or URL, reached by all workers alike.
table       The table's name.
columns     What to read: names with commas between them; one with a comma, a backquote or
            spaces at its ends goes in backquotes, as in SQL: a, `b,c`, `d``e`. All without it.
regions     What to read: JSON as in queries, [{"id": {"min": "a", "max": "b"}}].
as_of       A transaction number: read the table as it was then.
push_filters    `true` lets filters of =, <, <=, >, >= and IN on row keys narrow what is read, on
            Spark 4.1 and later with spark.sql.python.filterPushdown.enabled. Load anew for every
            filter: Spark uses the first one's rows whenever that DataFrame is used again. It is
            `false` by default: say what to read by `regions`.
job_id      Write: names the work; a job that was committed changes nothing when repeated.
            A stream is named by its checkpoint without it.
from        Stream read: `earliest` (the table as it is, then what is added), `latest` (what is
            added from now on; the default) or a number (what is added after that transaction).
max_files_per_trigger    Stream read, Spark 4.2 and later: files of a micro-batch.
"""

from __future__ import annotations

import re
from typing import Literal

from sleeper.errors import BadRequest
from sleeper.instance import connect
from sleeper.model.formats.regions_json import regions_from_json
from sleeper.model.ranges import Region, whole_region
from sleeper.spark.data_source.open_table import OpenTable
from sleeper.spark.data_source.requests import ReadRequest, StreamRequest
from sleeper.spark.data_source.source import TableSource

_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`,]*[^`,\s]))\s*(?:,|$)")


class SleeperSource(TableSource):
    """Reads and writes one table of an instance: the module's docstring lists the options."""

    def open_table(self) -> OpenTable:
        """Open the table that the options `instance` and `table` name."""
        if self._option("path") is not None:
            raise BadRequest(
                "a table has no path: name it by option('instance', ...) and option('table', ...), "
                "and call load() or save() without one"
            )
        return connect(self._required("instance")).table(self._required("table")).open_for_spark()

    def columns(self) -> list[str] | None:
        """Return the names of the option `columns`."""
        text = self._option("columns")
        return None if text is None else columns_from_text(text)

    def read_request(self, table: OpenTable) -> ReadRequest:
        """Return what the options `regions`, `as_of` and `push_filters` ask for."""
        return ReadRequest(
            regions=self._regions(table),
            as_of=self._number("as_of"),
            push_filters=self._flag("push_filters"),
        )

    def stream_request(self, table: OpenTable) -> StreamRequest:
        """Return what the options `regions`, `from` and `max_files_per_trigger` ask for."""
        if self._option("as_of") is not None:
            raise BadRequest("as_of reads one state of a table; a stream begins at option 'from'")
        files_max = self._number("max_files_per_trigger")
        if files_max == 0:
            raise BadRequest("option 'max_files_per_trigger' must be 1 or more")
        return StreamRequest(regions=self._regions(table), start=self._start(), files_max=files_max)

    def job_id(self) -> str | None:
        """Return the option `job_id`."""
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

    def _flag(self, name: str) -> bool:
        text = (self._option(name) or "false").lower()
        if text not in {"true", "false"}:
            raise BadRequest(f"option {name!r} is 'true' or 'false', not {text!r}")
        return text == "true"

    def _required(self, name: str) -> str:
        value = self._option(name)
        if not value:
            raise BadRequest(f"the data source 'sleeper' needs option({name!r}, ...)")
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
