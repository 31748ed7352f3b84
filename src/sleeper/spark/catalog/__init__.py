"""Tables of an instance as a catalog of Spark: `SELECT * FROM sleeper.flights`.

Spark's interface for catalogs is one of Java, so a small jar of ours implements it (`java/`, built
by tools/catalog_jar.py into `sleeper-catalog.jar`). It asks Sleeper in Python about everything:
`sleeper.interfaces.spark_catalog`, a process that the jar starts. This package has what that
process needs of Spark: the protocol, how a table is described and made, how a scan is planned.

1. `SleeperCatalog.java` is loaded by Spark, and starts the process with its first request.
2. `SleeperTable.java` is one version of a table. What it writes, the data source `sleeper` writes.
3. `SleeperScan.java` is the read of one query. `scan_plan.py` chooses leaves and the reader:
   Spark's own of Parquet, or the data source.
"""
