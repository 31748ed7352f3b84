"""Bulk imports of a table, and what they return."""
