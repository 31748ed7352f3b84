"""Where fresh ids come from."""

from __future__ import annotations

from collections.abc import Callable

NewId = Callable[[], str]
"""Makes an id that nobody else has, a random UUID as text."""
