"""The commands of bulk import: the import itself, where it runs, and what a cluster needs."""
