"""Finds what is wrong with Spark's settings for a platform, by values alone.

Each setting is checked by its name and its kind; then what settings mean together: how many
executors there are, whether a task can run on one, and whether Python workers have memory. Sizes of
workers, pods and machines are checked by the modules of the platforms.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from sleeper.spark.submit.effective_conf import Platform
from sleeper.spark.submit.spark_settings import (
    DYNAMIC,
    INSTANCES,
    is_true,
    mib_of,
    seconds_of,
    setting_failures,
    whole_of,
)

OVERHEAD: Final = "spark.executor.memoryOverhead"

# Families of settings that some platforms alone read.
_FAMILIES: Final[Mapping[str, tuple[tuple[Platform, ...], str]]] = {
    "spark.emr-serverless.": (("emr-serverless",), "EMR Serverless"),
    "spark.yarn.": (("emr", "spark-submit"), "YARN"),
    "spark.kubernetes.": (("kubernetes", "eks", "spark-submit"), "Kubernetes"),
}
_ROLES: Final = ("driver", "executor")
_HEAP_MIB_MIN: Final = 450  # Spark itself refuses to start with less
_OVERHEAD_MIB_MIN: Final = 384  # Spark's own least
_WORKER_MIB: Final = 256  # a Python worker has 165 MiB when it has loaded Arrow, polars, DataFusion
_SHARES: Final = ("spark.memory.fraction", "spark.memory.storageFraction")

Called = Callable[[str], str]
"""Gives the name of a setting for a message: with the property that has set it, if one has."""


def conf_failures(
    platform: Platform,
    conf: Mapping[str, str],
    *,
    given: Collection[str] = (),
    properties: Mapping[str, str] | None = None,
) -> list[str]:
    """Return everything that is wrong with Spark's settings for a platform, but sizes.

    Args:
        platform: Where the job is to run.
        conf: All settings that Spark will get.
        given: The names that the job itself sets: only those may not be for another platform.
        properties: The property of the instance that has set a setting, by the setting's name.
    """

    def called(name: str) -> str:
        source = (properties or {}).get(name)
        return f"{name} (set by {source})" if source and name not in given else name

    wrong = dict(setting_failures(conf))
    readable = {name: text for name, text in conf.items() if name not in wrong}
    return [
        *(f"{called(name)} {reason}" for name, reason in wrong.items()),
        *_foreign(platform, given),
        *_count_failures(readable, called),
        *_combined_failures(readable, called),
        *_heap_failures(readable, called),
        *_overhead_failures(
            platform, readable, called, is_default=OVERHEAD not in {*given, *(properties or {})}
        ),
    ]


def _foreign(platform: Platform, given: Collection[str]) -> Iterator[str]:
    for name in given:
        for family, (platforms, reader) in _FAMILIES.items():
            if name.startswith(family) and platform not in platforms:
                yield f"{name} is a setting of {reader}, and does nothing on {platform}"


def _count_failures(conf: Mapping[str, str], called: Called) -> Iterator[str]:
    """Yield why there cannot be as many executors, or cores, as settings say."""
    for name in (INSTANCES, "spark.executor.cores", "spark.driver.cores", "spark.task.cpus"):
        count = whole_of(conf, name)
        if count is not None and count < 1:
            yield f"{called(name)} is {count}, but it must be 1 or more"
    bounds = {
        each: whole_of(conf, f"{DYNAMIC}{each}Executors") for each in ("min", "initial", "max")
    }
    least, first, most = bounds["min"], bounds["initial"], bounds["max"]
    if most is not None and most < 1:
        yield f"{called(f'{DYNAMIC}maxExecutors')} is {most}, but it must be 1 or more"
        return
    for name, count in (
        (f"{DYNAMIC}minExecutors", least),
        (f"{DYNAMIC}initialExecutors", first),
        (INSTANCES, whole_of(conf, INSTANCES)),
    ):
        if not is_true(conf, f"{DYNAMIC}enabled"):
            return
        if count is not None and most is not None and count > most:
            yield f"{called(name)} is {count}, more than {DYNAMIC}maxExecutors, {most}"


def _combined_failures(conf: Mapping[str, str], called: Called) -> Iterator[str]:
    cores, cpus = whole_of(conf, "spark.executor.cores"), whole_of(conf, "spark.task.cpus")
    if cores is not None and cpus is not None and cpus > cores > 0:
        yield (
            f"{called('spark.task.cpus')} is {cpus}, but an executor has {cores} cores: no task "
            "would ever run"
        )
    for name in _SHARES:
        if name in conf and not 0 <= float(conf[name]) <= 1:
            yield f"{called(name)} is {conf[name]}, but it is a share, from 0 to 1"
    beat, patience = (
        conf.get(name) for name in ("spark.executor.heartbeatInterval", "spark.network.timeout")
    )
    if beat and patience and _beat_s(beat) >= seconds_of(patience):
        yield (
            f"{called('spark.executor.heartbeatInterval')} is {beat}, but it must be shorter than "
            f"spark.network.timeout, {patience}"
        )


def _beat_s(text: str) -> float:
    """Return a heartbeat's interval, which is in milliseconds where it has no unit."""
    return int(text) / 1000 if text.strip().isdecimal() else seconds_of(text)


def _heap_failures(conf: Mapping[str, str], called: Called) -> Iterator[str]:
    for role in _ROLES:
        heap = conf.get(f"spark.{role}.memory")
        if heap is not None and mib_of(heap) < _HEAP_MIB_MIN:
            yield (
                f"{called(f'spark.{role}.memory')} is {heap}, but Spark does not start with less "
                f"than {_HEAP_MIB_MIN}m"
            )


def _overhead_failures(
    platform: Platform, conf: Mapping[str, str], called: Called, *, is_default: bool
) -> Iterator[str]:
    """Yield why Python workers would have too little memory, where a cluster counts it."""
    overhead = conf.get(OVERHEAD)
    if overhead is None or is_default or platform == "spark-submit":
        return
    cores = whole_of(conf, "spark.executor.cores") or 1
    workers = max(1, cores // max(1, whole_of(conf, "spark.task.cpus") or 1))
    least = max(_OVERHEAD_MIB_MIN, workers * _WORKER_MIB)
    if mib_of(overhead) < least:
        yield (
            f"{called(OVERHEAD)} is {overhead}, but rows pass through "
            f"Python workers, {workers} in an executor, outside its heap: they need {least}m at "
            "least"
        )
