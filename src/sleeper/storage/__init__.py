"""Adapters for external systems: they implement the interfaces in `ports`."""
