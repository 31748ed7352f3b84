"""Loops that run operations: they decide when an operation runs, not what it does."""
