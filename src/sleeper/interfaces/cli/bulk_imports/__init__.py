"""The commands of bulk import, and the options of clusters."""
