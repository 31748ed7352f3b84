"""Pictures of tables: valid SVG of bounded size for any tree, any names and any history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest

import sleeper
from sleeper.model.partitions import Partition, PartitionTree, split_partition
from sleeper.model.ranges import whole_region
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.pictures.charts import (
    HistoryPoint,
    LeafAmounts,
    files_picture,
    groups,
    history_picture,
    nice_step,
)
from sleeper.pictures.svg import LEVELS, Svg, shade_of
from sleeper.pictures.tree import branches, tree_picture
from sleeper.state.file_references import PartitionTotals

SVG = "{http://www.w3.org/2000/svg}"
SCHEMA = Schema(row_keys=(Field("key", Primitive.STRING),))
START = datetime(2026, 1, 1, tzinfo=UTC)


def totals(rows: int, files: int = 1) -> PartitionTotals:
    return PartitionTotals(
        references=files, rows=rows, rows_exact_whole=rows, references_on_jobs=0, estimated=False
    )


def skewed_tree(leaves: int) -> PartitionTree:
    """A tree that was split at its right end again and again."""
    numbers = count()
    leaf = Partition(partition_id="root", region=whole_region(SCHEMA))
    partitions = {"root": leaf}
    for n in range(leaves - 1):
        split = split_partition(leaf, f"k{n:06}", new_id=lambda: f"p{next(numbers)}")
        partitions |= {each.partition_id: each for each in split}
        leaf = split[2]
    return PartitionTree.of(partitions.values())


def balanced_tree(leaves: int) -> PartitionTree:
    points = [f"k{n:06}" for n in range(leaves - 1)]
    instance = sleeper.connect("memory://")
    return instance.create_table("t", SCHEMA, split_points=points).state().tree


def parsed(picture: Svg) -> ET.Element:
    return ET.fromstring(picture._repr_svg_())


def words(picture: Svg) -> list[str]:
    return [each.text or "" for each in parsed(picture).iter(f"{SVG}text")]


def test_a_small_tree_shows_each_split_point_and_each_leaf():
    """Given three leaves, their rows and files are in the picture."""
    tree = balanced_tree(3)
    leaves = [leaf.partition_id for leaf in tree.leaves()]

    shown = words(tree_picture(tree, {leaves[0]: totals(12_300, 4)}, SCHEMA))

    assert {"12.3k rows", "4 files", "< k000000 \u2264", "< k000001 \u2264"} <= {*shown}
    assert "3 leaves at depth up to 2, 4 file references, 12,300 rows" in shown


def test_a_picture_fits_the_page_of_others_and_is_named():
    """Given a page narrower than a picture, as of nbconvert, its HTML shrinks with the page and is
    no wider than it was drawn; for readers of screens it has a role, a title and a description.
    """
    picture = tree_picture(balanced_tree(5), {}, SCHEMA, title="Partitions of <planes>")

    (shown,) = ET.fromstring(picture._repr_html_())

    assert (shown.get("width"), shown.get("height")) == ("100%", None)
    assert shown.get("style") == f"max-width:{picture.width}px"
    assert shown.get("viewBox") == f"0 0 {picture.width} {picture.height}"
    assert shown.get("role") == "img"
    assert shown.get("aria-label").startswith("Partitions of <planes>. ")
    assert "5 leaves" in shown.get("aria-label")
    assert shown.findtext(f"{SVG}title") == "Partitions of <planes>"


@pytest.mark.parametrize("make", [balanced_tree, skewed_tree], ids=["balanced", "skewed"])
@pytest.mark.parametrize("leaves", [1, 2, 10, 3_000])
def test_a_picture_of_any_tree_is_small_and_counts_every_leaf(make, leaves):
    """Branches of many leaves are drawn as one box, whatever the tree's shape."""
    tree = make(leaves)

    picture = tree_picture(tree, {}, SCHEMA)

    assert len(picture._repr_svg_()) < 60_000
    assert words(picture)[1].startswith(f"{leaves:,} lea")
    assert picture.height < 800
    assert len(parsed(picture).findall(f"{SVG}rect")) < 400


