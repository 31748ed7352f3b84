"""The revision item of a table: how many commits there were, and what else is small."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from sleeper.errors import DataDamaged, FormatTooNew, ObjectNotFound
from sleeper.model.row_deletes import RowDelete
from sleeper.model.schema import Schema
from sleeper.model.tables import StateMove
from sleeper.state.revision_store import Revision, RevisionHistory
from sleeper.state.table_state import FORMATS
from sleeper.state.value_json import (
    deletes_from_json,
    deletes_to_json,
    move_from_json,
    move_to_json,
    schemas_from_json,
    schemas_to_json,
    time_from_json,
    time_to_json,
)
from sleeper.storage.aws.dynamo_tables import DynamoTables, Item, number
from sleeper.storage.aws.state import revision_items
from sleeper.storage.aws.state.dynamo_log import LOG
from sleeper.storage.aws.state.state_items import COMMITS, text, text_of

_STAGED_FORMAT = 100
"""Is added to the format while changes are staged: earlier versions refuse the table then."""

_ID = "revision"
_STAGED = "Staged"


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionItem:
    """What the revision item says.

    Attributes:
        number: The number of the last commit.
        commit_id: Its id.
        history: The commits before it, and its own.
        at: When it was committed.
        swept_before: As of the state.
        schemas: As of the state.
        moved: As of the state.
        deletes: As of the state.
        format: As of the state.
        references: How many references the state has.
        partitions: How many partitions.
        jobs_after: Records of jobs up to this commit were cleared.
    """

    number: int
    commit_id: str
    history: RevisionHistory
    at: datetime | None
    swept_before: datetime | None
    schemas: dict[int, Schema]
    moved: StateMove | None
    deletes: tuple[RowDelete, ...]
    format: int
    references: int
    partitions: int
    jobs_after: int


def revision_key(table_id: str) -> Item:
    """Return the key of the revision item."""
    return {"TableId": text(table_id), "Id": {"S": _ID}}


def commit_id(revision: Revision) -> str:
    """Return the id of a revision's own commit; an empty text before the first."""
    return revision.history.commit_ids[-1] if revision.history.commit_ids else ""


@dataclass(frozen=True, slots=True)
class StoredSchemas:
    """Schemas by id as an attribute: JSON, which is compressed if there are several.

    They are much alike: 30 schemas of 200 columns have 1 MB of JSON, and an item has room for 400
    KB. LZMA sees through all of it, where zlib looks back by 32 KB.
    """

    schemas: Mapping[int, Schema]
    attribute: Item
    size_bytes: int

    @classmethod
    def of(cls, schemas: Mapping[int, Schema], known: StoredSchemas | None) -> StoredSchemas:
        """Return the attribute of schemas; `known` is what was made before, and may be the same."""
        if known is not None and known.schemas is schemas:
            return known
        written = schemas_to_json(schemas)
        if len(schemas) < 2:
            return cls(schemas, {"S": written}, len(written))
        packed = lzma.compress(written.encode(), preset=1)
        return cls(schemas, {"B": packed}, len(packed))

    @staticmethod
    def read(attribute: Item) -> dict[int, Schema]:
        """Return the schemas of an attribute.

        Raises:
            LookupError: it is of another type.
            ValueError: it is damaged.
        """
        if "B" not in attribute:
            return schemas_from_json(attribute["S"])
        try:
            return schemas_from_json(lzma.decompress(attribute["B"]))
        except lzma.LZMAError as error:
            raise ValueError(f"its schemas are damaged: {error}") from error


def deletes_json(deletes: Iterable[RowDelete], schema: Schema) -> str:
    """Return deletions of rows as JSON; all of it is ASCII."""
    return json.dumps(deletes_to_json(deletes, schema))


def revision_update(
    table: str,
    table_id: str,
    before: Revision,
    after: Revision,
    *,
    schema: Schema,
    schemas: StoredSchemas,
    jobs_cleared: bool,
    staged: int = 0,
) -> Item:
    """Return the part of a transaction that makes `after` the newest revision after `before`.

    Args:
        table: The full name of the table of commits.
        table_id: The Sleeper table.
        before: The newest revision; none of its changes may be staged any more.
        after: The next.
        schema: The Sleeper table's.
        schemas: Those of the state.
        jobs_cleared: Whether the records of all jobs before end with it.
        staged: In how many items its changes are stored, if they are not written together with it.
    """
    state = after.state
    values = {
        "RevisionNumber": number(state.number),
        "CommitId": text(commit_id(after)),
        "History": text(after.history.to_json()),
        "Schemas": schemas.attribute,
        "ReferenceCount": number(state.files.reference_count),
        "PartitionCount": number(len(state.partitions) if state.partitions else 0),
        "Format": number(state.format + (_STAGED_FORMAT if staged else 0)),
    }
    for name, time in (("CommittedAt", state.at), ("SweptBefore", state.swept_before)):
        if time is not None:
            values[name] = {"S": time_to_json(time)}
    if state.format > 1:
        values["Deletes"] = text(deletes_json(state.deletes, schema))
    if state.moved is not None:
        values["Moved"] = text(json.dumps(move_to_json(state.moved)))
    if staged:
        values[_STAGED] = number(staged)
    if jobs_cleared:
        values["JobsAfter"] = number(before.state.number)
    names = {f"#{n}": name for n, name in enumerate(values)}
    given = {f":{n}": value for n, value in enumerate(values.values())}
    condition = "attribute_not_exists(TableId)"
    if before.state.number:
        condition = f"#0 = :number AND #1 = :commit AND attribute_not_exists({_STAGED})"
        given[":number"] = number(before.state.number)
        given[":commit"] = text(commit_id(before))
    return {
        "Update": {
            "TableName": table,
            "Key": revision_key(table_id),
            "UpdateExpression": "SET " + ", ".join(f"#{n} = :{n}" for n in range(len(values))),
            "ConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": given,
        }
    }


