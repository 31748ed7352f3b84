"""What all tests of random tables have."""

from __future__ import annotations

import pytest

from tests.random_tables.random_table import bounds_as_they_were


@pytest.fixture(autouse=True)
def _bounds_as_they_were():
    with bounds_as_they_were():
        yield
