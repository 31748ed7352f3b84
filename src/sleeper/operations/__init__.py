"""Verbs: each module does one thing to a table, and they are strangers to each other.

An operation reads the state once, commits at most one transaction and returns a value.
"""
