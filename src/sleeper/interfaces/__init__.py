"""Edges: where people and machines come in. Parse, call one thing, present."""
