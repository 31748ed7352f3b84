"""Rules for jobs: which files become one, how many workers run them, what follows a failure."""
