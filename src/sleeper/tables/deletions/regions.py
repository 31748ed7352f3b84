"""Deletes rows by their keys (rule DEL-1).

1. keys, ranges and prefixes are made regions, and checked
2. one entry says that rows inside of them are deleted from the files that the table has now, and
   no file is changed
3. readers leave these rows out from then on, and compactions write files without them
4. more keys than readers can be told of are written out of their leaves (`keys`)

Rows that are added later stay, whatever their keys.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from sleeper.errors import BadRequest, QueryInvalid
from sleeper.html.values import NotebookHtml
from sleeper.model.ranges import Region, whole_region
from sleeper.model.row_deletes import REGIONS_MAX
from sleeper.model.schema import Schema
from sleeper.state.table_state import Transaction
from sleeper.state.transactions.deletes import DeleteRows
from sleeper.tables.open_table import OpenTable
from sleeper.tables.query import regions_asked_for


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDeletion(NotebookHtml):
    """A deletion of rows that was committed.

    Attributes:
        transaction: The transaction after which the rows are gone; the newest one if there was no
            file that could have any.
        regions: How many keys and ranges were deleted; 0 for a condition.
        rows: How many rows went, where they were read: by a condition, or by more than 1,000 keys
            of a table of format 1; else None.
        job_id: The id that was given; None without one.
        already_committed: True if this id was committed before: nothing was deleted now.
    """

    transaction: int
    regions: int
    rows: int | None = None
    job_id: str | None = None
    already_committed: bool = False


class Described(Protocol):
    """What a table says of itself, open for whatever."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def schema(self) -> Schema:
        """Its schema."""
        ...

    @property
    def arrow_schema(self) -> pa.Schema:
        """Its columns in Arrow."""
        ...


def delete_rows(
    table: OpenTable, regions: Sequence[Region], beside: Sequence[Transaction] = ()
) -> RowDeletion:
    """Delete the rows inside of regions (`Table.delete`), unless what is beside is refused."""
    check_few(regions)
    known = table.store.state()  # the commit looks for newer entries, so nothing else need do it
    if known.format < 2:
        known = table.store.refresh()
    if known.format < 2:
        table.check_exists()
        raise BadRequest(
            f"table {table.name!r} has format 1, whose readers would show deleted rows. Nothing "
            f"was deleted. Upgrade it first: `sleeper table upgrade {table.name}` or "
            "table.upgrade(); versions of Sleeper that do not know format 2 refuse it then"
        )
    both = [*beside, *([DeleteRows(regions=tuple(regions))] if regions else [])]
    if not both:
        return RowDeletion(transaction=table.store.refresh().number, regions=0)
    try:
        state = table.store.commit_group(both, together=True).of_all()
    finally:
        table.undo_commit_if_deleted()
    return RowDeletion(transaction=state.number, regions=len(regions))


def check_few(*given: object) -> None:
    """Check how many keys or regions one deletion has, as far as they can be counted.

    To make regions of all that a request can hold takes many seconds.

    Raises:
        BadRequest: they are too many.
    """
    for each in given:
        if isinstance(each, str | bytes) or not isinstance(each, Sized):
            continue  # no list: it is refused by what it is, or counted when it is read
        if len(each) > REGIONS_MAX:
            raise BadRequest(
                f"these are {len(each):,} keys and ranges, and one deletion may have "
                f"{REGIONS_MAX:,} here: delete more keys by Table.delete(keys=...) or `sleeper "
                "delete --keys-file`, or delete ranges"
            )


def deleted_regions(table: Described, **asked: Any) -> list[Region]:
    """Return the regions that arguments of `Table.delete` ask for, without empty ones.

    Raises:
        QueryInvalid: they do not fit the schema, or one region is the whole key space.
        BadRequest: they are too many.
    """
    check_few(asked["keys"], asked["regions"])
    regions = regions_asked_for(table.schema, table.arrow_schema, **asked)
    if whole_region(table.schema) in regions:
        raise QueryInvalid(
            "delete needs a key, keys, a range, regions or a prefix, and none that has every key; "
            f"to remove all rows, use reinitialise() (`sleeper table reinitialise {table.name}`)"
        )
    return [each for each in dict.fromkeys(regions) if not any(s.is_empty for s in each.ranges)]
