"""Reads rows of single data files without a merge: whole row groups, or parts of them."""
