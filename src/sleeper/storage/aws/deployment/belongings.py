"""What belongs to an instance in AWS: the resources that have its URL as a tag."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Self

from sleeper.ports.objects import Belonging
from sleeper.storage.aws.clients import (
    OWNER_TAG,
    aws_client,
    aws_failure,
    error_code,
    is_missing,
    owner_tag_value,
    resource_prefix,
    vendor_errors,
)

logger = logging.getLogger(__name__)

_NO_TAGS: Final = ("UnknownOperationException", "NotImplemented")
_DYNAMO_PERMISSION: Final = (
    "dynamodb:ListTables, DescribeTable, ListTagsOfResource, UpdateTable and DeleteTable"
)
_SQS_PERMISSION: Final = "sqs:ListQueues, ListQueueTags, GetQueueAttributes and DeleteQueue"
_IN_USE: Final = "ResourceInUseException"
_ATTEMPTS: Final = 30


class AwsBelongings:
    """The queues in SQS and tables in DynamoDB of one instance.

    Args:
        instance_id: Its `sleeper.id`, with which their names begin.
        owner: Its URL, which they have as a tag. Those with another are not the instance's.
        region: The region of AWS; None for the one that boto3 finds.
        pause: Waits before another attempt, given how many there were.
    """

    def __init__(
        self, instance_id: str, owner: str, *, region: str | None, pause: Callable[[int], None]
    ) -> None:
        self._prefix, self._tag = resource_prefix(instance_id), owner_tag_value(owner)
        self._sqs = partial(aws_client, "sqs", region)
        self._dynamo = partial(aws_client, "dynamodb", region)
        self._pause = pause

    def queues(self) -> list[Belonging]:
        """Return its queues, those of dead letters too, by name."""
        with _Translation("look for", f"queues {self._prefix}*", _SQS_PERMISSION):
            pages = self._sqs().get_paginator("list_queues").paginate(QueueNamePrefix=self._prefix)
            urls = sorted(str(url) for page in pages for url in page.get("QueueUrls", ()))
        return [found for url in urls if (found := self._queue(url)) is not None]

    def tables(self) -> list[Belonging]:
        """Return its tables in DynamoDB, by name. Amazon counts items about every six hours."""
        return [found for name in self._table_names() if (found := self._table(name)) is not None]

    def _queue(self, url: str) -> Belonging | None:
        name = url.rpartition("/")[2]
        counted = "ApproximateNumberOfMessages"
        asked = [counted, f"{counted}NotVisible", f"{counted}Delayed"]
        with _Translation("look at", f"queue {name}", _SQS_PERMISSION) as translation:
            tags = self._sqs().list_queue_tags(QueueUrl=url).get("Tags", {})
            if not self._is_ours(f"queue {name}", tags.get(OWNER_TAG)):
                return None
            found = self._sqs().get_queue_attributes(QueueUrl=url, AttributeNames=asked)
        if translation.is_missing:
            return None
        messages = sum(int(number) for number in found["Attributes"].values())
        return Belonging("queue", name, messages, "messages", partial(self._delete_queue, url))

    def _delete_queue(self, url: str) -> None:
        name = url.rpartition("/")[2]
        with _Translation("delete", f"queue {name}", _SQS_PERMISSION, writes=True):
            self._sqs().delete_queue(QueueUrl=url)
            logger.info("deleted queue %s", name)

    def _table_names(self) -> list[str]:
        with _Translation("look for", f"tables {self._prefix}*", _DYNAMO_PERMISSION):
            pages = self._dynamo().get_paginator("list_tables").paginate()
            names = [str(name) for page in pages for name in page["TableNames"]]
        return sorted(name for name in names if name.startswith(self._prefix))

    def _table(self, name: str) -> Belonging | None:
        with _Translation("look at", f"table {name}", _DYNAMO_PERMISSION) as translation:
            found = self._dynamo().describe_table(TableName=name)["Table"]
            tags = self._table_tags(found["TableArn"])
        if translation.is_missing or not self._is_ours(f"table {name}", tags.get(OWNER_TAG)):
            return None
        protected = bool(found.get("DeletionProtectionEnabled"))
        delete = partial(self._delete_table, name, protected=protected)
        return Belonging("table in DynamoDB", name, int(found["ItemCount"]), "items", delete)

    def _table_tags(self, arn: str) -> dict[str, str]:
        """Return the tags of a table; of a server that has none, the tag of this instance."""
        try:
            found = self._dynamo().list_tags_of_resource(ResourceArn=arn)["Tags"]
        except vendor_errors() as error:
            if error_code(error) not in _NO_TAGS:
                raise
            logger.warning("this server of DynamoDB has no tags: %s is known by its name", arn)
            return {OWNER_TAG: self._tag}
        return {each["Key"]: each["Value"] for each in found}

    def _delete_table(self, name: str, *, protected: bool) -> None:
        """Delete a table, also a protected one; one that is being made or changed is waited for.

        Whoever calls this has asked for the data to go, so protection is switched off first.
        """
        with _Translation("delete", f"table {name}", _DYNAMO_PERMISSION, writes=True):
            for attempt in range(_ATTEMPTS):
                try:
                    if protected:
                        self._unprotect(name)
                        protected = False
                    self._dynamo().delete_table(TableName=name)
                except vendor_errors() as error:
                    if error_code(error) != _IN_USE or attempt + 1 == _ATTEMPTS:
                        raise
                    logger.info("table %s is being made or changed: waiting", name)
                    self._pause(attempt)
                else:
                    logger.info("deleted table %s", name)
                    return

    def _unprotect(self, name: str) -> None:
        """Have DynamoDB delete a table when it is asked to."""
        self._dynamo().update_table(TableName=name, DeletionProtectionEnabled=False)
        logger.info("table %s can be deleted: its protection is switched off", name)

    def _is_ours(self, what: str, tag: str | None) -> bool:
        if tag == self._tag:
            return True
        if tag is None:
            logger.warning(
                "%s is left alone: it has no tag %s. If it is this instance's, delete it by hand.",
                what,
                OWNER_TAG,
            )
        return False


class _Translation:
    """Translates failures inside a `with` block; a thing that is missing is none.

    Attributes:
        is_missing: Whether it was missing.
    """

    def __init__(self, verb: str, what: str, permission: str, *, writes: bool = False) -> None:
        self._verb, self._what = verb, what
        self._permission, self._writes = permission, writes
        self.is_missing = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, vendor_errors()):
            return False
        if is_missing(error):
            logger.info("%s is gone already", self._what)
            self.is_missing = True
            return True
        raise aws_failure(
            error, self._verb, self._what, writes=self._writes, permission=self._permission
        ) from error
