"""Operations of maintenance: compaction, splitting and merging of leaves, garbage collection."""
