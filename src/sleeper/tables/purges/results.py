"""Deletes results of queries, and exports of a table in the instance, that have purged rows.

A result does not say of which table it is. One that has all row key columns, and a purged key in
them, is deleted; jobs can be run again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sleeper.errors import DataDamaged, ObjectNotFound
from sleeper.ports.objects import ObjectInfo, Objects
from sleeper.storage.deletion import delete_groups
from sleeper.tables.open_table import OpenTable
from sleeper.tables.purges.search import Search, result_objects

_log = logging.getLogger(__name__)
_STEP = "Delete it, or keep it if it is of another table; then purge the same keys again"


def delete_results(
    table: OpenTable, search: Search, note: Callable[[int], None]
) -> tuple[str, ...]:
    """Delete results and exports with purged rows; what else has a key is a finding.

    Returns:
        What could not be searched for all keys: numbers and short keys are not told from others in
        results that are texts. An export of the table that is a text is a finding then.
    """
    objects, texts = table.context.objects, 0
    for info in result_objects(objects, table.record.table_id):
        try:
            has_rows = _has_rows(objects, info, search, table)
        except ObjectNotFound as gone:
            _log.info("%s was deleted by somebody else: %s", info.key, gone)
            continue
        except DataDamaged as damage:
            search.found.add(info.key, str(damage), _STEP)
            continue
        search.found.note("results of queries and exports", info.size_bytes)
        if not has_rows:
            if search.is_by_values and not info.key.endswith(".parquet"):
                if _is_own(info, table):
                    search.found.add(
                        info.key,
                        "it is a text, which may have keys that are numbers or short",
                        _STEP,
                    )
                else:
                    texts += 1
            continue
        failures = delete_groups({info.key: [info.key]}, objects)
        note(1 - len(failures))
        for reason in failures.values():
            search.found.add(info.key, f"it could not be deleted: {reason}")
        _log.info("deleted %s, which had purged rows", info.key)
    if not texts:
        return ()
    return (f"numbers and short keys in {texts} results of queries that are texts",)


def _has_rows(objects: Objects, info: ObjectInfo, search: Search, table: OpenTable) -> bool:
    if info.key.endswith(".parquet"):
        return search.has_rows(objects, info.key)
    is_own = _is_own(info, table)
    has_text = search.has_text(objects, info)
    if has_text and not is_own:
        search.found.add(info.key, "its bytes have a purged key", _STEP)
    return has_text and is_own


def _is_own(info: ObjectInfo, table: OpenTable) -> bool:
    return info.key.startswith(f"bulk_export/{table.record.table_id}/")
