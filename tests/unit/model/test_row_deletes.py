"""A deletion finds by bisection whether it hides a key (rule DEL-1)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sleeper.model import row_deletes
from sleeper.model.ranges import Range, Region
from sleeper.model.row_deletes import RowDelete, regions_without

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


@given(
    regions=st.lists(st.builds(lambda *sides: Region(sides), ranges(), ranges()), max_size=3),
    holes=st.lists(st.builds(lambda *sides: Region(sides), ranges(), ranges()), max_size=6),
    key=st.tuples(LIMITS, LIMITS),
)
def test_what_is_left_of_regions_is_in_no_hole(regions, holes, key):
    """Whether holes overlap, have no limit, or are empty."""
    left = regions_without(regions, holes)

    wanted = any(key in region for region in regions) and not any(key in hole for hole in holes)
    assert any(key in region for region in left) == wanted


@given(
    regions=st.lists(st.builds(lambda side: Region((side,)), ranges()), max_size=4),
    holes=st.lists(st.builds(lambda side: Region((side,)), ranges()), max_size=8),
    key=st.tuples(LIMITS),
)
def test_what_is_left_of_regions_of_one_row_key_is_in_no_hole(regions, holes, key):
    """Whether holes overlap, meet, have no limit, or are empty; and nothing empty is left."""
    left = regions_without(regions, holes)

    wanted = any(key in region for region in regions) and not any(key in hole for hole in holes)
    assert any(key in region for region in left) == wanted
    assert not any(region.ranges[0].is_empty for region in left)


def test_many_holes_are_cut_out_one_after_the_other(monkeypatch):
    """Given 1,000 deleted keys in any order, no piece is looked at for each of them."""
    looks, cut = [], row_deletes._without
    monkeypatch.setattr(
        row_deletes, "_without", lambda region, hole: looks.append(hole) or cut(region, hole)
    )
    anything = Range(0, None)
    holes = [Region((Range(n, n + 1), anything)) for n in range(1, 5_000, 5)]

    left = regions_without([Region((anything, anything))], holes[::2] + holes[1::2])

    assert len(left) == len(holes) + 1
    assert len(looks) == len(holes)
