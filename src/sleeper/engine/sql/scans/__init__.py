"""What a statement reads of a table: a dataset, its streams, rows in temp files."""