@pytest.mark.parametrize("make", [balanced_tree, skewed_tree], ids=["balanced", "skewed"])
def test_the_boxes_at_the_bottom_stand_for_all_leaves_once(make):
    """Given a tree, the leaves of merged boxes and single leaves add up without gap or overlap."""
    tree = make(1_000)
    rows = {leaf.partition_id: totals(n) for n, leaf in enumerate(tree.leaves())}

    drawn = list(branches(tree, rows, leaves_min=30, depth_max=12))

    ends = [each for each in drawn if each.is_merged or each.partition.is_leaf]
    assert [each.first_leaf for each in ends] == [
        sum(other.leaves for other in ends[:n]) for n in range(len(ends))
    ]
    assert sum(each.leaves for each in ends) == 1_000
    assert sum(each.rows for each in ends) == drawn[0].rows == sum(range(1_000))


def test_names_with_markup_and_control_characters_are_text():
    """A split point or a name may hold anything a string holds."""
    name = "<script>alert(1)</script>\0\x1b\ud800&\"'"
    schema = Schema(row_keys=(Field("<a>", Primitive.STRING), Field("b", Primitive.LONG)))
    instance = sleeper.connect("memory://")
    table = instance.create_table("t", schema, split_points=["<b>\x01"])

    picture = tree_picture(table.state().tree, {}, schema, title=name)

    root = parsed(picture)
    assert root.find(f".//{SVG}script") is None
    assert "<script>alert(1)</script>\ufffd\ufffd\ufffd&\"'" in words(picture)
    assert any("<b>\ufffd" in text for text in words(picture))


def test_many_leaves_are_drawn_as_few_bars_with_the_largest_of_each_group():
    """Given 10,000 leaves, one of which has many files, it is seen."""
    leaves = [LeafAmounts(keys=f"k{n}", files=1, rows=10) for n in range(10_000)]
    leaves[4_321] = LeafAmounts(keys="busy", files=77, rows=10)

    picture = files_picture(leaves)

    tips = [each.text or "" for each in parsed(picture).iter(f"{SVG}title")]
    assert any("busy: 77 files" in tip for tip in tips)
    assert len(tips) <= 2 * 160 + 1
    assert "files a leaf: median 1, most 77" in picture.description


@pytest.mark.parametrize("leaves", [1, 159, 160, 161, 10_000])
def test_groups_of_bars_cover_all_leaves_once(leaves):
    """No leaf is left out of a picture, and none is in two bars."""
    found = [n for group in groups(leaves) for n in group]

    assert found == [*range(leaves)]
    assert all(len(group) for group in groups(leaves))


@pytest.mark.parametrize("most", [1, 2, 3, 7, 12, 99, 1_000, 123_456, 9 * 10**12])
def test_an_axis_has_two_to_five_lines(most):
    """Whatever the amounts are, the axis is readable."""
    assert 1 <= most / nice_step(most) <= 4


@pytest.mark.parametrize("days", [0, 1 / 86_400, 1, 400, 20_000])
def test_a_history_of_any_length_is_one_picture(days):
    """From one transaction to fifty years of them."""
    points = [
        HistoryPoint(
            number=n, time=START + timedelta(days=days * n / 50), rows_added=n, rows_removed=n // 2
        )
        for n in range(1, 51)
    ]

    picture = history_picture(points)

    assert "transactions 1 to 50" in picture.description
    assert len(parsed(picture).findall(f"{SVG}rect")) <= 3 * 91 + 1


def test_a_history_without_transactions_says_so():
    """An empty picture would look like a fault."""
    assert "no transaction yet" in words(history_picture([]))


def test_a_saved_picture_brings_its_style_for_light_and_dark(tmp_path):
    """Then any browser shows the file as the notebook does."""
    tree_picture(balanced_tree(2), {}, SCHEMA).save(tmp_path / "tree.svg")

    saved = (tmp_path / "tree.svg").read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in saved
    assert ET.fromstring(saved).attrib["role"] == "img"


def test_shades_grow_with_the_amount():
    """Darker means more; only nothing has the first shade."""
    shades = [shade_of(n, 100) for n in range(101)]

    assert shades == sorted(shades)
    assert (shades[0], shades[1], shades[100]) == (0, 1, LEVELS - 1)


def test_a_table_draws_its_tree_and_its_leaves():
    """The methods of a table read its newest state."""
    instance = sleeper.connect("memory://")
    schema = pa.schema([("key", pa.string())])
    table = instance.create_table("t", schema, row_keys=["key"], split_points=["m"])
    table.ingest([{"key": "a"}, {"key": "b"}, {"key": "z"}])

    assert {"2 rows", "1 row"} <= {*words(table.plot_tree())}
    assert "rows a leaf: median 1.5, most 2" in table.plot_files().description
    assert "transactions 1 to 2" in table.plot_history().description
    assert "transactions 2 to 2" in table.plot_history(limit=1).description
