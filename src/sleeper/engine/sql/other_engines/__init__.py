"""Tables as other engines read them: polars and DuckDB."""
