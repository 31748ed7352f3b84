"""Which rows a job deletes: written into its message, checked, and read from it (rule DEL-6).

What reads keys is loaded when there is such a job: a worker that waits for jobs has no engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sleeper.errors import BadRequest
from sleeper.model.formats.ingest_job import DELETED_BY
from sleeper.model.queries import NOT_GIVEN
from sleeper.model.schema import Schema
from sleeper.tables.table import Table


def deletion_document(table: Table, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a message says of the rows that arguments of `Table.delete` name by their keys.

    Raises:
        QueryInvalid: they do not fit the schema.
    """
    from sleeper.tables.asked_json import asked_to_json
    from sleeper.tables.deletions.keys import listed_keys

    keys = listed_keys(table, asked["keys"])
    return asked_to_json(table.schema, **{**asked, "keys": keys})


def deletion_arguments(schema: Schema, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for `Table.delete` that a job's message has.

    Raises:
        QueryInvalid: a value is not one of its field.
    """
    from sleeper.tables.asked_json import asked_from_json

    asked = {name: document[name] for name in DELETED_BY if document.get(name) is not None}
    return asked_from_json(schema, asked)


def check_deletion(table: Table, document: Mapping[str, Any]) -> None:
    """Check which rows a message names, as far as the table's schema says what is wrong.

    Raises:
        BadRequest: they do not fit the schema, or are the whole key space.
    """
    from sleeper.tables.deletions.keys import check_deletable

    asked = deletion_arguments(table.schema, document)
    if asked.pop("where", None) is None:
        names = (name for name in DELETED_BY if name != "where")
        check_deletable(table, **(dict.fromkeys(names, NOT_GIVEN) | asked))
    elif asked:
        raise BadRequest(f"where stands alone, and {min(asked)} is beside it")
