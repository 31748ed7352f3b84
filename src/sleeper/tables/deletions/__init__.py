"""Deletions of rows: by keys and ranges, by a condition, by a statement, and once by a job id."""
