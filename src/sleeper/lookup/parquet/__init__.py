"""The Parquet file format, as far as a look-up reads it: metadata, page indexes, pages."""
