"""The Spark session of a driver that spark-submit, or a service in its place, has started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sleeper.errors import MissingExtra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def driver_session(name: str) -> SparkSession:
    """Return the session; master and settings are those that the driver was started with.

    Raises:
        MissingExtra: pyspark is not there: neither Spark's own, nor installed.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise MissingExtra(
            "a bulk import on Spark needs pyspark, which is not installed: start the driver by "
            "spark-submit, or pip install 'sleeper-store[spark]'"
        ) from None
    return SparkSession.builder.appName(name).getOrCreate()
