"""The numbers of the last commits of many tables, by one request for a hundred of them.

Each function takes the number that is known of each state by its id, None where none is.
"""

from __future__ import annotations

from collections.abc import Mapping

from sleeper.errors import ObjectNotFound
from sleeper.storage.aws.dynamo_tables import DynamoTables, Item
from sleeper.storage.aws.state import newest_item, revision_items
from sleeper.storage.aws.state.dynamo_log import LOG
from sleeper.storage.aws.state.state_items import PARTITIONS, number

Known = Mapping[str, int | None]


def numbers_of_logs(tables: DynamoTables, known: Known) -> dict[str, int]:
    """Return the number of the last entry of each log; 0 without one.

    A log whose next entry is not there is as it was. Of each other one the last entry is asked for.
    """
    following = [_log_key(each, after + 1) for each, after in known.items() if after is not None]
    try:
        found = tables.get_many(LOG, following, "TABLE_ID")
    except ObjectNotFound:
        return dict.fromkeys(known, 0)
    changed = {item["TABLE_ID"]["S"] for item in found}
    return {
        each: _last_entry(tables, each) if after is None or each in changed else after
        for each, after in known.items()
    }


def numbers_of_items(tables: DynamoTables, known: Known) -> dict[str, int]:
    """Return the number in the revision item of each state that is kept as items."""
    keys = [newest_item.revision_key(each) for each in known]
    found = tables.get_many(PARTITIONS, keys, "TableId, RevisionNumber")
    return {item["TableId"]["S"]: int(item["RevisionNumber"]["N"]) for item in found}


def numbers_of_parts(tables: DynamoTables, known: Known) -> dict[str, int]:
    """Return the number of the newest revision of each state that is kept as parts in S3."""
    keys = [revision_items.revision_key(each, revision_items.CURRENT) for each in known]
    found = tables.get_many(revision_items.REVISIONS, keys, "TABLE_ID, CURRENT_REVISION")
    return {item["TABLE_ID"]["S"]: int(item["CURRENT_REVISION"]["S"]) for item in found}


def _last_entry(tables: DynamoTables, state_id: str) -> int:
    items = tables.query(
        LOG,
        "TABLE_ID = :table",
        {":table": {"S": state_id}},
        ScanIndexForward=False,
        Limit=1,
        ProjectionExpression="TRANSACTION_NUMBER",
    )
    last = next(items, None)
    return 0 if last is None else int(last["TRANSACTION_NUMBER"]["N"])


def _log_key(state_id: str, entry: int) -> Item:
    return {"TABLE_ID": {"S": state_id}, "TRANSACTION_NUMBER": number(entry)}
