"""Which settings Spark gets, and a cluster's machines: who wins (BLK-4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.model.formats.bulk_import_job import BulkImportJob
from sleeper.model.known_properties.typed import InstanceProperties, TableProperties
from sleeper.spark.submit.effective_conf import (
    DEFAULTS,
    RELEASE_LABEL,
    effective_spark_conf,
    platform_setting,
)

MARKET = "sleeper.table.bulk.import.emr.executor.market.type"
EXECUTORS = "spark.executor.instances"


def conf(platform, instance=None, job=None):
    """The settings, of properties of an instance and of a job."""
    return effective_spark_conf(
        platform, InstanceProperties(instance or {}), BulkImportJob(spark_conf=job or {})
    )


class TestSparkSettings:
    """Job, then instance, then default."""

    @pytest.mark.parametrize("platform", DEFAULTS)
    def test_a_job_wins_over_the_instance_and_that_over_the_default(self, platform):
        """Setting by setting; what nobody sets has the default."""
        family = {
            "spark-submit": "",
            "kubernetes": "eks.",
            "eks": "eks.",
            "emr": "emr.",
            "emr-serverless": "emr.serverless.",
        }[platform]
        instance = {
            f"sleeper.bulk.import.{family}spark.executor.instances": "7",
            f"sleeper.bulk.import.{family}spark.executor.cores": "2",
        }

        found = conf(platform, instance, {EXECUTORS: "9", "spark.mine": "yes"})

        assert found[EXECUTORS] == "9"
        assert found["spark.executor.cores"] == "2"
        assert found["spark.mine"] == "yes"
        assert found["spark.network.timeout"] == "800s"

    @pytest.mark.parametrize("platform", ["kubernetes", "emr", "emr-serverless"])
    def test_a_platforms_own_property_wins_over_the_one_for_all(self, platform):
        """`sleeper.bulk.import.spark.*` counts everywhere, where nothing nearer is said."""
        family = {"kubernetes": "eks", "emr": "emr", "emr-serverless": "emr.serverless"}[platform]
        shared = {
            "sleeper.bulk.import.spark.speculation.quantile": "0.5",
            "sleeper.bulk.import.spark.rdd.compress": "false",
        }

        found = conf(
            platform, {**shared, f"sleeper.bulk.import.{family}.spark.rdd.compress": "true"}
        )

        assert found["spark.speculation.quantile"] == "0.5"
        assert found["spark.rdd.compress"] == "true"

    def test_one_platform_does_not_see_another_ones_properties(self):
        """Those of EMR Serverless begin like those of EMR, and are none of them."""
        instance = {"sleeper.bulk.import.emr.serverless.spark.executor.instances": "3"}

        assert conf("emr", instance) == conf("emr")
        assert conf("emr-serverless", instance)[EXECUTORS] == "3"

    @pytest.mark.parametrize(
        ("name", "setting"),
        [
            ("emr.spark.executor.memory.overhead", "spark.executor.memoryOverhead"),
            ("emr.spark.driver.memory.overhead", "spark.driver.memoryOverhead"),
            ("emr.spark.dynamic.allocation.enabled", "spark.dynamicAllocation.enabled"),
            ("emr.spark.executor.heartbeat.interval", "spark.executor.heartbeatInterval"),
            ("emr.spark.memory.storage.fraction", "spark.memory.storageFraction"),
            ("emr.spark.sql.shuffle.partitions", "spark.sql.shuffle.partitions"),
        ],
    )
    def test_upstreams_names_become_sparks(self, name, setting):
        """Words that upstream parts by a dot and Spark by a capital letter."""
        assert conf("emr", {f"sleeper.bulk.import.{name}": " x "})[setting] == "x"

    def test_what_a_container_weighs_follows_upstream(self):
        """As large containers, though less of each is the Java heap; as many at most, unsized."""
        emr, serverless = conf("emr"), conf("emr-serverless")

        assert emr["spark.dynamicAllocation.maxExecutors"] == "29"
        assert emr["spark.executor.cores"] == "5"
        assert 6 * 1024 + int(emr["spark.executor.memoryOverhead"][:-1]) == 16 * 1024 + 1706
        assert serverless["spark.dynamicAllocation.maxExecutors"] == "36"
        assert serverless["spark.emr-serverless.executor.disk"] == "200G"
        assert (
            serverless["spark.executor.memory"],
            serverless["spark.executor.memoryOverhead"],
        ) == (
            "6G",
            "10G",
        )

    def test_defaults_are_those_of_the_known_properties(self):
        """What the reference of properties says, memory apart: see the module."""
        known = InstanceProperties()

        for platform, family in (("emr", "emr"), ("emr-serverless", "emr.serverless")):
            for setting, value in DEFAULTS[platform].items():
                said = known.text(f"sleeper.bulk.import.{family}.{setting}")
                assert said in (None, value) or "memory" in setting, setting

    def test_a_cluster_at_hand_keeps_its_own_sizes(self):
        """Nothing is said about executors to a local or standalone Spark."""
        assert EXECUTORS not in conf("spark-submit")
        assert "spark.executor.memory" not in conf("spark-submit")

    @given(st.sampled_from([*DEFAULTS]), st.dictionaries(st.text(), st.text(), max_size=4))
    def test_every_setting_of_a_job_arrives(self, platform, settings):
        """Whatever it is called; and the answer is in order."""
        found = conf(platform, None, settings)

        assert settings.items() <= found.items()
        assert list(found) == sorted(found)


class TestMachines:
    """`sleeper.table.bulk.import.emr.*`: job, then table, then instance, then default."""

    @pytest.mark.parametrize(
        ("job", "table", "instance", "expected"),
        [
            ("j", "t", "i", "j"),
            (None, "t", "i", "t"),
            (" ", "t", "i", "t"),
            (None, None, "i", "i"),
            (None, None, None, "SPOT"),
        ],
    )
    def test_the_nearest_one_wins(self, job, table, instance, expected):
        """A value of nothing but spaces counts as not set."""
        properties = TableProperties(
            {MARKET: table} if table else {},
            InstanceProperties(
                {"sleeper.default.table.bulk.import.emr.executor.market.type": instance}
                if instance
                else {}
            ),
        )

        found = platform_setting(
            MARKET, properties, BulkImportJob(platform_spec={MARKET: job} if job else {})
        )

        assert found == expected

    def test_the_release_has_a_spark_that_is_new_enough(self):
        """Upstream's default has Spark 3.5; ours the first with 4.0. What is set counts."""
        assert platform_setting(RELEASE_LABEL, TableProperties(), BulkImportJob()) == (
            "emr-spark-8.0.0"
        )
        assert (
            platform_setting(
                RELEASE_LABEL, TableProperties({RELEASE_LABEL: "emr-9"}), BulkImportJob()
            )
            == "emr-9"
        )
