"""The table index: the tables of an instance, folded from the entries of a log."""
