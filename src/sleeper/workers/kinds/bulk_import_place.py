"""Where the jobs of a queue run, by the instance's properties."""

from __future__ import annotations

import os
import sys
from typing import Final

from sleeper.language.value_classes import dataclass
from sleeper.model.jobs.messages import BULK_IMPORT_QUEUES, QueueName
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.spark.submit.configured_clusters import NEEDED, configured_cluster
from sleeper.spark.submit.driver_process import DriverProcess
from sleeper.spark.submit.submitted_jobs import Cluster

HERE: Final = "local"
"""The platform of jobs that a worker does itself, as the tracker shows it."""

_SPARK_HERE: Final = "local, spark"
_PLATFORMS: Final = {
    QueueName.BULK_IMPORT_EMR: "emr",
    QueueName.BULK_IMPORT_PERSISTENT_EMR: "persistent-emr",
    QueueName.BULK_IMPORT_EMR_SERVERLESS: "emr-serverless",
    QueueName.BULK_IMPORT_EKS: "eks",
}


@dataclass(frozen=True, slots=True)
class BulkImportPlace:
    """Where the bulk imports of a queue run.

    Attributes:
        cluster: Who is to run them; None for the worker that takes them.
        platform: How the tracker shows it.
        told: For people: completes the sentence "the job runs ...".
    """

    cluster: Cluster | None
    platform: str
    told: str

    @property
    def is_elsewhere(self) -> bool:
        """Whether another machine than the worker's runs the driver."""
        return self.cluster is not None and not isinstance(self.cluster, DriverProcess)


def bulk_import_place(queue: QueueName, properties: InstanceProperties) -> BulkImportPlace:
    """Return where the bulk imports of a queue run.

    A platform that the properties do not describe is not there: the jobs run here then. The worker
    does them, or a Spark driver beside it where `sleeper.bulk.import.local.spark.master` is set.
    """
    why = ""
    platform = _PLATFORMS.get(queue)
    if platform is not None:
        cluster = configured_cluster(platform, properties)
        if cluster is not None:
            return BulkImportPlace(cluster, platform, f"on {platform}")
        why = f", as {platform} is not set up: {_unset(platform)}"
    master = properties.jobs.spark_master
    if master is None:
        return BulkImportPlace(None, HERE, f"in a worker of bulk imports{why}")
    driver = DriverProcess(master=master, python=sys.executable, parent_id=os.getpid())
    where = f"on Spark at {master}, by a driver beside a worker of bulk imports"
    return BulkImportPlace(driver, _SPARK_HERE, where + why)


def _unset(platform: str) -> str:
    """Say which properties would set up a platform."""
    names = NEEDED[platform]
    if len(names) == 1:
        return f"{names[0]} is not set"
    return f"{' and '.join(names)} are not all set"


def where_jobs_run(queue: QueueName, properties: InstanceProperties) -> str:
    """Return where the jobs of a queue of ingest or bulk import run, for people."""
    if queue in BULK_IMPORT_QUEUES:
        return bulk_import_place(queue, properties).told
    return "in a worker of ingest jobs"
