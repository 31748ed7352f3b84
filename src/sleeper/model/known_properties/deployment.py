"""The properties in which an instance in AWS names its resources, for upstream's clients.

`sleeper init aws://ID` sets them. Names in this module are upstream's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sleeper.model.jobs.kinds import QUEUES, QueueName
from sleeper.model.known_properties.value_kinds import PREFIX, TEXT, Property, family

ACCOUNT: Final = "sleeper.account"
REGION: Final = "sleeper.region"
CONFIG_BUCKET: Final = "sleeper.config.bucket"
DATA_BUCKET: Final = "sleeper.data.bucket"
QUERY_RESULTS_BUCKET: Final = "sleeper.query.results.bucket"
BULK_IMPORT_BUCKET: Final = "sleeper.bulk.import.bucket"
BULK_EXPORT_BUCKET: Final = "sleeper.bulk.export.s3.bucket"
NAME_INDEX: Final = "sleeper.tables.name.index.dynamo.table"
ID_INDEX: Final = "sleeper.tables.id.index.dynamo.table"
QUERY_TRACKER: Final = "sleeper.query.tracker.table.name"


def queue_url_properties(name: QueueName, url: str, dead_letters: str) -> dict[str, str]:
    """Return the properties that have the URLs of a queue; upstream has none for some queues."""
    spec = QUEUES[name]
    urls = ((spec.url, url), (spec.dead_url, dead_letters))
    return {PREFIX + each: found for each, found in urls if each is not None}


def _members() -> list[tuple[str, None, str]]:
    resources = (
        (ACCOUNT, "AWS account of the instance."),
        (REGION, "AWS region of the instance."),
        (CONFIG_BUCKET, "Bucket of properties."),
        (DATA_BUCKET, "Bucket of tables; where upstream keeps data."),
        (QUERY_RESULTS_BUCKET, "Bucket of results of queries that came from the queue."),
        (BULK_IMPORT_BUCKET, "Bucket of bulk import jobs that run on a cluster."),
        (BULK_EXPORT_BUCKET, "Bucket of exports that came from the queue."),
        (NAME_INDEX, "DynamoDB table of the tables' records by name."),
        (ID_INDEX, "DynamoDB table of the tables' records by id."),
        (QUERY_TRACKER, "DynamoDB table of the states of queries."),
    )
    queues = [
        (name, f"Queue of {queue} {what}.")
        for queue, spec in QUEUES.items()
        for name, what in ((spec.url, "messages"), (spec.dead_url, "dead letters"))
        if name is not None
    ]
    return [(name.removeprefix(PREFIX), None, told) for name, told in (*resources, *queues)]


DEPLOYMENT_PROPERTIES: Final[tuple[Property, ...]] = tuple(
    replace(each, editable=False)
    for each in family(
        "Instance in AWS",
        "",
        [
            (name, default, TEXT, f"{told} Set by `sleeper init`.")
            for name, default, told in _members()
        ],
        used=True,
    )
)
"""They are fixed when an instance is made."""
