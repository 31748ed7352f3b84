"""DataFusion contexts with tables, which statements use one after the other.

To make a context and to register its tables takes half a millisecond, which is more than a look-up
by key. So a few contexts are kept, each with the tables of one kind of statement. They have the
columns of tables, and no rows: what a scan reads is decided by the statement that plans it.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Final

import pyarrow as pa

from sleeper.engine.scan.session import datafusion, new_context
from sleeper.engine.sql.float_aggregates import register_functions
from sleeper.engine.sql.joined_lists import SIMPLIFY
from sleeper.engine.sql.plans import ROWS_MAX, STORED
from sleeper.engine.sql.scans.table_dataset import OpenScan, TableDataset

MEMORY_BYTES: Final = 1 << 30
"""Memory for sorting, grouping and joining in one statement; more is spilled to the temp folder."""

_IDLE_MAX: Final = 8
_ALWAYS: Final = "random() >= 0"  # not known to be true before it is computed
_CATALOG, _SCHEMA = "sleeper", "tables"
_SETTINGS: Final = {
    # Names are written as they are in the table; functions and key words in either case.
    "datafusion.sql_parser.enable_ident_normalization": "false",
    "datafusion.catalog.information_schema": "false",
    "datafusion.catalog.create_default_catalog_and_schema": "true",
    "datafusion.catalog.default_catalog": _CATALOG,
    "datafusion.catalog.default_schema": _SCHEMA,
}


class SqlContext:
    """A context of DataFusion with some tables.

    Args:
        schemas: The columns of each table, by its name.
        partitions: How many parts of the rows are computed at once.
        temp_folder: Where sorting and grouping spill; None for the system's temp folder.
        keep_limits: True to keep the LIMIT above each table where it is, by a condition above it
            that is true of every row. It costs a little for each row.
        joins_lists: False to plan without the rule that joins lists (`joined_lists`), which also
            computes constants and puts conditions into the forms that narrow what is read.

    Attributes:
        context: The context of DataFusion.
        views: The tables as frames of DataFusion, by name.
        datasets: What is scanned for each of them.
    """

    def __init__(
        self,
        schemas: Mapping[str, pa.Schema],
        partitions: int,
        temp_folder: Path | None,
        *,
        keep_limits: bool = False,
        joins_lists: bool = True,
    ) -> None:
        module = datafusion()
        self.context = new_context(
            _SETTINGS,
            partitions=partitions,
            memory_bytes=IDLE.memory_bytes,
            temp_folder=temp_folder,
        )
        if not joins_lists:
            was_there = self.context.remove_optimizer_rule(SIMPLIFY)
            assert was_there, f"DataFusion has no rule {SIMPLIFY}"
        self._has_float_functions = False
        self.views: dict[str, Any] = {}
        self.datasets: dict[str, TableDataset] = {}
        catalog = self.context.catalog(_CATALOG)
        catalog.register_schema(STORED, module.catalog.Schema.memory_schema())
        stored, named = catalog.schema(STORED), catalog.schema(_SCHEMA)
        for name, schema in schemas.items():
            self.datasets[name] = TableDataset(name, schema)
            stored.register_table(name, module.catalog.Table(self.datasets[name]))
            place = f'{STORED}."{name.replace(chr(34), chr(34) * 2)}"'
            limited = self.context.table(place).limit(ROWS_MAX)
            self.views[name] = limited.filter(_ALWAYS) if keep_limits else limited
            named.register_table(name, module.catalog.Table(self.views[name]))

    def use_float_functions(self) -> None:
        """Register the functions of rewritten statements; few statements need them."""
        if not self._has_float_functions:
            register_functions(self.context)
            self._has_float_functions = True

    def use(self, open_scan: OpenScan | None) -> None:
        """Let scans that are planned from now on be those of a statement."""
        for dataset in self.datasets.values():
            dataset.open_scan = open_scan


class IdleContexts:
    """The contexts that no statement uses, up to a number of them: the last used ones.

    Attributes:
        memory_bytes: The memory of contexts that are made from now on, for sorting, grouping and
            joining.
    """

    def __init__(self) -> None:
        self.memory_bytes = MEMORY_BYTES
        self._idle: OrderedDict[Any, list[SqlContext]] = OrderedDict()
        self._lock = Lock()

    def take(self, key: Any, make: Callable[[], SqlContext]) -> SqlContext:
        """Return an idle context of a kind, or a new one."""
        datafusion()  # raises in a child of a process that used it
        with self._lock:
            known = self._idle.get((os.getpid(), key))
            if known:
                return known.pop()
        return make()

    def give_back(self, key: Any, context: SqlContext) -> None:
        """Let other statements use a context."""
        context.use(None)
        with self._lock:
            place = (os.getpid(), key)
            self._idle.setdefault(place, []).append(context)
            self._idle.move_to_end(place)
            while sum(map(len, self._idle.values())) > _IDLE_MAX:
                self._idle.popitem(last=False)


IDLE: Final = IdleContexts()
