"""Executors of a job: as many as its input needs, beside what an account may have."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import StorageFailed
from sleeper.model.formats.bulk_import_job import BulkImportJob
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.spark.submit.conf_check import conf_failures
from sleeper.spark.submit.effective_conf import EXECUTORS_OF_UNKNOWN, effective_spark_conf
from sleeper.spark.submit.eks import Eks
from sleeper.spark.submit.emr import Emr
from sleeper.spark.submit.emr_serverless import EmrServerless
from sleeper.spark.submit.executors import (
    EXECUTORS_MAX,
    FARGATE_QUOTA,
    SERVERLESS_QUOTA,
    Demand,
    executors_for,
)
from sleeper.spark.submit.spark_settings import DYNAMIC, INSTANCES
from tests.unit.spark.submit.test_submitted_jobs import instance, job, jobs

__all__ = ["instance", "jobs"]

GB = 1 << 30
TB = 1 << 40
SIZED = [*EXECUTORS_OF_UNKNOWN]
QUOTAS = {"eks": FARGATE_QUOTA, "emr-serverless": SERVERLESS_QUOTA}
FAMILIES = {"kubernetes": "eks", "eks": "eks", "emr": "emr", "emr-serverless": "emr.serverless"}
CLUSTERS = {
    "emr": Emr(),
    "emr-serverless": EmrServerless(
        application_id="00abc", execution_role_arn="arn:aws:iam::123456789012:role/jobs"
    ),
    "eks": Eks(state_machine_arn="arn:aws:states:eu-west-2:123456789012:stateMachine:eks"),
}


def conf(platform, size_bytes, chosen=None, properties=None) -> dict[str, str]:
    """The settings of a job with so much input."""
    settings = {
        f"sleeper.bulk.import.{FAMILIES[platform]}.{name}": value
        for name, value in (properties or {}).items()
    }
    return effective_spark_conf(
        platform,
        InstanceProperties(settings),
        BulkImportJob(spark_conf=chosen or {}),
        size_bytes,
    )


def most(settings) -> int:
    """Executors, at most."""
    return int(settings[f"{DYNAMIC}maxExecutors"])


class Listed:
    """Input in a bucket: files of a folder with their sizes."""

    def __init__(self, sizes=None, failure: Exception | None = None) -> None:
        self._sizes, self._failure = sizes or {}, failure
        self.asked: list[str] = []

    def sizes(self, url: str) -> dict[str, int]:
        """Return the files, or fail."""
        self.asked.append(url)
        if self._failure:
            raise self._failure
        return self._sizes


class TestNumber:
    """By bytes."""

    @pytest.mark.parametrize(
        ("size_bytes", "cores", "executors"),
        [
            (0, 4, 1),
            (1, 4, 1),
            (4 * GB, 4, 1),
            (4 * GB + 1, 4, 2),
            (100 * GB, 5, 20),
            (100 * GB, 1, 100),
            (TB, 4, 256),
            (100 * TB, 4, EXECUTORS_MAX),
        ],
    )
    def test_a_core_has_a_gigabyte(self, size_bytes, cores, executors):
        """A job has one executor at least, and a bound at most (BLK-4)."""
        assert executors_for(size_bytes, cores) == executors

    @given(st.integers(0, 200 * TB), st.integers(0, TB), st.sampled_from([1, 2, 4, 8, 16]))
    def test_more_input_has_no_fewer_executors(self, size_bytes, more, cores):
        """Whatever an executor is."""
        assert executors_for(size_bytes, cores) <= executors_for(size_bytes + more, cores)


@pytest.mark.parametrize("platform", SIZED)
class TestDefaults:
    """Where nobody has set a number, and where somebody has."""

    def test_a_small_job_asks_for_one_executor(self, platform):
        """Given a megabyte, then one, allocated as tasks wait, with few tasks."""
        found = conf(platform, 1 << 20)

        assert found[f"{DYNAMIC}enabled"] == "true"
        assert most(found) == 1
        assert INSTANCES not in found
        cores = int(found["spark.executor.cores"])
        assert found["spark.sql.shuffle.partitions"] == str(2 * cores)

    def test_a_large_job_asks_for_more(self, platform):
        """Given 200 GB, then 50 executors of 4 cores, or 40 of 5."""
        found = conf(platform, 200 * GB)

        assert most(found) * int(found["spark.executor.cores"]) == 200
        assert found["spark.default.parallelism"] == "400"

    def test_without_a_size_there_are_at_most_as_many_as_upstream_has(self, platform):
        """Given files that cannot be listed, then its numbers are the bound."""
        found = conf(platform, None)

        assert most(found) == {"emr-serverless": 36}.get(platform, 29)
        assert found[f"{DYNAMIC}minExecutors"] == found[f"{DYNAMIC}initialExecutors"] == "1"

    @pytest.mark.parametrize("by_job", [True, False])
    def test_a_number_that_somebody_sets_is_fixed(self, platform, by_job):
        """Given one by a job or a property, then it is as it was: no more and no fewer."""
        numbers = {INSTANCES: "12"}
        found = conf(platform, GB, numbers) if by_job else conf(platform, GB, None, numbers)

        assert found[INSTANCES] == "12"
        assert found[f"{DYNAMIC}enabled"] == "false"
        assert f"{DYNAMIC}maxExecutors" not in found

    def test_without_dynamic_allocation_the_input_gives_the_number(self, platform):
        """Given that it is switched off, then the number that was a bound is fixed."""
        found = conf(platform, 60 * GB, {f"{DYNAMIC}enabled": "false", "spark.executor.cores": "4"})

        assert found[INSTANCES] == "15"

    def test_a_bound_that_somebody_sets_stays(self, platform):
        """Given one below what the input needs, then tasks follow from it too."""
        found = conf(platform, 900 * GB, {f"{DYNAMIC}maxExecutors": "3"})

        cores = int(found["spark.executor.cores"])
        assert (most(found), found["spark.default.parallelism"]) == (3, str(6 * cores))

    @given(
        size_bytes=st.none() | st.integers(0, 300 * TB),
        numbers=st.dictionaries(
            st.sampled_from([INSTANCES, f"{DYNAMIC}minExecutors", f"{DYNAMIC}initialExecutors"]),
            st.integers(1, 2_000).map(str),
        ),
        enabled=st.none() | st.booleans(),
    )
    def test_defaults_never_contradict_what_somebody_sets(
        self, platform, size_bytes, numbers, enabled
    ):
        """Given any numbers, then the bound is not below them."""
        switch = {} if enabled is None else {f"{DYNAMIC}enabled": str(enabled).lower()}
        chosen = {**numbers, **switch}

        assert conf_failures(platform, conf(platform, size_bytes, chosen), given=chosen) == []


class TestDemand:
    """What is asked for, beside what an account may have."""

    @pytest.mark.parametrize("platform", QUOTAS)
    def test_a_small_job_fits_a_new_account(self, platform):
        """Given a gigabyte, then driver and executor fit; on EKS beside pods of its own (0.5)."""
        demand = Demand.of(conf(platform, GB), GB, QUOTAS[platform])

        assert demand.vcpu + 0.5 <= QUOTAS[platform].of_new_account
        assert "Service Quotas" not in demand.told()

    def test_more_than_a_new_account_has_is_told_with_what_to_do(self):
        """Given 40 GB on EMR Serverless, then its quota, its code and a setting that fits."""
        told = Demand.of(conf("emr-serverless", 40 * GB), 40 * GB, SERVERLESS_QUOTA).told()

        assert told == (
            "the job asks for at most 10 executors of 4 vCPU and a driver of 4, 44 vCPU together, "
            "for input of 42,949,672,960 bytes. A new account has 16 vCPU of EMR Serverless at "
            "once, and fewer executors run: ask Service Quotas for more (Max concurrent vCPUs per "
            "account, L-D05C8A75), or set spark.dynamicAllocation.maxExecutors=3"
        )

    def test_a_fixed_number_may_fail(self):
        """Given executors by a job, then the setting that made them is named."""
        told = Demand.of(conf("eks", None, {INSTANCES: "8"}), None, FARGATE_QUOTA).told(20)

        assert "asks for 8 executors of 4 vCPU" in told
        assert "for input of unknown size" in told
        assert "This account has 20 vCPU of Fargate at once, and the job may fail" in told
        assert told.endswith("or set spark.executor.instances=4")

    def test_an_account_with_more_is_told_nothing(self):
        """Given a quota that is large enough, then only the size is said."""
        demand = Demand.of(conf("emr-serverless", TB), TB, SERVERLESS_QUOTA)

        assert "Service Quotas" not in demand.told(4_000)
        assert "at most 256 executors" in demand.told(4_000)


@pytest.mark.parametrize("platform", CLUSTERS)
class TestPlan:
    """A plan knows the size of its input."""

    def planned(self, jobs, platform, inputs, **changes):
        """The plan of a job whose input is listed by `inputs`."""
        return replace(jobs, inputs=inputs).plan(
            job(**changes), CLUSTERS[platform], environment="s3://bucket/env"
        )

    def test_files_are_listed_and_their_bytes_added(self, jobs, platform):
        """Given two files of 30 GB together, then the request asks for as many as they need."""
        inputs = Listed({"s3://b/june/1.parquet": 10 * GB, "s3://b/june/2.parquet": 20 * GB})

        planned = self.planned(jobs, platform, inputs, files=("s3://b/june/",))

        assert inputs.asked == ["s3://b/june/"]
        assert planned.demand.input_bytes == 30 * GB
        cores = planned.demand.cores
        assert planned.demand.executors == -(-30 // cores)
        wanted = f"spark.dynamicAllocation.maxExecutors={planned.demand.executors}"
        assert wanted in str(planned.request.parameters)

    def test_files_that_cannot_be_listed_fail_no_job(self, jobs, platform, caplog):
        """Given a bucket that denies access, then the default counts, and the log says why."""
        caplog.set_level("INFO", "sleeper")

        planned = self.planned(jobs, platform, Listed(failure=StorageFailed("access denied")))

        assert planned.demand.input_bytes is None
        assert planned.demand.executors == EXECUTORS_OF_UNKNOWN[platform]
        assert "the size of the input of job june is not known: access denied" in caplog.text

    def test_notes_say_the_size_and_what_does_nothing(self, jobs, platform):
        """Given a setting of a library, then it is named; AWS is not asked in a dry run."""
        planned = self.planned(
            jobs, platform, Listed({"a": 5}), spark_conf={"spark.rapids.sql.enabled": "true"}
        )

        size, unknown = jobs.notes(planned, ask=False)

        assert size.startswith("the job asks for at most 1 executor of ")
        assert unknown.startswith("spark.rapids.sql.enabled: no setting of Spark itself")
