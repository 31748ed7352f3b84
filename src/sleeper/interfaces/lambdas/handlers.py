"""The functions of an instance in AWS, as Lambda calls them.

All read `SLEEPER_INSTANCE` from the environment, such as `aws://demo`, and open the instance once
in a process. Those that get messages answer `batchItemFailures`: their event source mappings need
`ReportBatchItemFailures`. Between two calls nothing runs and nothing is asked.

| function | called by | environment |
|---|---|---|
| `commit` | the queue of the committer, FIFO | |
| `query` | the query queue, one message a call | |
| `start_bulk_imports` | a queue of bulk imports, one message a call | `SLEEPER_QUEUE` |
| `submit_to_batcher` | the batcher's queue | |
| `create_batches` | a schedule: `sleeper.ingest.batcher.job.creation.period.minutes` | |
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from sleeper.errors import BadRequest
from sleeper.instance.instance import process_environment
from sleeper.interfaces.lambdas.delivered_jobs import Answer, run_delivered
from sleeper.interfaces.lambdas.time_limit import LambdaContext
from sleeper.interfaces.lambdas.warm_instance import needed, warm_instance
from sleeper.model.jobs.messages import BULK_IMPORT_QUEUES, QueueName
from sleeper.services.file_batcher import run_batcher

_QUEUE: Final = "SLEEPER_QUEUE"

_log = logging.getLogger(__name__)

Event = Mapping[str, Any]


def commit(event: Event, context: LambdaContext) -> Answer:
    """Commit what workers ask for: the requests of each table in one entry of its log.

    Those of a table stay in order; `sleeper pause` does not stop them.
    """
    return run_delivered(warm_instance(), "commit", QueueName.COMMIT, event, context)


def query(event: Event, context: LambdaContext) -> Answer:
    """Run queries; their rows go where each says. `sleeper pause` does not stop them."""
    return run_delivered(warm_instance(), "query", QueueName.QUERY, event, context)


def start_bulk_imports(event: Event, context: LambdaContext) -> Answer:
    """Start the driver of each bulk import on the platform that the queue is for.

    SLEEPER_QUEUE names the queue: `bulk-import-emr-serverless` and the like.

    Raises:
        BadRequest: it names no queue of bulk imports on a platform.
    """
    name = needed(process_environment(), _QUEUE)
    if name not in BULK_IMPORT_QUEUES:
        queues = ", ".join(BULK_IMPORT_QUEUES)
        raise BadRequest(f"{_QUEUE} is {name!r}, but it must be one of {queues}")
    return run_delivered(warm_instance(), "bulk-import", QueueName(name), event, context)


def submit_to_batcher(event: Event, context: LambdaContext) -> Answer:
    """Take note of files that were submitted to the ingest batcher."""
    return run_delivered(warm_instance(), "batcher", QueueName.BATCHER, event, context)


def create_batches(event: Event, context: LambdaContext) -> dict[str, int]:
    """Make jobs of submitted files that are due, and send them; return how many.

    While no file waits that costs two reads of DynamoDB, and nothing else is asked.
    """
    instance = warm_instance()
    jobs = instance.jobs
    batcher = jobs.stores.batcher
    if not (batcher.pending() or batcher.unsent()):
        return {"jobs": 0, "files": 0}
    if instance.pause_switch.paused_since() is not None:
        _log.info("no jobs are made of submitted files: the instance is paused")
        return {"jobs": 0, "files": 0}
    made = run_batcher(jobs, jobs.recorder.now())
    return {"jobs": made.jobs, "files": made.files}
