"""The properties of an instance itself: its id and format, commits and clocks.

Defaults for tables are not declared here: every `sleeper.default.table.<name>` is derived from
the table property `sleeper.table.<name>`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sleeper.model.known_properties.value_kinds import (
    INSTANCE_ID,
    NOT_NEGATIVE,
    POSITIVE,
    one_of,
    setting,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneralProperties:
    """The instance's id and format."""

    instance_id: str | None = setting(
        "id",
        None,
        INSTANCE_ID,
        "Names the instance and all its resources.",
        editable=False,
        required=True,
    )
    format_version: int = setting(
        "format.version",
        "1",
        POSITIVE,
        "How the instance's files are laid out.",
        since="ours",
        editable=False,
    )
    properties_version: int = setting(
        "properties.version",
        "0",
        NOT_NEGATIVE,
        "How often the instance's properties were changed. Sleeper counts it.",
        since="ours",
        editable=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitProperties:
    """Settings of commits, for tables that do not set their own."""

    async_behaviour: str = setting(
        "default.table.statestore.commit.async.behaviour",
        "PER_IMPLEMENTATION",
        one_of("PER_IMPLEMENTATION", "DISABLED", "ALL_IMPLEMENTATIONS"),
        "Whether jobs commit through the committer: only ALL_IMPLEMENTATIONS says yes, as our "
        "state stores need none.",
    )
    read_back: str = setting(
        "statestore.commit.read.back",
        "auto",
        one_of("auto", "always", "never"),
        "Whether each log entry is read again after it was committed, and compared; auto: "
        "where an object store is not Amazon's own.",
        since="ours",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockProperties:
    """Limits on the difference between clocks."""

    skew_max_minutes: int = setting(
        "clock.skew.max.minutes",
        "10",
        POSITIVE,
        "A writer whose clock is further ahead of the storage's is refused.",
        since="ours",
    )
