"""The public class `Table`: it binds the functions of the modules of this package."""

from __future__ import annotations

from sleeper.table import commits, compaction, definition, maintenance, rows, spark
from sleeper.table import export as _export
from sleeper.table.bulk_imports import bulk_import as _bulk_import
from sleeper.table.handle import TableHandle


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
    ingest = rows.ingest
    bulk_import = _bulk_import.bulk_import
    request_commit = commits.request_commit
    commit_requests = commits.commit_requests
    delete_requests = commits.delete_requests
    query = rows.query
    export = _export.export
    to_spark = spark.to_spark
    open_for_spark = spark.open_for_spark

    # Definition.
    split_points = definition.split_points
    report_partitions = definition.report_partitions
    report_files = definition.report_files
    references = definition.references
    rename = definition.rename
    set_online = definition.set_online
    set_properties = definition.set_properties
    reinitialise = definition.reinitialise
    migrate_state = definition.migrate_state

    # Maintenance.
    plan_compaction = compaction.plan_compaction
    compact = compaction.compact
    claims = compaction.claims
    release_claims = compaction.release_claims
    leaf_sizes = maintenance.leaf_sizes
    split_partitions = maintenance.split_partitions
    small_siblings = maintenance.small_siblings
    merge_partitions = maintenance.merge_partitions
    garbage = maintenance.garbage
    collect_garbage = maintenance.collect_garbage
    orphans = maintenance.orphans
    sweep_orphans = maintenance.sweep_orphans
