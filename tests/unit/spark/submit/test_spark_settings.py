"""Spark's settings and EMR's machine types: the tables, and how values are read."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.model.known_properties.catalogue import INSTANCE_PROPERTIES, TABLE_PROPERTIES
from sleeper.spark.submit.machine_types import machine_types, near_types
from sleeper.spark.submit.spark_settings import (
    Kind,
    SparkSetting,
    known_settings,
    mib_of,
    seconds_of,
    setting_failures,
    unknown_settings,
)


class TestSettings:
    """What Spark has, and takes."""

    @pytest.mark.parametrize(
        ("kind", "taken", "refused"),
        [
            ("boolean", ["true", "FALSE", " true "], ["yes", "1", ""]),
            ("whole", ["0", "-5", "+7", " 12 "], ["1.0", "1k", "x", ""]),
            ("decimal", ["0.5", ".5", "1", "-2.", "1e-3"], ["half", "1,5", "nan", ""]),
            ("size", ["6g", "512M", "1024", "7kb", "3PB", "-1"], ["6 g", "1.5g", "6gib", "g", ""]),
            ("time", ["60s", "2min", "100", "5MS", "1d"], ["1.5s", "60 s", "2 weeks", ""]),
            ("text", ["", "anything at all"], []),
        ],
    )
    def test_values_are_those_that_spark_reads(self, kind, taken, refused):
        """Each kind has its own; spaces around a value do not matter (BLK-2)."""
        setting = SparkSetting("spark.x", kind)

        assert [each for each in taken if setting.failure(each)] == []
        assert [each for each in refused if not setting.failure(each)] == []

    def test_a_number_may_have_a_least_value(self):
        """Below it the message says what it must be; units do not count."""
        setting = SparkSetting("spark.x", "size", least=1)

        assert setting.failure("1k") is None
        assert setting.failure("0g") == "a size, such as 6g, 1 or more"

    def test_choices_are_taken_in_any_case(self):
        """And all are named where it is none."""
        setting = SparkSetting("spark.x", "choice", choices=("LZ4", "ZSTD"))

        assert setting.failure("lz4") is None
        assert setting.failure("gzip") == "one of LZ4, ZSTD"

    def test_every_row_of_the_table_can_be_read(self):
        """Kinds are those of the module, names begin alike, and choices are there."""
        known = known_settings()

        assert len(known) > 1_500
        assert {each.kind for each in known.values()} <= {*get_args(Kind)}
        assert all(name.startswith("spark.") for name in known)
        assert all(each.choices for each in known.values() if each.kind == "choice")

    def test_no_known_name_is_taken_for_a_misspelt_one(self):
        """Neither is a name of a family, or of a library."""
        others = ("spark.hadoop.fs.s3a.endpont", "spark.executorEnv.TZ", "spark.rapids.sql.enabled")

        assert [*setting_failures(dict.fromkeys(others, "x"))] == []
        assert unknown_settings((*known_settings(), *others)) == ["spark.rapids.sql.enabled"]

    @given(st.integers(0, 10**6), st.sampled_from(["", "b", "k", "mb", "G", "t", "pb"]))
    def test_a_size_is_in_mib(self, number, unit):
        """Without a unit it is in MiB, as Spark's settings of memory are."""
        powers = {"b": -20, "k": -10, "": 0, "m": 0, "g": 10, "t": 20, "p": 30}

        assert mib_of(f"{number}{unit}") == number * 2.0 ** powers[unit[:1].lower()]

    @pytest.mark.parametrize(
        ("text", "seconds"), [("800s", 800), ("2min", 120), ("3m", 180), ("250ms", 0.25), ("9", 9)]
    )
    def test_a_time_is_in_seconds(self, text, seconds):
        """Minutes have two units."""
        assert seconds_of(text) == seconds


class TestMachineTypes:
    """What EMR has."""

    @pytest.mark.parametrize(
        ("name", "cores", "memory_gb", "architecture"),
        [
            ("m7g.4xlarge", 16, 64, "arm64"),
            ("m7i.xlarge", 4, 16, "x86_64"),
            ("r8g.2xlarge", 8, 64, "arm64"),
            ("c6a.48xlarge", 192, 384, "x86_64"),
        ],
    )
    def test_have_the_sizes_that_ec2_tells(self, name, cores, memory_gb, architecture):
        """Processors, memory, and architecture."""
        found = machine_types()[name]

        assert (found.cores, found.memory_mib / 1024) == (cores, memory_gb)
        assert found.architecture == architecture

    def test_a_part_of_the_memory_is_the_systems(self):
        """A quarter of a small machine, 8 GB of a larger one."""
        small, large = (machine_types()[f"m7g.{each}"] for each in ("2xlarge", "8xlarge"))

        assert (small.containers_mib, large.containers_mib) == (24 * 1024, 120 * 1024)

    def test_defaults_of_properties_are_among_them(self):
        """With the architecture that the property's name says."""
        named = [
            (part, "arm64" if ".arm." in each.name else "x86_64")
            for each in (*INSTANCE_PROPERTIES, *TABLE_PROPERTIES)
            if each.name.endswith(".instance.types") and each.default
            if "bulk.import" in each.name
            for part in each.default.split(",")
        ]

        assert len(named) >= 8
        assert [machine_types()[name].architecture for name, _ in named] == [
            architecture for _, architecture in named
        ]

    def test_a_name_that_is_none_has_near_ones(self):
        """For messages, the most alike first."""
        assert near_types("M7G.4xlrge")[0] == "m7g.4xlarge"
        assert near_types("zzz") == []
