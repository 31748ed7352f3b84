"""Additions to the language: value classes, late imports, a pause of the garbage collector."""
