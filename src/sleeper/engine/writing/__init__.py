"""Writes data files with their sketches, and files of users."""
