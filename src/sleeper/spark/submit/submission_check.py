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
from sleeper.model.object_stores import is_bucket_url
from sleeper.spark.submit.driver_process import SPARK_MASTER, DriverProcess
from sleeper.spark.submit.eks import Eks
from sleeper.spark.submit.emr import Emr, Setting
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedCall:
    """What is to be checked.

    Attributes:
        job: The job.
        url: Where its instance is.
        environment: Folder or URL of Sleeper's packages, if one was named.
        spark_conf: The settings that Spark will get.
        setting: Gives a `sleeper.table.bulk.import.emr.*` setting by the part after that.
    """

    job: BulkImportJob
    url: str
    environment: str | None
    spark_conf: Mapping[str, str]
    setting: Setting


def submission_failures(
    cluster: SparkSubmit | DriverProcess | Kubernetes | Eks | Emr | EmrServerless, call: CheckedCall
) -> list[str]:
    """Return why a cluster could not run a job; nothing if it could."""
    failures = [*_platform_spec_failures(call.job.platform_spec)]
    if type(cluster) in _ELSEWHERE:
        failures += _place_failures(_ELSEWHERE[type(cluster)], call)
    match cluster:
        case SparkSubmit():
            failures += _master_failures("--master", cluster.master)
        case DriverProcess():
            failures += _master_failures(f"{SPARK_MASTER} is", cluster.master)
        case Emr():
            failures += _bucket_failures(call.environment, cluster.log_uri)
            failures += cluster.failures(call.setting)
        case EmrServerless():
            failures += _bucket_failures(call.environment, cluster.log_uri)
            failures += cluster.failures(call.spark_conf)
        case Eks():
            failures += cluster.failures(call.spark_conf)
    return failures


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
