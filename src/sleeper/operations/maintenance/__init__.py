"""Verbs that take care of a table: compaction, splitting, garbage collection."""
