"""`Table.scan_polars` and `Table.to_duckdb`: gives a table to other engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sleeper.errors import BadRequest
from sleeper.language.late_imports import late_imports
from sleeper.tables.handle import TableHandle
from sleeper.tables.sql import TableVersion, scanned_table

with late_imports():
    from sleeper.engine.sql import other_engines

if TYPE_CHECKING:
    import polars as pl


def scan_polars(self: TableHandle, *, ordered: bool = False) -> pl.LazyFrame:
    """Return this table as a LazyFrame of polars, at the transaction that is the newest now.

    Rows are read when the frame is collected: only the columns that it needs, and only where its
    conditions on row keys can be true (`==`, `is_in`, `is_between`, comparisons and
    `str.starts_with`, with `&`, `|` and `~`). Batches are given to polars one after the other.

    Args:
        ordered: True for rows in key order, which reads files of a leaf together.

    Raises:
        BadRequest: `ordered` is not a bool.
        DataDamaged: a file of the table is missing or wrong; raised while the frame is collected.
    """
    if not isinstance(ordered, bool):
        raise BadRequest(f"ordered must be True or False, not {ordered!r}")
    return other_engines.scan_polars(scanned_table(_version(self), ordered=ordered))


def to_duckdb(self: TableHandle, connection: Any, name: str | None = None) -> None:
    """Register this table in a connection to DuckDB, at the transaction that is the newest now.

    DuckDB reads rows while a statement runs: only the columns that it needs, and only where its
    conditions on row keys can be true, as far as it passes them on. Register again for newer rows.

    Args:
        connection: What `duckdb.connect()` returned.
        name: The name in DuckDB; that of the table without it.

    Raises:
        BadRequest: it is no connection, or `name` is no name.
    """
    if not type(connection).__module__.lstrip("_").startswith("duckdb"):
        raise BadRequest(f"connection must be what duckdb.connect() returns, not {connection!r}")
    if name is not None and (type(name) is not str or not name):
        raise BadRequest(f"name must be a name for DuckDB, not {name!r}")
    dataset = other_engines.DuckdbDataset(scanned_table(_version(self)))
    connection.register(self.name if name is None else name, dataset)


def _version(self: TableHandle) -> TableVersion:
    now_ms = int(self._context.now().timestamp() * 1000)
    opened, state = self._newest()
    return TableVersion(opened.record.name, opened.reader, state, now_ms)
