"""Stacks of bulk imports on Spark."""
