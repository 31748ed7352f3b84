"""`Table.plot_tree`, `plot_files` and `plot_history`, and what notebooks show for a table."""

from __future__ import annotations

from collections.abc import Sequence

from sleeper.pictures.charts import HistoryPoint, LeafAmounts, files_picture, history_picture
from sleeper.pictures.markup import Markup, counted, element, facts, joined
from sleeper.pictures.svg import Svg
from sleeper.pictures.tree import region_text, tree_picture
from sleeper.pictures.views import VIEW_STYLE, schema_grid
from sleeper.state.table_state import TableState
from sleeper.tables.handle import TableHandle
from sleeper.tables.history import HistoryEntry
from sleeper.tables.history_methods import history


def plot_tree(self: TableHandle) -> Svg:
    """Return a picture of the partition tree: splits, leaves, their rows and files."""
    state = self.state()
    title = f"Partitions of {self.name}, transaction {state.number:,}"
    return tree_picture(state.tree, state.files.totals(), self.schema, title=title)


def plot_files(self: TableHandle) -> Svg:
    """Return a picture of how many files and rows each leaf has, in key order."""
    state = self.state()
    return files_picture(
        leaf_amounts(self, state),
        title=f"Leaves of {self.name}, transaction {state.number:,}",
        split_rows=self.properties.splitting.threshold_rows,
    )


def plot_history(self: TableHandle, limit: int | None = 500) -> Svg:
    """Return a picture of the last transactions over time, and of the rows that they added.

    Args:
        limit: The number of transactions; None for all. The log is read for them.

    Raises:
        BadRequest: the table's state store keeps no log.
    """
    points = history_points(history(self, limit))
    return history_picture(points, title=f"History of {self.name}")


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


def leaf_amounts(self: TableHandle, state: TableState) -> list[LeafAmounts]:
    """Return the files and rows of each leaf, in key order."""
    totals = state.files.totals()
    amounts = []
    for leaf in state.tree.leaves():
        total = totals.get(leaf.partition_id)
        amounts.append(
            LeafAmounts(
                keys=region_text(leaf, self.schema),
                files=total.references if total else 0,
                rows=total.rows if total else 0,
            )
        )
    return amounts


def table_html(self: TableHandle) -> str:
    """Return what notebooks show for a table: its counts and its fields."""
    state = self.state()
    totals = state.files.totals().values()
    rows = sum(total.rows for total in totals)
    estimated = any(total.estimated for total in totals)
    shown = [
        ("table", self.name),
        ("id", self.table_id),
        ("rows", f"{'about ' if estimated else ''}{rows:,}"),
        ("files", f"{state.files.file_count:,}"),
        ("leaves", counted(state.tree.leaf_count, "leaf", "leaves")),
        ("transaction", f"{state.number:,}"),
        ("maintenance", "online" if self.online else "offline"),
    ]
    hint = element("p", "table.plot_tree() draws its partitions, table.query() reads rows.")
    body: list[Markup] = [VIEW_STYLE, facts(shown), schema_grid(self.schema), hint]
    return element("div", joined(body), class_="sleeper-view")
