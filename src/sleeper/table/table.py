"""A table as its user holds it."""

from __future__ import annotations

from sleeper.table.bulk_import import TableBulkImport
from sleeper.table.definition import TableDefinition
from sleeper.table.export import TableExport
from sleeper.table.maintenance import TableMaintenance
from sleeper.table.spark import TableSpark


class Table(TableBulkImport, TableExport, TableSpark, TableMaintenance, TableDefinition):
    """One table of an instance: ingest into it, query it, look at it.

    A handle is cheap: files and state are opened at first use, and nothing is asked of the
    storage while it is idle. It is safe in threads and may be pickled. A forked process may look
    up keys; it may read ranges and ingest if its parent had not. Every query first looks for new
    commits (in a folder that is one look at the file system).

    >>> import sleeper
    >>> instance = sleeper.connect("memory://")
    >>> schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    >>> table = instance.create_table("numbers", schema, row_keys=["id"])
    >>> table.ingest([{"id": "b", "n": 2}, {"id": "a", "n": 1}]).rows_written
    2
    >>> table.query(key="a").to_pylist()
    [{'id': 'a', 'n': 1}]
    """
