"""The pipeline on Spark: rows into a table and out of it, at any scale."""
