"""Stacks of ingest, batcher, queries and exports."""
