"""Sleeper: a key-value table store for billions of rows, with no cost of servers when idle.

>>> import sleeper
>>> instance = sleeper.connect("/data/my-instance", create=True)
>>> table = instance.table("flights")
>>> table.query(key="N14228").to_pandas()
"""

from sleeper import spark
from sleeper.engine.rows import Rows
from sleeper.errors import (
    AlreadyExists,
    BadRequest,
    CommitContended,
    CommitRefused,
    CommitUnknown,
    DataDamaged,
    InputRefused,
    NotFound,
    SleeperError,
    StorageFailed,
)
from sleeper.instance import Instance, connect, create_instance
from sleeper.model.schema import DecimalType, Field, ListType, MapType, Primitive, Schema
from sleeper.operations.ingest import IngestResult
from sleeper.table.table import Table

__all__ = [
    "AlreadyExists",
    "BadRequest",
    "CommitContended",
    "CommitRefused",
    "CommitUnknown",
    "DataDamaged",
    "DecimalType",
    "Field",
    "IngestResult",
    "InputRefused",
    "Instance",
    "ListType",
    "MapType",
    "NotFound",
    "Primitive",
    "Rows",
    "Schema",
    "SleeperError",
    "StorageFailed",
    "Table",
    "connect",
    "create_instance",
    "spark",
]
