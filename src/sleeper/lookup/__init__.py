"""Looks up exact keys: finds the Parquet pages that can contain a key, and reads only those."""
