"""What to say where an instance or a table has no attribute: the names of ours for it.

Users know other libraries, where a table is read by `read_table`, or rows are added by `insert`.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

OF_INSTANCE: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("get_table", "open_table", "read_table", "load_table", "table_by_name", "get", "read"),
        "table('NAME')",
    ),
    **dict.fromkeys(("list_tables", "table_names", "show_tables", "get_tables"), "tables()"),
    **dict.fromkeys(("drop_table", "remove_table", "drop"), "delete_table('NAME')"),
    **dict.fromkeys(("add_table", "new_table"), "create_table('NAME', SCHEMA)"),
    **dict.fromkeys(("query", "execute", "select", "run"), "sql('SELECT ...')"),
    **dict.fromkeys(("write_table", "ingest", "insert"), "table('NAME').ingest(ROWS)"),
}
OF_TABLE: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("read", "get", "find", "select", "lookup", "look_up", "filter", "where", "scan", "fetch"),
        "query(key=..., range=..., where=...)",
    ),
    **dict.fromkeys(
        ("insert", "write", "append", "add", "load", "put", "insert_many", "from_pandas"),
        "ingest(ROWS)",
    ),
    **dict.fromkeys(("merge", "update"), "upsert(ROWS)"),
    **dict.fromkeys(("to_pylist", "to_dicts", "iterrows", "itertuples"), "rows()"),
    **dict.fromkeys(("to_parquet", "write_parquet", "to_csv"), "export('FOLDER')"),
    **dict.fromkeys(("shape", "num_rows", "nrows", "size"), "count()"),
    **dict.fromkeys(("dtypes", "describe", "info", "fields"), "schema"),
    **dict.fromkeys(("vacuum", "optimize"), "compact() and collect_garbage()"),
    **dict.fromkeys(("versions", "log", "snapshots"), "history()"),
    **dict.fromkeys(("execute",), "sql('SELECT ...')"),
    **dict.fromkeys(("tail",), "query(limit=...), which has the first rows"),
    **dict.fromkeys(("truncate", "clear"), "reinitialise()"),
}


_NEAR: Final = 0.65
"""How like a name must be to be meant: `purge` is not meant by `price`, which may be a column."""


def no_such_attribute(owner: object, name: str, instead: Mapping[str, str]) -> AttributeError:
    """Return the error for an attribute that an instance or a table does not have.

    Args:
        owner: The instance or table.
        name: The attribute.
        instead: What to write for some names.
    """
    kind = type(owner)
    what = f"{kind.__name__!r} object has no attribute {name!r}"
    if name.startswith("_") or hasattr(kind, name):  # asked by libraries; or a property failed
        return AttributeError(what, name=name, obj=owner)
    public = [each for each in dir(kind) if not each.startswith("_")]
    if name in instead:
        what += f": use {instead[name]}"
    elif near := get_close_matches(name, public, n=2, cutoff=_NEAR):
        what += f": did you mean {' or '.join(near)}?"
    elif instead is OF_INSTANCE:
        what += f": a table of this name is opened by table({name!r})"
    else:
        what += f": for the column of this name use query(columns=[{name!r}])"
    return AttributeError(what)
