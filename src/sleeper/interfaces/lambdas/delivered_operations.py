"""Sends and runs operations on tables, and prints figures for CloudWatch."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from sleeper.errors import BadRequest, SleeperError
from sleeper.instance.instance import Instance
from sleeper.interfaces.lambdas.delivered_jobs import Answer, failures_of, records_of
from sleeper.interfaces.lambdas.time_limit import TimeLimit
from sleeper.interfaces.lambdas.warm_instance import needed
from sleeper.language.failures import ends_process
from sleeper.storage.aws.clients import aws_client
from sleeper.storage.aws.jobs.delivered_queue import delivered
from sleeper.storage.aws.jobs.fifo_sender import FifoSender
from sleeper.tables.report import FilesReport
from sleeper.workers.scheduled_operations import TableOperation, run_operation

_TABLES_QUEUE: Final = "SLEEPER_TABLES_QUEUE_URL"

_log = logging.getLogger(__name__)


def tables_sender(environment: Mapping[str, str], limit: TimeLimit) -> FifoSender:
    """Return what sends to the queue of operations that the environment names.

    Raises:
        BadRequest: it names none.
    """
    url = needed(environment, _TABLES_QUEUE)
    return FifoSender(lambda: aws_client("sqs"), url, rest=limit.rest)


def run_operations(instance: Instance, event: Mapping[str, Any], limit: TimeLimit) -> Answer:
    """Run the operations in an event, in order; return the messages that are not done.

    After one that failed nothing more is run of its table, so that its messages stay in order. A
    message that asks for no operation is logged, and does not come again.
    """
    failed: list[str] = []
    groups: set[str | None] = set()
    for delivery in map(delivered, records_of(event)):
        message = delivery.message
        is_done = False
        if message.group not in groups and not limit.is_over():
            is_done = _is_done(instance, message.body, limit)
        if not is_done:
            groups.add(message.group)
            failed.append(delivery.sqs_id)
    return failures_of(failed)


def _is_done(instance: Instance, body: str, limit: TimeLimit) -> bool:
    try:
        wanted = TableOperation.read(body)
    except BadRequest as none:
        _log.error("a message is left out: %s", none)
        return True
    try:
        failures = run_operation(
            instance,
            wanted,
            stopped=limit.is_over,
            rest=limit.rest,
            tell=lambda name, files: print_figures(instance, name, files, instance.now()),
        )
    except SleeperError as failure:
        _log.error("%s of table %s failed: %s", wanted.operation, wanted.table_id, failure)
        return False
    except BaseException as failure:
        if ends_process(failure):
            raise
        _log.exception("%s of table %s failed", wanted.operation, wanted.table_id)
        return False
    return not failures


def print_figures(instance: Instance, table: str, files: FilesReport, at: datetime) -> None:
    """Print the figures of a table as CloudWatch reads them in a function's log (rule ADM-11)."""
    figures: dict[str, float] = {
        "NumberOfFilesWithReferences": files.files - files.files_unreferenced,
        "RowCount": files.rows,
        "PartitionCount": files.leaf_partitions + files.non_leaf_partitions,
        "LeafPartitionCount": files.leaf_partitions,
        "AverageFileReferencesPerPartition": files.references_per_leaf["mean"],
    }
    metrics = {
        "Namespace": instance.properties.cloud.metrics_namespace,
        "Dimensions": [["instanceId", "tableName"]],
        "Metrics": [{"Name": name, "Unit": "Count"} for name in figures],
    }
    document = {
        "_aws": {"Timestamp": int(at.timestamp() * 1000), "CloudWatchMetrics": [metrics]},
        "instanceId": instance.instance_id,
        "tableName": table,
        **figures,
    }
    sys.stdout.write(json.dumps(document) + "\n")
