"""Looks at all queues of an instance for what alarms look at: dead letters, and long waits.

1. Dead letters of each queue are counted.
2. Messages that wait are counted. Where there are some, CloudWatch says how old the oldest is;
   SQS itself does not.
3. What is not 0 is a metric, in the format in which CloudWatch reads one from a function's log. A
   metric costs something only while it has data, so an instance without work pays for none.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sleeper.errors import StorageFailed
from sleeper.storage.aws.clients import vendor_errors

DEAD_LETTERS: Final = "DeadLetters"
OLDEST: Final = "OldestMessageSeconds"
TASKS: Final = "RunningTasks"
"""The metrics."""

_VISIBLE: Final = "ApproximateNumberOfMessages"
_LOOK_BACK: Final = timedelta(minutes=15)
_PERIOD_S: Final = 300


@dataclass(frozen=True, slots=True)
class QueueFindings:
    """What was found in queues.

    Attributes:
        dead: How many dead letters each queue of them has, without those that have none.
        oldest_s: For how long the oldest message of each queue has waited, in seconds; without
            queues where none waits.
        failures: Why queues could not be looked at.
        tasks: How many workers run on Fargate; 0 where nobody asked.
    """

    dead: dict[str, int]
    oldest_s: dict[str, float]
    failures: tuple[str, ...]
    tasks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWatch:
    """The queues to look at.

    Attributes:
        url: What the URLs of the queues begin with, up to the last slash.
        queues: The names of queues whose messages somebody takes.
        dead: The names of queues of dead letters.
        namespace: The namespace of the metrics.
    """

    url: str
    queues: tuple[str, ...]
    dead: tuple[str, ...]
    namespace: str

    def look(self, sqs: Any, cloudwatch: Any, now: datetime) -> QueueFindings:
        """Look at all queues, whatever is wrong with some.

        Args:
            sqs: A client of SQS.
            cloudwatch: A client of CloudWatch.
            now: The time.
        """
        failures: list[str] = []
        counts: dict[str, int] = {}
        for name in (*self.dead, *self.queues):
            try:
                counts[name] = self._visible(sqs, name)
            except vendor_errors() as error:
                failures.append(f"{name}: {error}")
        waiting = [name for name in self.queues if counts.get(name)]
        try:
            oldest = _oldest(cloudwatch, waiting, now) if waiting else {}
        except vendor_errors() as error:
            oldest = {}
            failures.append(f"CloudWatch: {error}")
        dead = {name: counts[name] for name in self.dead if counts.get(name)}
        return QueueFindings(dead, oldest, tuple(failures))

    def metrics(self, found: QueueFindings, now: datetime) -> dict[str, Any] | None:
        """Return what is not 0 as metrics: all dead letters, the longest wait, workers that run.

        Args:
            found: What was found.
            now: When.

        Returns:
            None where there is nothing to worry about.
        """
        figures: dict[str, float] = {}
        if found.dead:
            figures[DEAD_LETTERS] = sum(found.dead.values())
        if found.oldest_s:
            figures[OLDEST] = max(found.oldest_s.values())
        if found.tasks:
            figures[TASKS] = found.tasks
        if not figures:
            return None
        declared = {
            "Namespace": self.namespace,
            "Dimensions": [[]],
            "Metrics": [{"Name": name} for name in figures],
        }
        return {
            "_aws": {"Timestamp": int(now.timestamp() * 1000), "CloudWatchMetrics": [declared]},
            **figures,
            "queues": {**found.dead, **found.oldest_s},
        }

    def _visible(self, sqs: Any, name: str) -> int:
        answer = sqs.get_queue_attributes(QueueUrl=f"{self.url}/{name}", AttributeNames=[_VISIBLE])
        return int(answer["Attributes"][_VISIBLE])


def count_tasks(ecs: Any, cluster: str) -> int:
    """Return how many tasks of a cluster run or start.

    Args:
        ecs: A client of ECS.
        cluster: The cluster.
    """
    pages = ecs.get_paginator("list_tasks").paginate(cluster=cluster, desiredStatus="RUNNING")
    return sum(len(page["taskArns"]) for page in pages)


def raise_failures(found: QueueFindings) -> None:
    """Raise what could not be looked at, so that the call fails, which is counted.

    Raises:
        StorageFailed: there is such a queue.
    """
    if found.failures:
        raise StorageFailed(
            f"{len(found.failures)} queues cannot be looked at: {'; '.join(found.failures)}"
        )


def _oldest(cloudwatch: Any, names: list[str], now: datetime) -> dict[str, float]:
    """Return how old the oldest message of each queue was when CloudWatch last heard of it."""
    queries = [
        {
            "Id": f"q{number}",
            "MetricStat": {
                "Metric": {
                    "Namespace": "AWS/SQS",
                    "MetricName": "ApproximateAgeOfOldestMessage",
                    "Dimensions": [{"Name": "QueueName", "Value": name}],
                },
                "Period": _PERIOD_S,
                "Stat": "Maximum",
            },
        }
        for number, name in enumerate(names)
    ]
    answer = cloudwatch.get_metric_data(
        MetricDataQueries=queries, StartTime=now - _LOOK_BACK, EndTime=now
    )
    found = {
        each["Id"]: max(zip(each["Timestamps"], each["Values"], strict=True), default=None)
        for each in answer["MetricDataResults"]
    }
    return {
        name: float(newest[1])
        for number, name in enumerate(names)
        if (newest := found.get(f"q{number}")) is not None
    }
