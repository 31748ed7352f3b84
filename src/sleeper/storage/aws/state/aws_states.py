"""The states of an instance's tables that are kept in AWS: as logs, items and parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sleeper.model.schema import Schema
from sleeper.ports.ids import NewId
from sleeper.ports.objects import Objects
from sleeper.storage.aws.dynamo_tables import DynamoTables
from sleeper.storage.aws.state import newest_item
from sleeper.storage.aws.state.dynamo_log import DynamoTransactionLog
from sleeper.storage.aws.state.dynamo_revisions import DynamoStateRevisions
from sleeper.storage.aws.state.s3_revisions import S3StateRevisions


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsStates:
    """Opens what state stores need of DynamoDB. Nothing is read yet.

    Attributes:
        tables: The instance's tables in DynamoDB.
        new_id: Makes ids that no other process uses.
        pause: Waits before another attempt, given how many there were.
    """

    tables: DynamoTables
    new_id: NewId
    pause: Callable[[int], None]

    def log(
        self,
        state_id: str,
        files: Objects,
        *,
        now: Callable[[], datetime],
        first: int,
        is_new: bool,
    ) -> DynamoTransactionLog:
        """Open the log of a state.

        Args:
            state_id: The state.
            files: Its folder, for entries that are too large for an item.
            now: The clock of the storage.
            first: The number of its first entry.
            is_new: Whether it may be empty.
        """
        return DynamoTransactionLog(
            self.tables, state_id, files, now=now, new_id=self.new_id, first=first, is_new=is_new
        )

    def items(self, state_id: str, schema: Schema, *, is_new: bool) -> DynamoStateRevisions:
        """Open a state that is kept as an item for each reference, file and partition."""
        return DynamoStateRevisions(
            self.tables, state_id, schema, new_id=self.new_id, pause=self.pause, is_new=is_new
        )

    def parts(
        self, state_id: str, files: Objects, schema: Schema, *, is_new: bool
    ) -> S3StateRevisions:
        """Open a state that is kept as objects in `files`, with an item that names them."""
        return S3StateRevisions(self.tables, state_id, files, schema, is_new=is_new)

    def last_numbers(self, class_name: str, known: newest_item.Known) -> dict[str, int]:
        """Return the number of the last commit of many states, by their ids.

        Args:
            class_name: Their state store.
            known: The ids, each with a number that was seen before, or None.
        """
        match class_name:
            case "DynamoDBStateStore":
                return newest_item.numbers_of_items(self.tables, known)
            case "S3StateStore":
                return newest_item.numbers_of_parts(self.tables, known)
            case _:
                return newest_item.numbers_of_logs(self.tables, known)
