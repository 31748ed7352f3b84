"""Pure functions that take a state and settings and return plans: what to read or write."""
