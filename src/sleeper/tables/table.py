"""The public class `Table`: it binds the functions of the modules of this package."""

from __future__ import annotations

from sleeper.errors import BadRequest, TableNotFound
from sleeper.language.late_imports import LateMethod, late_imports
from sleeper.model.tables import TableRecord, no_such_table
from sleeper.tables import query_method as _query
from sleeper.tables.handle import TableHandle
from sleeper.tables.instance_context import InstanceContext

with late_imports():
    from sleeper.tables import bulk_import as _bulk_import
    from sleeper.tables import (
        commits,
        compaction_method,
        definition,
        frames,
        maintenance_methods,
        plots,
        spark,
    )
    from sleeper.tables import export as _export
    from sleeper.tables import history_methods as _history
    from sleeper.tables import ingest_method as _ingest
    from sleeper.tables import sql_method as _sql
    from sleeper.tables import verify_method as _verify


class Table(TableHandle):
    """One table of an instance: its rows, properties, partitions and maintenance.

    A handle is cheap: files and state are opened at first use, and an idle handle makes no
    requests. It is safe in threads and may be pickled. A forked process may look up keys; it may
    read ranges and ingest only if its parent has not. Every call checks for new properties and
    commits (in a local folder these are two calls of the file system), but a query that may be
    older (`max_age`).

    >>> import sleeper
    >>> instance = sleeper.connect("memory://")
    >>> schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    >>> table = instance.create_table("numbers", schema, row_keys=["id"])
    >>> table.ingest([{"id": "b", "n": 2}, {"id": "a", "n": 1}]).rows_written
    2
    >>> table.query(key="a").to_pylist()
    [{'id': 'a', 'n': 1}]
    """

    # Rows.
    ingest = LateMethod(lambda: _ingest.ingest)
    bulk_import = LateMethod(lambda: _bulk_import.bulk_import)
    request_commit = LateMethod(lambda: commits.request_commit)
    commit_requests = LateMethod(lambda: commits.commit_requests)
    delete_requests = LateMethod(lambda: commits.delete_requests)
    query = _query.query
    head = _query.head
    count = _query.count
    history = LateMethod(lambda: _history.history)
    kept_versions = LateMethod(lambda: _history.kept_versions)
    diff = LateMethod(lambda: _history.diff)
    sql = LateMethod(lambda: _sql.sql)
    explain_sql = LateMethod(lambda: _sql.explain_sql)
    scan_polars = LateMethod(lambda: frames.scan_polars)
    to_duckdb = LateMethod(lambda: frames.to_duckdb)
    export = LateMethod(lambda: _export.export)
    to_spark = LateMethod(lambda: spark.to_spark)
    open_for_spark = LateMethod(lambda: spark.open_for_spark)

    # Definition.
    split_points = LateMethod(lambda: definition.split_points)
    report_partitions = LateMethod(lambda: definition.report_partitions)
    report_files = LateMethod(lambda: definition.report_files)
    references = LateMethod(lambda: definition.references)
    rename = LateMethod(lambda: definition.rename)
    set_online = LateMethod(lambda: definition.set_online)
    set_properties = LateMethod(lambda: definition.set_properties)
    reinitialise = LateMethod(lambda: definition.reinitialise)
    migrate_state = LateMethod(lambda: definition.migrate_state)

    # Maintenance.
    plan_compaction = LateMethod(lambda: compaction_method.plan_compaction)
    compact = LateMethod(lambda: compaction_method.compact)
    claims = LateMethod(lambda: compaction_method.claims)
    release_claims = LateMethod(lambda: compaction_method.release_claims)
    leaf_sizes = LateMethod(lambda: maintenance_methods.leaf_sizes)
    split_partitions = LateMethod(lambda: maintenance_methods.split_partitions)
    small_siblings = LateMethod(lambda: maintenance_methods.small_siblings)
    merge_partitions = LateMethod(lambda: maintenance_methods.merge_partitions)
    garbage = LateMethod(lambda: maintenance_methods.garbage)
    collect_garbage = LateMethod(lambda: maintenance_methods.collect_garbage)
    orphans = LateMethod(lambda: maintenance_methods.orphans)
    sweep_orphans = LateMethod(lambda: maintenance_methods.sweep_orphans)
    verify = LateMethod(lambda: _verify.verify)

    # Pictures and notebooks.
    plot_tree = LateMethod(lambda: plots.plot_tree)
    plot_files = LateMethod(lambda: plots.plot_files)
    plot_history = LateMethod(lambda: plots.plot_history)
    _repr_html_ = LateMethod(lambda: plots.table_html)


def open_table(name: str, context: InstanceContext) -> Table:
    """Return the table with a name; its state is begun to be read beside the look for the name.

    Raises:
        TableNotFound: there is no table with this name.
    """
    is_begun = context.objects.is_remote and isinstance(name, str)
    known = context.index.known_by_name(name) if is_begun else None
    begun = None if known is None else Table(known, context).begun()
    record = record_of(name, context)
    return Table(record, context) if begun is None or record != known else begun


def record_of(name: str, context: InstanceContext) -> TableRecord:
    """Return the record of the table with a name.

    Raises:
        TableNotFound: there is no table with this name; the message names similar ones.
    """
    if not isinstance(name, str):
        raise BadRequest(f"a table's name must be a string, not {name!r}")
    record = context.index.by_name(name)
    if record is None:
        raise TableNotFound(no_such_table(name, [table.name for table in context.index.all()]))
    return record
