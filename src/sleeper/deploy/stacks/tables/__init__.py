"""Stacks that maintain tables."""
