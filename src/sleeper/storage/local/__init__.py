"""The adapter for objects in a local folder."""
