"""The table of what Sleeper is measured by: before, now, and the best of the peers."""
