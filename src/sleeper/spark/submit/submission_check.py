"""Finds what a cluster could not do with a job, by values alone, before anything is saved or sent.

Every check returns a list of failures, so that a user hears of everything at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from sleeper.model.formats.bulk_import_job import BulkImportJob
from sleeper.model.known_properties.catalogue import TABLE_PROPERTIES
from sleeper.model.known_properties.typed import TableProperties
from sleeper.model.object_stores import is_bucket_url
from sleeper.spark.submit.conf_check import conf_failures
from sleeper.spark.submit.driver_process import SPARK_MASTER, DriverProcess
from sleeper.spark.submit.effective_conf import Platform, platform_setting
from sleeper.spark.submit.eks import Eks
from sleeper.spark.submit.emr import Emr, Setting, emr_setting_failures
from sleeper.spark.submit.emr_serverless import EmrServerless
from sleeper.spark.submit.request import NO_ENVIRONMENT
from sleeper.spark.submit.spark_submit import Kubernetes, SparkSubmit

EMR_SETTINGS: Final = "sleeper.table.bulk.import.emr."

_MASTER = re.compile(
    r"yarn|local|local\[(\d+|\*)(,\s*\d+)?\]|local-cluster\[\d+,\s*\d+,\s*\d+\]"
    r"|spark://[^/,:]+:\d+(,[^/,:]+:\d+)*/?|k8s://.+"
)
_ELSEWHERE: Final = {
    Emr: "EMR's machines",
    EmrServerless: "EMR Serverless's workers",
    Kubernetes: "a Kubernetes cluster's pods",
    Eks: "a Kubernetes cluster's pods",
}
_IN_AWS: Final = "aws://"
_PODS: Final = (Kubernetes, Eks)

# Settings that Sleeper, the platform or Spark sets: a job's own would break it, or do nothing.
_CLASSIC: Final = "the driver runs in Spark's classic mode, not in Spark Connect"
_BY_SPARK: Final = "Spark itself sets it"
_BY_NAME: Final = "the job is named by its instance, table and id"
_BY_ARCHIVE: Final = "Python comes with Sleeper's packages, which --environment names"
_BY_IMAGE: Final = "Python is that of the image"
_BY_EXECUTION: Final = "the state machine that starts the driver sets it"
_SET_BY_SLEEPER: Final[Mapping[str, str]] = {
    "spark.master": "--submit and --master, or the queue of a job, say where it runs",
    "spark.submit.deployMode": "--deploy-mode, or the platform, says where the driver runs",
    "spark.api.mode": _CLASSIC,
    "spark.remote": _CLASSIC,
    **dict.fromkeys(
        (
            "spark.app.attempt.id",
            "spark.app.id",
            "spark.app.startTime",
            "spark.app.submitTime",
            "spark.executor.id",
            "spark.yarn.app.id",
        ),
        _BY_SPARK,
    ),
}
_PYTHONS: Final = ("spark.pyspark.python", "spark.pyspark.driver.python")
_SET_BY_PLATFORM: Final[Mapping[type, Mapping[str, str]]] = {
    SparkSubmit: {
        "spark.app.name": _BY_NAME,
        **dict.fromkeys(_PYTHONS, "the driver's Python is this one, or that of --environment"),
    },
    DriverProcess: {},
    Kubernetes: {"spark.app.name": _BY_NAME},
    Eks: {
        "spark.app.name": _BY_NAME,
        **dict.fromkeys(_PYTHONS, _BY_IMAGE),
        **dict.fromkeys(
            (
                "spark.driver.bindAddress",
                "spark.driver.host",
                "spark.kubernetes.driver.pod.name",
                "spark.kubernetes.executor.podNamePrefix",
                "spark.kubernetes.executor.podTemplateFile",
                "spark.kubernetes.namespace",
            ),
            _BY_EXECUTION,
        ),
    },
    Emr: {
        "spark.app.name": _BY_NAME,
        **dict.fromkeys((*_PYTHONS, "spark.yarn.appMasterEnv.PYSPARK_PYTHON"), _BY_ARCHIVE),
        "spark.yarn.submit.waitAppCompletion": "a step of EMR waits for the end of its job",
    },
    EmrServerless: {
        "spark.app.name": _BY_NAME,
        "spark.archives": "it names the archive of Sleeper's packages",
        **dict.fromkeys(
            (
                *_PYTHONS,
                "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON",
                "spark.emr-serverless.driverEnv.PYSPARK_PYTHON",
                "spark.executorEnv.PYSPARK_PYTHON",
            ),
            _BY_ARCHIVE,
        ),
    },
}
# Values that say what is so anyway.
_AS_IT_IS: Final = (
    ("spark.api.mode", "classic"),
    ("spark.yarn.submit.waitAppCompletion", "true"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedCall:
    """What is to be checked.

    Attributes:
        job: The job.
        url: Where its instance is.
        environment: Folder or URL of Sleeper's packages, if one was named.
        platform: The kind of cluster.
        spark_conf: The settings that Spark will get.
        properties: The property of the instance that gives a setting of Spark, by the setting.
        setting: Gives a `sleeper.table.bulk.import.emr.*` setting by the part after that.
    """

    job: BulkImportJob
    url: str
    environment: str | None
    platform: Platform
    spark_conf: Mapping[str, str]
    properties: Mapping[str, str]
    setting: Setting


def submission_failures(
    cluster: SparkSubmit | DriverProcess | Kubernetes | Eks | Emr | EmrServerless, call: CheckedCall
) -> list[str]:
    """Return why a cluster could not run a job; nothing if it could."""
    failures = [*_platform_spec_failures(call.job.platform_spec)]
    if not isinstance(cluster, Emr):
        failures += _unused_spec_failures(call.job)
    failures += conf_failures(
        call.platform, call.spark_conf, given=call.job.spark_conf, properties=call.properties
    )
    failures += _owned_failures(type(cluster), call)
    if type(cluster) in _ELSEWHERE:
        failures += _place_failures(_ELSEWHERE[type(cluster)], call)
    if isinstance(cluster, _PODS):
        failures += _pod_name_failures(call.job.id or "")
    match cluster:
        case SparkSubmit():
            failures += _master_failures("--master", cluster.master)
        case DriverProcess():
            failures += _master_failures(f"{SPARK_MASTER} is", cluster.master)
        case Emr():
            failures += _bucket_failures(call.environment, cluster.log_uri)
            failures += cluster.failures(call.setting, call.spark_conf)
        case EmrServerless():
            failures += _bucket_failures(call.environment, cluster.log_uri)
            failures += cluster.failures(call.spark_conf)
        case Eks():
            failures += cluster.failures(call.spark_conf)
    return failures


def _owned_failures(cluster: type, call: CheckedCall) -> Iterable[str]:
    """Settings that are not a job's to make, nor an instance's."""
    owned = {**_SET_BY_SLEEPER, **_SET_BY_PLATFORM[cluster]}
    for name, text in {**call.spark_conf, **call.job.spark_conf}.items():
        if name in owned and (name, text.strip().lower()) not in _AS_IT_IS:
            source = None if name in call.job.spark_conf else call.properties.get(name)
            named = f"{name} (set by {source})" if source else name
            yield f"{named} cannot be set: {owned[name]}. Leave it out"


def _unused_spec_failures(job: BulkImportJob) -> Iterable[str]:
    """What EMR could not do with a job's own platformSpec, which this cluster does not read."""
    if not job.platform_spec:
        return
    for failure in emr_setting_failures(
        lambda name: platform_setting(EMR_SETTINGS + name, TableProperties(), job)
    ):
        yield f"platformSpec: {failure}"


