"""Plans of the partition tree: which leaves are split, merged, or made before an import."""
