"""Adapters for one machine: a folder of files."""
