"""Exact keys: finds the few Parquet pages that can hold a key and reads those alone."""
