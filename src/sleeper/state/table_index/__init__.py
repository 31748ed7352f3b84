"""The table index on a log: which tables there are, folded from its entries."""
