"""Compaction workers: they claim jobs in the tables' logs, run them and commit them."""
