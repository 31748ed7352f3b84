"""The table of Spark's settings, beside the Spark that is installed."""

from __future__ import annotations

from sleeper.spark.submit.spark_settings import known_settings, mib_of


def entries_of(spark) -> dict[str, object]:
    """The definitions that this Spark has of the settings of the table."""
    find = spark.sparkContext._jvm.org.apache.spark.internal.config.ConfigEntry.findEntry
    found = {name: find(name) for name in known_settings()}
    return {name: entry for name, entry in found.items() if entry is not None}


def test_the_defaults_of_spark_are_values_that_the_table_takes(spark):
    """Given each setting that Spark has a default for, then our check does not refuse it (BLK-2)."""
    defaults = {name: entry.defaultValueString() for name, entry in entries_of(spark).items()}
    given = {name: text for name, text in defaults.items() if text and text[0] != "<"}

    refused = {name: text for name, text in given.items() if known_settings()[name].failure(text)}

    assert len(given) > 500
    assert refused == {}


def test_a_size_is_read_as_spark_reads_it(spark):
    """Given units in any case, or none, then both have as many MiB."""
    read = spark.sparkContext._jvm.org.apache.spark.network.util.JavaUtils.byteStringAsMb
    texts = ["7", "7m", "7MB", "2g", "2GB", "1t", "3072k", "1p"]

    assert [mib_of(each) for each in texts] == [float(read(each)) for each in texts]
