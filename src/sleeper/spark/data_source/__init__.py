"""The data source `sleeper`: tables as Spark reads and writes them, in batches and streams."""