def _pod_name_failures(job_id: str) -> Iterable[str]:
    """Kubernetes takes no name that begins or ends with a dash."""
    if job_id != job_id.strip("-"):
        yield (
            f"the job's id is {job_id!r}, but names of Kubernetes begin and end with a letter or a "
            "digit: leave the dash out"
        )


def _place_failures(who: str, call: CheckedCall) -> Iterable[str]:
    """Instance and input must be URLs of a bucket."""
    if not is_bucket_url(call.url) and not call.url.startswith(_IN_AWS):
        yield (
            f"{who} cannot reach the instance {call.url}: it must be in a bucket, s3://bucket/folder"
        )
    local = [path for path in call.job.paths if not is_bucket_url(path)]
    if local:
        yield (
            f"{who} cannot reach the input {', '.join(map(repr, local))}: name it by URL, "
            "s3://bucket/folder"
        )


def _bucket_failures(environment: str | None, log_uri: str | None) -> Iterable[str]:
    if not environment:
        yield NO_ENVIRONMENT
    for option, value in (("--environment", environment), ("--log-uri", log_uri)):
        if value and not is_bucket_url(value):
            yield (
                f"{option} {value!r} is a place of this machine; copy it to a bucket, and name "
                "it by s3://bucket/folder"
            )


def _master_failures(named: str, master: str) -> Iterable[str]:
    if master.startswith("sc://"):
        yield (
            f"{named} {master} is Spark Connect, which takes no drivers: use "
            "table.bulk_import(..., spark=SparkSession.builder.remote(...).getOrCreate())"
        )
    elif not _MASTER.fullmatch(master):
        yield (
            f"{named} {master!r} is no master of Spark: say local[4], spark://HOST:PORT, yarn or "
            "k8s://https://HOST:PORT"
        )


def _platform_spec_failures(spec: Mapping[str, str]) -> Iterable[str]:
    known = [each.name for each in TABLE_PROPERTIES if each.name.startswith(EMR_SETTINGS)]
    for name in spec:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; names begin with {EMR_SETTINGS}"
            yield f"platformSpec has an unknown name {name!r}{hint}"
