"""What keeps a table quick and small: compaction, splits, merges, garbage."""
