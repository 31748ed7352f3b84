"""Bugs in reading."""

from __future__ import annotations

from ..bug import Bug

ANY_ORDER = ("tests/any_order/test_instance.py", "-k", "times")
"""Two processes do anything to tables of two row keys and a sort key."""

DAMAGE = ("tests/stories/test_damaged_ranges.py", "tests/unit/engine/scan")

FIRST_ROWS = ("tests/stories/test_prefix_and_limit.py",)

BUGS = (
    Bug(
        name="surrogates-after-a-prefix",
        breaks="The end of a prefix of strings is no character that UTF-8 can hold.",
        module="model/keys.py",
        right="_AFTER_SURROGATES if following == _FIRST_SURROGATE else following",
        wrong="following",
        tests=FIRST_ROWS,
    ),
    Bug(
        name="largest-byte-in-a-prefix",
        breaks="A prefix that ends with the largest byte finds nothing, or raises an error.",
        module="model/keys.py",
        right='prefix.rstrip(b"\\xff")',
        wrong="prefix",
        tests=FIRST_ROWS,
    ),
    Bug(
        name="all-pages-for-the-first-rows",
        breaks="A query with a limit reads pages that its rows are not in.",
        module="engine/read_leaves.py",
        right="if border is not None and border != least:",
        wrong="if border is not None and border == least:",
        tests=FIRST_ROWS,
    ),
    Bug(
        name="limit-ends-at-the-border",
        breaks="A query with a limit ends where its first pages end.",
        module="engine/read_leaves.py",
        right="windows = [Range(least, border), Range(border, None)]",
        wrong="windows = [Range(least, border)]",
        tests=FIRST_ROWS,
    ),
    Bug(
        name="order-trusted",
        breaks="A file of another writer is read by sort keys that it is not ordered by.",
        module="engine/read_leaves.py",
        right="ordered_by=(arrow_schema, schema.key_names)",
        wrong="ordered_by=(arrow_schema, schema.row_key_names)",
        tests=("tests/stories/test_files_of_others.py",),
    ),
    Bug(
        name="first-page-checked-alone",
        breaks="A range reads pages that were not compared with their checksums.",
        module="engine/scan/verified_pages.py",
        right="                yield run\n",
        wrong="                yield run._replace(end=run.first + 1)\n",
        tests=DAMAGE,
    ),
    Bug(
        name="dictionary-not-checked",
        breaks="A range reads a dictionary page that was not compared with its checksum.",
        module="engine/scan/page_runs.py",
        right="        if extra and first:\n",
        wrong="        if extra > first:\n",
        tests=DAMAGE,
    ),
    Bug(
        name="last-page-of-a-run-not-checked",
        breaks="A run of pages is compared with its checksum up to its last page.",
        module="engine/scan/page_runs.py",
        right="        borders = offsets[first : end + 1].tolist()\n",
        wrong="        end -= end > first + 1\n"
        "        borders = offsets[first : end + 1].tolist()\n",
        tests=DAMAGE,
    ),
    Bug(
        name="windows-of-zeros-left-out",
        breaks="Pages whose greatest key ends in a zero byte are not checked.",
        module="engine/scan/verified_pages.py",
        right='        return value[:BOUND_WIDTH_MAX].rstrip(b"\\0")\n',
        wrong="        return value[:BOUND_WIDTH_MAX]\n",
        tests=DAMAGE,
    ),
    Bug(
        name="bombs-behind-sums",
        breaks="A file with right page sums may announce any size in memory.",
        module="engine/scan/page_runs.py",
        right="            check_inflated(data, head, chunk)\n",
        wrong="            pass\n",
        tests=("tests/stories/test_parquet_bombs.py",),
    ),
    Bug(
        name="window-without-regions",
        breaks="A long read gives rows outside of what was asked.",
        module="engine/scan/read_windows.py",
        right="    for region in regions or (whole_region(schema),):\n",
        wrong="    for region in (whole_region(schema),):\n",
        tests=DAMAGE,
    ),
    Bug(
        name="ancestors-passed-over",
        breaks="Files of partitions that were split are not read.",
        module="planning/leaf_queries.py",
        right="        names += state.files.filenames_on(ancestor.partition_id)\n",
        wrong="        pass\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="leaf-not-cut",
        breaks="Each leaf answers from a shared file for all of the leaves.",
        module="planning/leaf_queries.py",
        right="    asked = (region.intersection(leaf.region) for region in regions)\n",
        wrong="    asked = iter(regions)\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="range-end-included",
        breaks="A range takes in its end.",
        module="engine/scan/predicates.py",
        right="        conditions.append(key < _literal(key_range.max, arrow_type))\n",
        wrong="        conditions.append(key <= _literal(key_range.max, arrow_type))\n",
        tests=ANY_ORDER,
    ),
    Bug(
        name="first-file-only",
        breaks="A look-up stops at the first file.",
        module="operations/reading/query.py",
        right="look_up(leaf.filenames, keys, ",
        wrong="look_up(leaf.filenames[:1], keys, ",
        tests=ANY_ORDER,
    ),
    Bug(
        name="estimates-counted",
        breaks="A count takes the estimates that a push-down made.",
        module="planning/row_counts.py",
        right="            if whole and not reference.row_count_estimated:",
        wrong="            if whole:",
        tests=("tests/unit/planning/test_row_counts.py",),
    ),
    Bug(
        name="equal-bound-taken-for-inside",
        breaks="A page whose keys end at a range's end is taken for a part of the range.",
        module="engine/file_rows/row_choice.py",
        right="bool(bounds.maximums[place] < self.containers[number][1])",
        wrong="bool(bounds.maximums[place] <= self.containers[number][1])",
        tests=("tests/stories/test_any_order_and_counts.py",),
    ),
    Bug(
        name="unread-pages-decoded",
        breaks="A scan decodes pages that were not compared with their sums.",
        module="engine/scan/page_runs.py",
        right="found, whole, heads = zlib.crc32(data, span.before), data, span.heads",
        wrong="found, whole, heads = span.after, data, span.heads",
        tests=("tests/stories/test_any_order_and_counts.py",),
    ),
    Bug(
        name="few-rows-not-cut",
        breaks="A range of few rows takes in its end.",
        module="engine/scan/few_rows.py",
        right="            conditions.append(pc.less(",
        wrong="            conditions.append(pc.less_equal(",
        tests=("tests/unit/engine/scan/test_few_rows.py",),
    ),
    Bug(
        name="short-bound-excludes-rows",
        breaks="A range of few rows misses keys whose page bounds were cut short.",
        module="engine/scan/few_rows.py",
        right='searchsorted(high, "right")',
        wrong='searchsorted(high, "left")',
        tests=("tests/unit/engine/scan/test_few_rows.py",),
    ),
    Bug(
        name="differences-of-one-block",
        breaks="Differences of numbers have the least one of the first block throughout.",
        module="lookup/parquet/delta.py",
        right="np.array(lows, np.uint64).repeat(size)",
        wrong="np.array(lows[:1] * len(lows), np.uint64).repeat(size)",
        tests=("tests/unit/lookup/test_delta.py",),
    ),
    Bug(
        name="joined-pages-not-shifted",
        breaks="Texts of a second page are read without the lengths before them.",
        module="lookup/decoding/byte_arrays.py",
        right="        self._shifts: Ints = starts - before\n",
        wrong="        self._shifts: Ints = np.full(len(before), starts[0])\n",
        tests=("tests/unit/lookup/test_delta.py",),
    ),
)
