"""Purges: row keys are removed from all that an instance stores, and what was found is told."""
