"""Reads input of a table, and converts its columns to the table's schema."""
