"""Verification of an instance: its table index, its tables, and folders of no table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sleeper.errors import DataDamaged, FormatTooNew, TableNotFound
from sleeper.html.values import NotebookHtml
from sleeper.ports.objects import Objects
from sleeper.state.findings import Finding, FindingKind
from sleeper.tables.instance_context import InstanceContext
from sleeper.tables.table import Table, record_of
from sleeper.tables.verify import VerifySummary

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession

_HEX_DIGITS = "0123456789abcdef"
_TABLE_ID = re.compile("[0-9a-f]{8}")

RESTORE_INDEX = "Stop writers, and restore the folder tables/ from a copy of the instance."


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceVerifySummary(NotebookHtml):
    """The result of the checks of an instance.

    Attributes:
        url: The instance.
        tables: The result of each table, in the order of names.
        findings: What is wrong with the table index.
        unknown_folders: Folders that look like those of tables, and that no table has: what the
            deletion of a table left that was interrupted. They are no faults.
    """

    url: str
    tables: tuple[VerifySummary, ...]
    findings: tuple[Finding, ...]
    unknown_folders: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings and all(table.clean for table in self.tables)


def verify(
    context: InstanceContext,
    tables: Sequence[str] | None,
    *,
    quick: bool,
    chain: bool,
    spark: SparkSession | None = None,
    progress: Callable[[str, int, int | None], None],
) -> InstanceVerifySummary:
    """Check everything that is stored of tables; change nothing (`Instance.verify`)."""
    findings = [
        Finding(kind=FindingKind.INDEX, what=f"the table index: {fault}", next_step=RESTORE_INDEX)
        for fault in context.index.faults()
    ]
    try:
        known = context.index.all()
    except (DataDamaged, FormatTooNew):
        if findings:
            return InstanceVerifySummary(
                url=context.url, tables=(), findings=(*findings,), unknown_folders=()
            )
        raise
    chosen = known if tables is None else [record_of(name, context) for name in tables]
    results = []
    for record in chosen:

        def report(done: int, total: int | None, name: str = record.name) -> None:
            progress(name, done, total)

        try:
            results.append(
                Table(record, context).verify(
                    quick=quick, chain=chain, spark=spark, progress=report
                )
            )
        except TableNotFound:
            if tables is not None:
                raise
    ids = {record.table_id for record in (*known, *context.index.all())}
    folders = () if tables is not None else _table_folders(context.objects)
    return InstanceVerifySummary(
        url=context.url,
        tables=(*results,),
        findings=(*findings,),
        unknown_folders=tuple(name for name in folders if name not in ids),
    )


def _table_folders(objects: Objects) -> Iterator[str]:
    """Yield the first parts of keys that look like ids of tables, with one look for each.

    Where objects are in several places, keys ascend only in each place.
    """
    for digit in _HEX_DIGITS:
        after: str | None = ""
        while after is not None:
            listing = objects.listing(digit, after=after)
            first_parts = (info.key.partition("/")[0] for info in listing if "/" in info.key)
            name = next((each for each in first_parts if _TABLE_ID.fullmatch(each)), None)
            if name is not None:
                yield name
            after = None if name is None else f"{name}0"  # "0" comes next after "/"
