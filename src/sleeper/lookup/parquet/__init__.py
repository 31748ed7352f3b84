"""Reads the parts of the Parquet format that a look-up needs: metadata, page indexes, pages."""
