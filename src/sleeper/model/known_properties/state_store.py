"""The properties of a table's state store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sleeper.errors import BadRequest
from sleeper.model.known_properties.value_kinds import (
    MOVE_ID,
    NOT_NEGATIVE,
    POSITIVE,
    Property,
    class_of,
    setting,
)

STATE_STORES: Final = (
    "TransactionLogStateStore",
    "DynamoDBTransactionLogStateStore",
    "DynamoDBTransactionLogStateStoreNoSnapshots",
    "DynamoDBStateStore",
    "S3StateStore",
)
"""The simple names of the classes of all state stores."""
STATE_STORE: Final = class_of(*STATE_STORES)


def state_store_named(name: str) -> str:
    """Return the simple name of a state store, by any of its names.

    >>> state_store_named("sleeper.statestore.dynamodb.DynamoDBStateStore")
    'DynamoDBStateStore'

    Raises:
        BadRequest: there is none of this name.
    """
    try:
        return STATE_STORE.parse(str(name).strip())
    except ValueError:
        raise BadRequest(
            f"{name!r} is not a state store; choose one of {', '.join(STATE_STORES)}"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateStoreProperties:
    """Settings of the state store: its class, commits and snapshots."""

    class_name: str = setting(
        "table.statestore.classname",
        "TransactionLogStateStore",
        STATE_STORE,
        "The state store. TransactionLogStateStore keeps the log beside the table's files; "
        "DynamoDBTransactionLogStateStore in DynamoDB, with snapshots beside the files; "
        "DynamoDBTransactionLogStateStoreNoSnapshots in DynamoDB alone. DynamoDBStateStore keeps "
        "items in DynamoDB, without older versions, and changes 99 of them by a request. "
        "S3StateStore keeps whole states beside the table's files, and in DynamoDB which is the "
        "newest, and as_of reads the last ones. `sleeper table migrate-state` changes it.",
        editable=False,
    )
    commit_attempts: int = setting(
        "table.statestore.transactionlog.add.transaction.max.attempts",
        "10",
        NOT_NEGATIVE,
        "How often a commit is tried when other writers are faster.",
    )
    first_retry_ceiling_ms: int = setting(
        "table.statestore.transactionlog.add.transaction.first.retry.wait.ceiling.ms",
        "200",
        NOT_NEGATIVE,
        "Longest wait before the first retry; doubles with each.",
        used=False,
    )
    max_retry_ceiling_ms: int = setting(
        "table.statestore.transactionlog.add.transaction.max.retry.wait.ceiling.ms",
        "30000",
        NOT_NEGATIVE,
        "Longest wait before any retry.",
        used=False,
    )
    snapshot_check_s: int = setting(
        "table.statestore.transactionlog.time.between.snapshot.checks.seconds",
        "60",
        NOT_NEGATIVE,
        "How often an open table looks for a newer snapshot.",
        used=False,
    )
    transaction_check_ms: int = setting(
        "table.statestore.transactionlog.time.between.transaction.checks.ms",
        "0",
        NOT_NEGATIVE,
        "How old an answer of an open table may be, in milliseconds. A query that looked for newer "
        "commits and properties so recently does not look again, and may miss what others changed "
        "since. What its own process changed it always sees. The max_age of a query comes first.",
    )
    snapshot_ahead_min: int = setting(
        "table.statestore.transactionlog.snapshot.load.min.transactions.ahead",
        "10",
        POSITIVE,
        "A snapshot is loaded when it is this far ahead of what is known.",
        used=False,
    )
    snapshot_expiry_days: int = setting(
        "table.statestore.transactionlog.snapshot.expiry.days",
        "2",
        POSITIVE,
        "How long old snapshots are kept.",
        used=False,
    )
    delete_behind_age_minutes: int = setting(
        "table.statestore.transactionlog.delete.behind.snapshot.min.age.minutes",
        "2",
        NOT_NEGATIVE,
        "A snapshot must be this old before log entries behind it are deleted.",
        used=False,
    )
    delete_behind_count: int = setting(
        "table.statestore.transactionlog.delete.number.behind.latest.snapshot",
        "200",
        NOT_NEGATIVE,
        "Log entries kept behind that snapshot.",
        used=False,
    )
    job_id_retention_days: int = setting(
        "table.job.id.retention.days",
        "30",
        POSITIVE,
        "How long a job's id is remembered, so that its second run changes nothing.",
        since="ours",
    )


STATE_MOVE_PROPERTY: Final = Property(
    "sleeper.table.statestore.move",
    None,
    MOVE_ID,
    "The last move of the table's state to another state store; set by `sleeper table "
    "migrate-state`.",
    group="Definition",
    since="ours",
    editable=False,
)
