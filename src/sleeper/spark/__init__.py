"""Sleeper on Spark. For users: `sleeper.spark.register`, which makes views of tables for SQL.

The modules beneath add rows to tables, read them and compact them on a cluster. Importing them
does not import pyspark.
"""

from sleeper.spark.views import register

__all__ = ["register"]
