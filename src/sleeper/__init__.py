"""Sleeper: a key-value table store for billions of rows, with no cost of servers when idle.

>>> import sleeper
>>> instance = sleeper.connect("/data/my-instance", create=True)
>>> table = instance.table("flights")
>>> table.query(key="N14228").to_pandas()
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:  # see __getattr__
    from sleeper import spark
    from sleeper.engine.rows import Rows
    from sleeper.html.progress import progress_bar
    from sleeper.instance.instance import Instance, create_instance
    from sleeper.interfaces.connection import connect
    from sleeper.model.authors import committing
    from sleeper.model.csv_options import CsvOptions
    from sleeper.model.schema import (
        DecimalType,
        Field,
        ListType,
        MapType,
        Primitive,
        Schema,
        StructType,
    )
    from sleeper.tables.ingest import IngestResult
    from sleeper.tables.table import Table

__all__ = [
    "AlreadyExists",
    "BadRequest",
    "CommitContended",
    "CommitRefused",
    "CommitUnknown",
    "CsvOptions",
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
    "StructType",
    "Table",
    "committing",
    "connect",
    "create_instance",
    "progress_bar",
    "spark",
]

_LOADED_AT_FIRST_USE = {
    "CsvOptions": "sleeper.model.csv_options",
    "DecimalType": "sleeper.model.schema",
    "Field": "sleeper.model.schema",
    "IngestResult": "sleeper.tables.ingest",
    "Instance": "sleeper.instance.instance",
    "ListType": "sleeper.model.schema",
    "MapType": "sleeper.model.schema",
    "Primitive": "sleeper.model.schema",
    "Rows": "sleeper.engine.rows",
    "Schema": "sleeper.model.schema",
    "StructType": "sleeper.model.schema",
    "Table": "sleeper.tables.table",
    "committing": "sleeper.model.authors",
    "connect": "sleeper.interfaces.connection",
    "create_instance": "sleeper.instance.instance",
    "progress_bar": "sleeper.html.progress",
}
"""The modules of the public names that `import sleeper` does not load."""


def __getattr__(name: str) -> Any:
    """Return a public name, whose module is loaded when it is first used."""
    if name == "spark":
        return import_module("sleeper.spark")
    if name not in _LOADED_AT_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_LOADED_AT_FIRST_USE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
