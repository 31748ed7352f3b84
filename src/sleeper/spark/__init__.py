"""Sleeper on Spark. For users: `add_catalog` makes an instance a catalog of a session, `register`
makes views of tables; `catalog_jar` is the jar that the catalog needs.

The modules beneath add rows to tables, read them and compact them on a cluster. Importing them
does not import pyspark.
"""

from sleeper.spark.catalog.sessions import add_catalog, catalog_jar
from sleeper.spark.views import register

__all__ = ["add_catalog", "catalog_jar", "register"]
