"""Decides what to read or write: takes a state, returns a plan. Pure."""
