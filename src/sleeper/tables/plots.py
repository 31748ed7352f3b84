"""Pictures of a table: its partition tree, its leaves, its history; and its view in notebooks."""

from __future__ import annotations

from collections.abc import Sequence

from sleeper.html.markup import counted, element, facts
from sleeper.html.values import in_notebook
from sleeper.model.schema import Schema, schema_grid
from sleeper.pictures.charts import HistoryPoint, LeafAmounts, files_picture, history_picture
from sleeper.pictures.svg import Svg
from sleeper.pictures.tree import region_text, tree_picture
from sleeper.state.table_state import TableState
from sleeper.tables.history import HistoryEntry, history
from sleeper.tables.open_table import OpenTable


def plot_tree(table: OpenTable) -> Svg:
    """Return a picture of the partition tree (`Table.plot_tree`)."""
    state = table.store.refresh()
    title = f"Partitions of {table.name}, transaction {state.number:,}"
    return tree_picture(state.tree, state.files.totals(), table.schema, title=title)


def plot_files(table: OpenTable) -> Svg:
    """Return a picture of the leaves, in key order (`Table.plot_files`)."""
    state = table.store.refresh()
    return files_picture(
        leaf_amounts(table.schema, state),
        title=f"Leaves of {table.name}, transaction {state.number:,}",
        split_rows=table.properties.splitting.threshold_rows,
    )


def plot_history(table: OpenTable, limit: int | None) -> Svg:
    """Return a picture of the last transactions over time (`Table.plot_history`)."""
    points = history_points(history(table, limit))
    return history_picture(points, title=f"History of {table.name}")


def history_points(entries: Sequence[HistoryEntry]) -> list[HistoryPoint]:
    """Return transactions as the picture takes them."""
    return [
        HistoryPoint(
            number=each.number,
            time=each.time,
            rows_added=each.rows_added,
            rows_removed=each.rows_removed,
        )
        for each in entries
    ]


def leaf_amounts(schema: Schema, state: TableState) -> list[LeafAmounts]:
    """Return the files and rows of each leaf, in key order."""
    totals = state.files.totals()
    amounts = []
    for leaf in state.tree.leaves():
        total = totals.get(leaf.partition_id)
        amounts.append(
            LeafAmounts(
                keys=region_text(leaf, schema),
                files=total.references if total else 0,
                rows=total.rows if total else 0,
            )
        )
    return amounts


def table_html(table: OpenTable) -> str:
    """Return what notebooks show for a table: its counts and its fields."""
    state = table.store.refresh()
    totals = state.files.totals().values()
    rows = sum(total.rows for total in totals)
    estimated = bool(state.deletes) or any(total.estimated for total in totals)
    shown = [
        ("table", table.name),
        ("id", table.record.table_id),
        ("rows", f"{'about ' if estimated else ''}{rows:,}"),
        ("files", f"{state.files.file_count:,}"),
        ("leaves", counted(state.tree.leaf_count, "leaf", "leaves")),
        ("transaction", f"{state.number:,}"),
        ("maintenance", "online" if table.record.online else "offline"),
    ]
    hint = element("p", "table.plot_tree() draws its partitions, table.query() reads rows.")
    return in_notebook(facts(shown), schema_grid(table.schema), hint)
