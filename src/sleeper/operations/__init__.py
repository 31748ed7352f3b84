"""Operations: each module does one thing to a table, and operations do not import each other.

An operation reads the state, commits, and returns a value. It does not print or wait.
"""
