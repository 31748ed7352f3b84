"""Which settings Spark gets: the job's own, else the instance's, else the default (rule BLK-4).

Defaults follow upstream's but for two things. Memory: upstream's rows live in the Java heap; ours
pass through Python workers, whose memory a cluster counts as overhead. So a container of the same
size is divided the other way round. Executors: upstream's number is fixed; here as many run as have
work, and how many those may be follows from the bytes of the input (`executors.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from sleeper.model.formats.bulk_import_job import BulkImportJob
from sleeper.model.known_properties.deployment import REGION
from sleeper.model.known_properties.typed import InstanceProperties, TableProperties
from sleeper.model.known_properties.value_kinds import TABLE_DEFAULT_PREFIX, TABLE_PREFIX
from sleeper.spark.submit.executors import allocation_conf, executors_for
from sleeper.spark.submit.spark_settings import mib_of, whole_of

Platform = Literal["spark-submit", "kubernetes", "eks", "emr", "emr-serverless"]

RELEASE_LABEL: Final = "sleeper.table.bulk.import.emr.release.label"

_EVERYWHERE: Final = {
    "spark.executor.heartbeatInterval": "60s",
    "spark.network.timeout": "800s",
    "spark.speculation": "false",
}
_LARGE: Final = {
    **_EVERYWHERE,
    "spark.memory.fraction": "0.80",
    "spark.memory.storageFraction": "0.30",
    "spark.rdd.compress": "true",
    "spark.shuffle.compress": "true",
    "spark.shuffle.mapStatus.compression.codec": "lz4",
    "spark.shuffle.spill.compress": "true",
    "spark.speculation.quantile": "0.75",
}
# Of 18,090 MB that upstream gives an executor (16g and 1706m), 6 GB are the heap.
_EMR: Final = {
    **_LARGE,
    "spark.driver.cores": "5",
    "spark.driver.memory": "4g",
    "spark.driver.memoryOverhead": "6g",
    "spark.executor.cores": "5",
    "spark.executor.memory": "6g",
    "spark.executor.memoryOverhead": "11946m",
}
# Workers of 4 vCPU have 8 to 30 GB there, heap and overhead together.
_SERVERLESS: Final = {
    **_LARGE,
    "spark.driver.cores": "4",
    "spark.driver.memory": "4G",
    "spark.driver.memoryOverhead": "6G",
    "spark.emr-serverless.executor.disk": "200G",
    "spark.executor.cores": "4",
    "spark.executor.memory": "6G",
    "spark.executor.memoryOverhead": "10G",
}
# Pods of 4 vCPU have 8 to 30 GB on Fargate. One of 5, upstream's, is billed as 8.
_EKS: Final = {
    **_EMR,
    "spark.driver.cores": "2",
    "spark.executor.cores": "4",
    "spark.executor.memoryOverhead": "10g",
}
# The one executor of a small job there: with the driver and two pods of the cluster's own it has
# 4.5 of the 6 vCPU that a new account may use on Fargate.
_EKS_SMALL: Final = {
    "spark.executor.cores": "2",
    "spark.executor.memory": "4g",
    "spark.executor.memoryOverhead": "6g",
}
# Upstream's numbers of executors: the most that there are where the size of the input is not known.
EXECUTORS_OF_UNKNOWN: Final[Mapping[Platform, int]] = {
    "kubernetes": 29,
    "eks": 29,
    "emr": 29,
    "emr-serverless": 36,
}
DEFAULTS: Final[Mapping[Platform, Mapping[str, str]]] = {
    "spark-submit": _EVERYWHERE,
    "kubernetes": _EMR,
    "eks": _EKS,
    "emr": _EMR,
    "emr-serverless": _SERVERLESS,
}

_SHARED: Final = "sleeper.bulk.import."
_FAMILIES: Final[Mapping[Platform, tuple[str, ...]]] = {  # later ones win
    "spark-submit": (_SHARED,),
    "kubernetes": (_SHARED, "sleeper.bulk.import.eks."),
    "eks": (_SHARED, "sleeper.bulk.import.eks."),
    "emr": (_SHARED, "sleeper.bulk.import.emr."),
    "emr-serverless": (_SHARED, "sleeper.bulk.import.emr.serverless."),
}
# Where a property's name, after its family, is not the name of Spark's setting.
_RENAMED: Final = {
    "spark.driver.extra.java.options": "spark.driver.extraJavaOptions",
    "spark.driver.memory.overhead": "spark.driver.memoryOverhead",
    "spark.dynamic.allocation.enabled": "spark.dynamicAllocation.enabled",
    "spark.executor.extra.java.options": "spark.executor.extraJavaOptions",
    "spark.executor.heartbeat.interval": "spark.executor.heartbeatInterval",
    "spark.executor.memory.overhead": "spark.executor.memoryOverhead",
    "spark.memory.storage.fraction": "spark.memory.storageFraction",
    "spark.yarn.scheduler.reporter.thread.max.failures": (
        "spark.yarn.scheduler.reporterThread.maxFailures"
    ),
}
# Settings of pods and of a cache, which begin like those of Spark.
_NOT_SPARKS: Final = ("spark.executor.ephemeral.storage", "spark.storage.level")
# How a platform sets an environment variable of drivers.
_DRIVER_VARIABLES: Final[Mapping[Platform, str]] = {
    "kubernetes": "spark.kubernetes.driverEnv.",
    "eks": "spark.kubernetes.driverEnv.",
    "emr": "spark.yarn.appMasterEnv.",
    "emr-serverless": "spark.emr-serverless.driverEnv.",
}
_OURS: Final = {RELEASE_LABEL: "emr-spark-8.0.0"}  # Spark 4.0; emr-7 has 3.5, which is too old
_OVERHEAD_MIB_MIN, _OVERHEAD_SHARE = 384, 0.1  # Spark's own, where nothing is set


def effective_spark_conf(
    platform: Platform,
    instance: InstanceProperties,
    job: BulkImportJob,
    input_bytes: int | None = None,
) -> dict[str, str]:
    """Return Spark's settings for a job, sorted by name.

    An instance sets one for all platforms, `sleeper.bulk.import.spark.executor.instances`, or
    for one, such as `sleeper.bulk.import.emr.serverless.spark.executor.instances`, which wins.

    Args:
        platform: Where the job is to run.
        instance: The instance's properties.
        job: The job.
        input_bytes: Bytes of its input files; None where they are not known.

    Source: rule BLK-4.
    """
    given = {name: text for name, (text, _) in _given(platform, instance).items()}
    chosen = {**given, **job.spark_conf}
    return dict(sorted({**_defaults(platform, chosen, input_bytes), **chosen}.items()))


def is_sized(platform: Platform) -> bool:
    """Return whether the number of executors on a platform follows from the input."""
    return platform in EXECUTORS_OF_UNKNOWN


def _defaults(
    platform: Platform, chosen: Mapping[str, str], input_bytes: int | None
) -> dict[str, str]:
    """Return the settings for what nobody has chosen."""
    conf = dict(DEFAULTS[platform])
    if not is_sized(platform):
        return conf
    cores = whole_of({**conf, **chosen}, "spark.executor.cores") or 1
    most = EXECUTORS_OF_UNKNOWN[platform]
    if input_bytes is not None:
        most = executors_for(input_bytes, cores)
        if platform == "eks" and most == 1 and not any(name in chosen for name in _EKS_SMALL):
            conf |= _EKS_SMALL
            cores = int(_EKS_SMALL["spark.executor.cores"])
    return {**conf, **allocation_conf(chosen, most, cores)}


def setting_properties(platform: Platform, instance: InstanceProperties) -> dict[str, str]:
    """Return the property that gives each setting of Spark, where one of the instance does."""
    return {name: property_name for name, (_, property_name) in _given(platform, instance).items()}


def region_conf(platform: Platform, instance: InstanceProperties) -> dict[str, str]:
    """Return settings that tell a cluster's Python processes the region of an instance in AWS.

    Machines of EC2 do not tell it, and clients of AWS do not start without it.
    """
    region = instance.text(REGION)
    drivers = _DRIVER_VARIABLES.get(platform)
    if region is None or drivers is None:
        return {}
    return {f"{start}AWS_REGION": region for start in (drivers, "spark.executorEnv.")}


def platform_setting(name: str, table: TableProperties, job: BulkImportJob) -> str:
    """Return a `sleeper.table.bulk.import.emr.*` setting of a job.

    The job's `platformSpec` wins, then the table's property, then the instance's (rule BLK-4).
    """
    twin = TABLE_DEFAULT_PREFIX + name.removeprefix(TABLE_PREFIX)
    candidates = (
        job.platform_spec.get(name),
        table.values.get(name),
        table.instance.values.get(twin),
    )
    said = next((text for each in candidates if (text := (each or "").strip())), None)
    return said or _OURS.get(name) or table.text(name) or ""


def _given(platform: Platform, instance: InstanceProperties) -> dict[str, tuple[str, str]]:
    """The settings of Spark that properties give, each with its value and its property."""
    given: dict[str, tuple[str, str]] = {}
    for family in _FAMILIES[platform]:
        given |= _of_family(family, instance.values)
    return given


def _of_family(family: str, values: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    start = f"{family}spark."
    return {
        _RENAMED.get(own := name.removeprefix(family), own): (value.strip(), name)
        for name, value in values.items()
        if name.startswith(start) and value.strip()
        if name.removeprefix(family) not in _NOT_SPARKS
    }


def memory_mib(role: str, spark_conf: Mapping[str, str], default: str = "1g") -> float:
    """Return the memory of a driver or an executor: heap, and all that is outside it.

    Args:
        role: `driver` or `executor`.
        spark_conf: Spark's settings.
        default: The heap where no setting has one.

    Raises:
        ValueError: a setting is no size.
    """
    heap = mib_of(spark_conf.get(f"spark.{role}.memory", default))
    overhead = spark_conf.get(f"spark.{role}.memoryOverhead")
    own = max(_OVERHEAD_MIB_MIN, heap * _OVERHEAD_SHARE)
    total = heap + (own if overhead is None else mib_of(overhead))
    if role == "executor":
        total += mib_of(spark_conf.get("spark.executor.pyspark.memory", "0"))
    if spark_conf.get("spark.memory.offHeap.enabled", "").lower() == "true":
        total += mib_of(spark_conf.get("spark.memory.offHeap.size", "0"))
    return total
