"""Writes data files inside DataFusion: rows never become Python objects."""
