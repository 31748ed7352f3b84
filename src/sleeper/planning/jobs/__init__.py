"""Plans of jobs: which files make one, how many workers run them, when one is tried again."""