def staged_in(item: Item) -> int:
    """Return in how many items the changes of the last commit are stored; 0 for none."""
    return int(item[_STAGED]["N"]) if _STAGED in item else 0


def still_staged(table: str, item: Item) -> Item:
    """Return a part of a transaction that fails if the last commit is another, or is ended."""
    return {"ConditionCheck": _of_staged(table, item)}


def ended(table: str, item: Item) -> Item:
    """Return a part of a transaction that ends a commit, once its staged changes are written."""
    request = _of_staged(table, item)
    request["UpdateExpression"] = f"SET #format = :format REMOVE {_STAGED}"
    request["ExpressionAttributeNames"] = {"#format": "Format"}
    request["ExpressionAttributeValues"][":format"] = number(_format_of(item))
    return {"Update": request}


def _format_of(item: Item) -> int:
    return int(item["Format"]["N"]) - (_STAGED_FORMAT if staged_in(item) else 0)


def _of_staged(table: str, item: Item) -> Item:
    return {
        "TableName": table,
        "Key": {name: item[name] for name, _ in COMMITS.key},
        "ConditionExpression": f"CommitId = :commit AND attribute_exists({_STAGED})",
        "ExpressionAttributeValues": {":commit": item["CommitId"]},
    }


def is_of(item: Item, revision: Revision) -> bool:
    """Return whether an item is that of a revision, but for looks in its history."""
    of_item = (item.get("RevisionNumber"), item.get("CommitId"))
    return of_item == (number(revision.state.number), text(commit_id(revision)))


def is_same_commit(item: Item, other: Item) -> bool:
    """Return whether two items are of one commit."""
    names = ("RevisionNumber", "CommitId")
    return [item.get(name) for name in names] == [other.get(name) for name in names]


def history_of(item: Item) -> RevisionHistory:
    """Return the history in a revision item.

    Raises:
        DataDamaged: it is damaged.
    """
    return RevisionHistory.from_json(item.get("History", {}).get("S", ""))


def parse_revision(item: Item, schema: Schema) -> RevisionItem:
    """Return what a revision item of a table with a schema says.

    Raises:
        FormatTooNew: a newer Sleeper wrote it.
        DataDamaged: it is damaged.
    """
    try:
        if (found := _format_of(item)) > max(FORMATS):
            raise FormatTooNew(
                f"the state has format {found}; this Sleeper reads formats up to {max(FORMATS)}. "
                "Upgrade Sleeper to read this table."
            )
        times = (
            time_from_json(item[name]["S"]) if name in item else None
            for name in ("CommittedAt", "SweptBefore")
        )
        at, swept_before = times
        history = history_of(item)
        return RevisionItem(
            number=int(item["RevisionNumber"]["N"]),
            commit_id=history.commit_ids[-1],
            history=history,
            at=at,
            swept_before=swept_before,
            schemas=StoredSchemas.read(item["Schemas"]),
            moved=move_from_json(json.loads(text_of(item["Moved"]))) if "Moved" in item else None,
            deletes=deletes_from_json(json.loads(text_of(item["Deletes"])), schema)
            if "Deletes" in item
            else (),
            format=found,
            references=int(item["ReferenceCount"]["N"]),
            partitions=int(item["PartitionCount"]["N"]),
            jobs_after=int(item["JobsAfter"]["N"]) if "JobsAfter" in item else 0,
        )
    except (LookupError, ValueError, TypeError) as error:
        raise DataDamaged(
            f"its revision item cannot be read: {type(error).__name__}: {error}"
        ) from error


# ---------------------------------------------------------------- numbers of the newest states
#
# The numbers of the last commits of many tables, by one request for a hundred of them.
#
# Each function takes the number that is known of each state by its id, None where none is.

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
    keys = [revision_key(each) for each in known]
    found = tables.get_many(COMMITS, keys, "TableId, RevisionNumber")
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
