"""Sketches: quantiles of the row keys of a data file, and their form in files."""
