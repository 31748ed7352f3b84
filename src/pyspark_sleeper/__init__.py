"""Where Spark finds the data source `sleeper`: it looks into every package named pyspark_*."""

from sleeper.interfaces.spark_source import SleeperSource as DefaultSource

__all__ = ["DefaultSource"]
