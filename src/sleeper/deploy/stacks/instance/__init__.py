"""Stacks that every deployment has."""
