"""Checks before anything is deployed. Each is one function that returns what it found."""
