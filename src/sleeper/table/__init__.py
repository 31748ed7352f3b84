"""A table as its user holds it: what it is, its rows, and how it is kept in order."""
