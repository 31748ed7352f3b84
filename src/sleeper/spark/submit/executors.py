"""How many executors a job asks for, by the bytes of its input, and what an account may have.

Where nobody has set a number, executors are allocated as tasks wait for them, up to a number that
follows from the input. A job of a few gigabytes so fits the quotas of a new account in AWS.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sleeper.spark.submit.spark_settings import DYNAMIC, INSTANCES, is_true, whole_of

BYTES_OF_A_CORE: Final = 1 << 30
"""Input for one core: it keeps a core busy for several minutes, longer than a worker's start."""

EXECUTORS_MAX: Final = 256
"""Executors that are asked for by default, at most: with four cores each for 1 TiB and more."""

_TASKS_OF_A_CORE: Final = 2  # upstream's: 290 tasks for 29 executors of 5 cores


def executors_for(input_bytes: int, cores: int) -> int:
    """Return how many executors an import of files keeps busy.

    >>> executors_for(20 << 30, 4), executors_for(1_000, 4)
    (5, 1)

    Args:
        input_bytes: Bytes of the input files, as they are stored.
        cores: Cores of an executor.
    """
    wanted = math.ceil(input_bytes / (max(1, cores) * BYTES_OF_A_CORE))
    return min(EXECUTORS_MAX, max(1, wanted))


def allocation_conf(chosen: Mapping[str, str], most: int, cores: int) -> dict[str, str]:
    """Return the default settings of the number of executors, and of tasks.

    A number that somebody has set stays as it is, and is fixed unless they also set dynamic
    allocation.

    Args:
        chosen: The settings that the job and the instance's properties give.
        most: Executors, at most, where nobody has set a number.
        cores: Cores of an executor.
    """
    fixed = whole_of(chosen, INSTANCES)
    enabled = f"{DYNAMIC}enabled"
    is_dynamic = is_true(chosen, enabled) if enabled in chosen else INSTANCES not in chosen
    if not is_dynamic:
        count = most if fixed is None else fixed
        conf = {enabled: "false", INSTANCES: str(count)}
    else:
        least, first = (
            whole_of(chosen, f"{DYNAMIC}{each}Executors") for each in ("min", "initial")
        )
        limit = whole_of(chosen, f"{DYNAMIC}maxExecutors")
        count = max(most, *(each or 1 for each in (least, first, fixed)))
        count = count if limit is None else limit
        conf = {
            enabled: "true",
            f"{DYNAMIC}shuffleTracking.enabled": "true",
            f"{DYNAMIC}minExecutors": "1",
            f"{DYNAMIC}initialExecutors": str(max(1, least or 1)),
            f"{DYNAMIC}maxExecutors": str(count),
        }
    tasks = str(max(1, count) * max(1, cores) * _TASKS_OF_A_CORE)
    return {**conf, "spark.default.parallelism": tasks, "spark.sql.shuffle.partitions": tasks}


@dataclass(frozen=True, slots=True)
class Quota:
    """What an account in AWS may use at once.

    Attributes:
        service: The service, as Service Quotas calls it.
        code: The quota's code.
        name: Its name.
        of_new_account: What an account has before it asks for more, in virtual processors.
        where: For people: where it counts.
    """

    service: str
    code: str
    name: str
    of_new_account: int
    where: str


SERVERLESS_QUOTA: Final = Quota(
    "emr-serverless", "L-D05C8A75", "Max concurrent vCPUs per account", 16, "EMR Serverless"
)
FARGATE_QUOTA: Final = Quota(
    "fargate", "L-3032A538", "Fargate On-Demand vCPU resource count", 6, "Fargate"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a job asks a platform for.

    Attributes:
        executors: Executors, at most.
        is_fixed: Whether there are always so many, from the start.
        cores: Cores of an executor.
        driver_cores: Cores of the driver.
        input_bytes: Bytes of the input files; None where they are not known.
        quota: What limits it; None where that is not a quota of processors.
    """

    executors: int
    is_fixed: bool
    cores: int
    driver_cores: int
    input_bytes: int | None
    quota: Quota | None = None

    @classmethod
    def of(
        cls, spark_conf: Mapping[str, str], input_bytes: int | None, quota: Quota | None
    ) -> Demand | None:
        """Return what settings ask for; None where they say nothing of executors."""
        is_dynamic = is_true(spark_conf, f"{DYNAMIC}enabled")
        executors = whole_of(spark_conf, f"{DYNAMIC}maxExecutors" if is_dynamic else INSTANCES)
        if executors is None:
            return None
        return cls(
            executors=executors,
            is_fixed=not is_dynamic,
            cores=whole_of(spark_conf, "spark.executor.cores") or 1,
            driver_cores=whole_of(spark_conf, "spark.driver.cores") or 1,
            input_bytes=input_bytes,
            quota=quota,
        )

    @property
    def vcpu(self) -> int:
        """Virtual processors of the driver and of all executors."""
        return self.driver_cores + self.executors * self.cores

    def is_above(self, limit: float) -> bool:
        """Return whether it is more than an account may use at once."""
        return self.vcpu > limit

    def told(self, limit: float | None = None) -> str:
        """Return it for people, with what to do where a quota is too small.

        Args:
            limit: The quota of this account; None where it is not known.
        """
        size = "of unknown size" if self.input_bytes is None else f"of {self.input_bytes:,} bytes"
        number = f"{self.executors} executor{'' if self.executors == 1 else 's'}"
        asked = (
            f"the job asks for {'' if self.is_fixed else 'at most '}{number} of {self.cores} vCPU "
            f"and a driver of {self.driver_cores}, {self.vcpu} vCPU together, for input {size}"
        )
        if self.quota is None:
            return asked
        allowed = self.quota.of_new_account if limit is None else limit
        if not self.is_above(allowed):
            return asked
        who = "a new account" if limit is None else "this account"
        fitting = int((allowed - self.driver_cores) // self.cores)
        setting = INSTANCES if self.is_fixed else f"{DYNAMIC}maxExecutors"
        then = "and the job may fail" if self.is_fixed else "and fewer executors run"
        advice = f", or set {setting}={fitting}" if fitting > 0 else ""
        return (
            f"{asked}. {who.capitalize()} has {allowed:g} vCPU of {self.quota.where} at once, "
            f"{then}: ask Service Quotas for more ({self.quota.name}, {self.quota.code}){advice}"
        )
