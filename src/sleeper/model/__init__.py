"""Values: schemas, keys, ranges, partitions, files, queries, properties.

Immutable values that are built, compared and folded. No clock, no I/O, no randomness, no logging.
"""
