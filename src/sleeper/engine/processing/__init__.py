"""Applies a table's filters, aggregations and function to rows."""
