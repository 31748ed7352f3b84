"""Processes rows as streams of RecordBatch, and reads and writes data files.

It does not use a state store, does not loop over rows in Python, and holds no table in memory.
"""
