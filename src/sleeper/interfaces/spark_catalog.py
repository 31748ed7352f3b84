"""The Python side of Spark's catalog: answers what its jar asks about the tables of an instance.

The jar starts it as `python -m sleeper.interfaces.spark_catalog`, and talks by standard input and
output (`spark/catalog/answers.py`). It ends when its input does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sleeper.errors import BadRequest, TableNotFound
from sleeper.instance.instance import Instance, connect
from sleeper.model.formats.query_json import regions_from_json
from sleeper.model.processing import checked_function_patterns
from sleeper.model.schema import Schema
from sleeper.spark.catalog.answers import PROTOCOL, Request, answer_requests
from sleeper.spark.catalog.scan_plan import plan_scan
from sleeper.spark.catalog.sessions import catalog_jar
from sleeper.spark.catalog.tables import describe_table, new_table
from sleeper.tables.table import Table
from sleeper.tables.versions import version_as_of

_TABLES_KEPT: Final = 16
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Spark's own words for a version, which it has understood by then.
_OF_SPARK: Final = frozenset({"versionasof", "timestampasof"})


class CatalogAnswers:
    """Answers requests about one instance, which the first request names."""

    def __init__(self) -> None:
        self._instance: Instance | None = None
        self._tables: OrderedDict[str, Table] = OrderedDict()
        self._answers: Mapping[str, Callable[[Request], object]] = {
            "open": self._open,
            "tables": lambda request: [*self._connected()],
            "load": self._load,
            "scan": self._scan,
            "create": self._create,
            "drop": self._drop,
            "rename": self._rename,
        }

    def answer(self, request: Request) -> object:
        """Return the answer to a request, as values of JSON.

        Raises:
            SleeperError: what was asked for cannot be.
        """
        return self._answers[request["call"]](request)

    def _open(self, request: Request) -> object:
        if request["protocol"] != PROTOCOL:
            raise BadRequest(
                "the catalog's jar and Sleeper in Python are of different versions: use the jar "
                f"that belongs to this Python, {catalog_jar()}"
            )
        text = request["allow_functions"]
        allowed = None if text is None else checked_function_patterns(text, "allow_functions")
        if str(request["instance"]).startswith("memory:"):
            raise BadRequest("a memory:// instance exists in one process only: use a folder")
        self._instance = connect(request["instance"], allow_functions=allowed)
        return None

    def _load(self, request: Request) -> object:
        name = request["table"]
        table = self._table(name)
        if "version" in request:
            as_of: int | datetime | None = _transaction(request["version"])
        elif "microseconds" in request:
            as_of = _EPOCH + timedelta(microseconds=request["microseconds"])
        else:
            as_of = None
        store = table.open_for_spark().store
        state = version_as_of(store, as_of)
        schema = table.schema
        if as_of is not None:
            schema = state.schema_then(schema, store.known())
        return self._described(table, schema, state.number)

    def _described(self, table: Table, schema: Schema, number: int) -> object:
        (record,) = (each for each in self._connected().tables() if each.name == table.name)
        return describe_table(table.name, schema, record.properties, number)

    def _scan(self, request: Request) -> object:
        table = self._table(request["table"])
        source = table.open_for_spark()
        given = {name.lower(): text for name, text in request["options"].items()}
        if unknown := sorted(given.keys() - {"regions", "as_of", *_OF_SPARK}):
            raise BadRequest(
                f"a read of a catalog's table has no option {unknown[0]!r}; it has regions and "
                "as_of. Columns are those that the query selects"
            )
        number = _transaction(given["as_of"]) if "as_of" in given else request["version"]
        regions = given.get("regions")
        state = version_as_of(source.store, number)
        plan = plan_scan(
            source.table_files if number is None else source.table_files.as_of(state, source.store),
            state,
            columns=request["columns"],
            filters=request["filters"],
            regions=None if regions is None else regions_from_json(table.schema, regions),
            options=request["source"],
            s3_scheme=request["s3_scheme"],
        )
        return asdict(plan)

    def _create(self, request: Request) -> object:
        wanted = new_table(json.loads(request["schema"]), request["properties"])
        table = self._connected().create_table(
            request["table"],
            wanted.columns,
            row_keys=wanted.row_keys,
            sort_keys=wanted.sort_keys,
            properties=wanted.properties,
        )
        return self._described(table, table.schema, table.refresh())

    def _drop(self, request: Request) -> object:
        try:
            self._connected().delete_table(request["table"])
        except TableNotFound:
            return False
        return True

    def _rename(self, request: Request) -> object:
        self._table(request["table"]).rename(request["to"])
        return None

    def _connected(self) -> Instance:
        assert self._instance is not None, "the first request is 'open'"
        return self._instance

    def _table(self, name: str) -> Table:
        """Return the handle of a table: one that was used before knows its state."""
        fresh = self._connected().table(name)
        table = self._tables.pop(fresh.table_id, fresh)
        self._tables[fresh.table_id] = table
        if len(self._tables) > _TABLES_KEPT:
            self._tables.popitem(last=False)
        return table


def _transaction(text: Any) -> int:
    """Read a transaction number, as VERSION AS OF gives it."""
    if not str(text).isdecimal():
        raise BadRequest(f"a version of a table is a transaction number, not {text!r}")
    return int(text)


def main() -> None:
    """Answer requests until standard input ends."""
    # Ctrl-C is for Spark, which ends this process; what functions of tables print is no answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    answer_requests(sys.stdin.buffer, answers, CatalogAnswers().answer)


if __name__ == "__main__":
    main()
