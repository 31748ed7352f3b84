"""The options of the data source, parsed and checked."""

from __future__ import annotations

from typing import Literal

from sleeper.language.value_classes import dataclass
from sleeper.model.ranges import Region


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """Which rows are to be read.

    Attributes:
        regions: Rows inside any of these, each once.
        as_of: The transaction number of the state to read; None for the newest.
    """

    regions: tuple[Region, ...]
    as_of: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """Which rows are to be streamed.

    Attributes:
        regions: Rows inside any of these, each once.
        start: `earliest` for the table as it is and then what is added; `latest` for what is
            added from now on; a number for what is added after that transaction.
        files_max: Files of one micro-batch, where Spark asks (4.2 and later). A transaction is
            never cut, so one that adds more makes a larger batch; None sets no limit.
    """

    regions: tuple[Region, ...]
    start: Literal["earliest", "latest"] | int = "latest"
    files_max: int | None = None
