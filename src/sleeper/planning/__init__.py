"""Plans: functions that take a state and settings and return decisions as values. Pure."""
