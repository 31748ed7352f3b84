"""Submits jobs of an instance, reports their status, and reads their results."""
