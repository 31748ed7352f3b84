"""What can happen to a table: one module for files, for claims on them, and for partitions."""
