"""`Table.plot_tree`, `plot_files` and `plot_history`, and what notebooks show for a table."""

from __future__ import annotations

from sleeper.state.table_state import TableState
from sleeper.table.display.amounts import counted
from sleeper.table.display.files_picture import LeafAmounts, files_picture
from sleeper.table.display.markup import Markup, element, facts, joined
from sleeper.table.display.svg import Svg
from sleeper.table.display.tree_picture import tree_picture
from sleeper.table.display.tree_shape import region_text
from sleeper.table.display.views import VIEW_STYLE, schema_grid
from sleeper.table.handle import TableHandle


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
