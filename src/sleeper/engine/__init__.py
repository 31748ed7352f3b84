"""Rows: iterators of RecordBatch in and out, and the data files they are read from and written to.

Never asks a state store, never loops over rows in Python, never holds a whole table in memory.
"""
