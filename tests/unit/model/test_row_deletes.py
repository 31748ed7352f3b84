"""A deletion finds by bisection whether it hides a key (rule DEL-1)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sleeper.model.ranges import Range, Region
from sleeper.model.row_deletes import RowDelete

LIMITS = st.integers(0, 20)


@st.composite
def ranges(draw) -> Range:
    low = draw(LIMITS)
    return Range(low, draw(st.none() | st.integers(low, 21)))


@given(
    regions=st.lists(st.builds(lambda *sides: Region(sides), ranges(), ranges()), max_size=8),
    key=st.tuples(LIMITS, LIMITS),
)
def test_a_key_is_hidden_that_lies_in_any_of_the_regions(regions, key):
    """Whether they overlap, have no limit, or are empty."""
    delete = RowDelete(3, tuple(regions))

    assert delete.hides(key) == any(key in region for region in regions)
