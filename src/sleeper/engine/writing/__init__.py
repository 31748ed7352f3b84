"""Data files and their sketches written, and the files of users."""
