"""Sleeper beside systems that a user could take instead, asked the same questions."""
