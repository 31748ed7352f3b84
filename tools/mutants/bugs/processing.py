"""Bugs in what is done to rows."""

from __future__ import annotations

from ..bug import Bug

PROCESSING = ("tests/stories/test_aggregation_and_age.py", "tests/unit/engine/processing")

BUGS = (
    Bug(
        name="large-sums-always-limited",
        breaks="A query by key shows the limit of the type where the table refuses such sums.",
        module="tables/read_rows.py",
        right="overflow=overflow_of_queries(reading.processing)",
        wrong="overflow=overflow_of_queries(type(reading.processing)())",
        tests=("tests/stories/test_sums_too_large.py",),
    ),
    Bug(
        name="order-of-groups-trusted",
        breaks="Entries of maps come into other rows, where Arrow groups them in another order.",
        module="engine/processing/aggregations.py",
        right='    found = found.take(pc.sort_indices(found.column("place_min")))\n',
        wrong="",
        tests=PROCESSING,
    ),
    Bug(
        name="sum-cut-by-compaction",
        breaks="A compaction unites rows whose sum does not fit, and writes the limit of the type.",
        module="engine/processing/aggregations.py",
        right="        if self._overflow is not Overflow.KEEP_APART:\n",
        wrong="        if self._overflow is Overflow.KEEP_APART:\n",
        tests=PROCESSING,
    ),
    Bug(
        name="entries-of-other-rows-converted",
        breaks="A query fails if the sum in a map is too large in the last row of a batch.",
        module="engine/processing/aggregations.py",
        right="self._narrow(_own_entries(column), field)",
        wrong="self._narrow(column, field)",
        tests=("tests/unit/engine/processing/test_maps_and_decimals.py",),
    ),
    Bug(
        name="old-row-kept",
        breaks="A row exactly as old as the limit is kept.",
        module="engine/processing/process.py",
        right="    return pc.greater(instants, pa.scalar(limit, pa.int64()))\n",
        wrong="    return pc.greater_equal(instants, pa.scalar(limit, pa.int64()))\n",
        tests=PROCESSING,
    ),
    Bug(
        name="group-cut-off",
        breaks="A group that goes on in the next batch loses its rows so far.",
        module="engine/processing/aggregations.py",
        right="        rows = known if held is None else pa.concat_batches([held, known])\n",
        wrong="        rows = known\n",
        tests=PROCESSING,
    ),
    Bug(
        name="last-is-first",
        breaks="The aggregation `last` takes the first value.",
        module="engine/processing/aggregations.py",
        right="            return column.take(groups.last)\n",
        wrong="            return column.take(groups.first)\n",
        tests=PROCESSING,
    ),
    Bug(
        name="counted-again",
        breaks="A compaction counts rows that stand for many as one.",
        module="engine/processing/aggregations.py",
        right='_reduce(column, "sum", groups.starts)',
        wrong='_reduce(pc.is_valid(column).cast(column.type), "sum", groups.starts)',
        tests=PROCESSING,
    ),
    Bug(
        name="failing-function-run-in-every-leaf",
        breaks="A compaction goes on through all leaves, though the function always fails.",
        module="tables/compact.py",
        right="    stop = len(ended) >= _FAILURES_MAX and all(\n",
        wrong="    stop = len(ended) > 1000 and all(\n",
        tests=("tests/stories/test_own_processing.py",),
    ),
)
