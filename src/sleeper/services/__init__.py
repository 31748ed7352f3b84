"""Loops that call verbs: they decide when, never what."""
