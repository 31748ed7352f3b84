"""The files of a table and the references of partitions to them, in Arrow columns."""
