"""Looks up exact keys: finds the Parquet pages that can contain a key, and reads only those.

Its values are named tuples. A look-up makes dozens of them, and each process defines their classes
before its first one; frozen data classes take longer for both.
"""
