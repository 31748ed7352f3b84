"""The systems, one module each, by the API that their documentation advises."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from bench.peers.system import System

# name: (module here, package that it needs)
SYSTEMS = {
    "sleeper": ("sleeper_table", "sleeper"),
    "floor": ("floor", "pyarrow"),
    "duckdb": ("duckdb_file", "duckdb"),
    "datafusion": ("datafusion_parquet", "datafusion"),
    "polars": ("polars_parquet", "polars"),
    "deltalake": ("delta_table", "deltalake"),
    "pyiceberg": ("iceberg_table", "pyiceberg"),
    "lance": ("lance_dataset", "lance"),
    "sqlite": ("sqlite_file", "sqlite3"),
}


def is_installed(name: str) -> bool:
    """Whether the package of a system is there."""
    return find_spec(SYSTEMS[name][1]) is not None


def system_class(name: str) -> type[System]:
    """The class of a system; its package is imported here and not before."""
    found: type[System] = import_module(f"{__name__}.{SYSTEMS[name][0]}").PEER
    return found
