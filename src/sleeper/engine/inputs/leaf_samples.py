"""Samples of row keys for each leaf, in the form that `planning.partitions` needs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from sleeper.engine.inputs.key_sample import KeySample
from sleeper.engine.sorting.key_order import Groups, OrderedRows
from sleeper.engine.writing.leaf_files import rows_by_leaf
from sleeper.model.keys import checked_value
from sleeper.model.partitions import PartitionTree, leaf_groups
from sleeper.model.schema import Schema


class RowsOfLeaf:
    """The sampled row keys of one leaf; each dimension can be sorted separately.

    Args:
        rows: The sampled row keys, in order of the first one; at least one row.
        row_count: Rows of the input that they represent.
        schema: The table's.

    Attributes:
        row_count: Rows of the input that they represent.
    """

    __slots__ = ("_columns", "_rows", "_schema", "row_count")

    def __init__(self, rows: pa.Table, row_count: int, schema: Schema) -> None:
        self.row_count = row_count
        self._rows = rows
        self._schema = schema
        self._columns: dict[int, pa.ChunkedArray] = {0: rows.column(schema.row_keys[0].name)}

    def quantile(self, dimension: int, fraction: float) -> Any:
        """Return the value below which `fraction` of the rows are (rule SPL-4)."""
        if dimension not in self._columns:  # seldom needed: usually the first row key is enough
            self._columns[dimension] = self._in_order(self._schema.row_keys[dimension].name)
        column = self._columns[dimension]
        place = min(len(column) - 1, int(fraction * len(column)))
        return checked_value(self._schema.row_keys[dimension], column[place].as_py())

    def _in_order(self, name: str) -> pa.ChunkedArray:
        rows = self._rows.select([name])
        return OrderedRows(rows, [name]).take(0, rows.num_rows).column(name)


def samples_by_leaf(
    sample: KeySample, tree: PartitionTree, schema: Schema
) -> dict[str, RowsOfLeaf]:
    """Return the sample of each leaf that gets rows, by partition id."""
    if not sample.rows.num_rows:
        return {}
    names = schema.row_key_names
    groups = leaf_groups(tree.leaves())
    kind = sample.rows.schema.field(names[0]).type
    bounds = [group.values.min for group in groups[1:]]
    in_order = OrderedRows(sample.rows, names[:1]).take(0, sample.rows.num_rows).combine_chunks()
    samples = {}
    for place, part in Groups(bounds, names[0], kind).parts(in_order):
        for leaf, rows in rows_by_leaf(part, schema, groups[place].leaves):
            row_count = round(rows.num_rows * sample.row_count / sample.rows.num_rows)
            samples[leaf.partition_id] = RowsOfLeaf(rows, row_count, schema)
    return samples
