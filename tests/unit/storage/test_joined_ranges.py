"""Which ranges of an object share a request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.storage.objectstore import objects
from sleeper.storage.objectstore.objects import (
    FAR_BYTES,
    NEAR_BYTES,
    RUNS_AT_ONCE,
    SEVERAL_RUNS,
    cut_runs,
    join_ranges,
)

KB = 1 << 10

ranges_of = st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 300)), max_size=40)


class TestJoinRanges:
    """Two ranges share a request only if that costs less than a second request."""

    def test_pages_far_apart_have_requests_of_their_own(self):
        """Pages of two columns of one row group are 450 KB apart, and have 14 KB and 50 KB."""
        pages = [(0, 14 * KB), (450 * KB, 50 * KB)]

        assert join_ranges(pages) == [(0, 14 * KB), (450 * KB, 500 * KB)]

    def test_near_ranges_share_a_request(self):
        """The bytes between two small ranges cost less than a request."""
        assert join_ranges([(NEAR_BYTES + 10, 5), (0, 10)]) == [(0, NEAR_BYTES + 15)]

    def test_ranges_nearer_than_they_are_large_share_a_request(self):
        """Half of what is read may be unasked for; no more than that."""
        size = 100 * KB

        assert len(join_ranges([(0, size), (2 * size, size)])) == 1
        assert len(join_ranges([(0, size), (2 * size, size // 2)])) == 2

    def test_a_gap_beyond_the_bound_is_never_read(self):
        """However large the ranges are."""
        size = 8 * FAR_BYTES

        assert len(join_ranges([(0, size), (size + FAR_BYTES + 1, size)])) == 2

    def test_gaps_may_be_wider_where_there_would_be_several_requests(self):
        """The pages of a hundred keys, 30 KB apart, share requests; those of a few columns do not."""
        few = [(30 * KB * n, KB) for n in range(SEVERAL_RUNS)]
        several = [(30 * KB * n, KB) for n in range(SEVERAL_RUNS + 1)]
        far = [(40 * KB * n, KB) for n in range(SEVERAL_RUNS + 1)]

        assert len(join_ranges(few)) == SEVERAL_RUNS
        assert len(join_ranges(several)) == 1
        assert len(join_ranges(far)) == SEVERAL_RUNS + 1

    def test_gaps_may_be_wider_where_requests_would_wait(self):
        """A hundred pages, 100 KB apart, are not worth three rounds of requests."""
        few = [(100 * KB * n, KB) for n in range(RUNS_AT_ONCE)]
        many = [(100 * KB * n, KB) for n in range(100)]

        assert len(join_ranges(few)) == RUNS_AT_ONCE
        assert len(join_ranges(many)) == 1

    @given(ranges_of)
    def test_each_range_is_whole_in_one_run(self, ranges):
        """Runs ascend, are disjoint, and have the bytes of every range."""
        body = bytes(n * 7 % 251 for n in range(2_300))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(objects, "NEAR_BYTES", 16)
            runs = join_ranges(each for each in ranges if each[1])

        cut = cut_runs(runs, [memoryview(body)[start:end] for start, end in runs], ranges)

        assert cut == [body[offset : offset + length] for offset, length in ranges]
        borders = [border for run in runs for border in run]
        assert borders == sorted(set(borders))
