"""The properties for splitting, garbage collection and compaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sleeper.model.known_properties.value_kinds import (
    A_MINUTE_OR_MORE,
    AN_HOUR_OR_MORE,
    BOOLEAN,
    NOT_NEGATIVE,
    PERCENT,
    POSITIVE,
    POSITIVE_LONG,
    class_of,
    list_of,
    one_of,
    setting,
)

FORMATS: Final = list_of(one_of("delta", "iceberg"), "a comma separated list of delta and iceberg")
STRATEGY: Final = class_of("SizeRatioCompactionStrategy", "BasicCompactionStrategy")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplittingProperties:
    """When a leaf partition is split."""

    threshold_rows: int = setting(
        "table.partition.splitting.threshold",
        "1000000000",
        POSITIVE_LONG,
        "Rows in a leaf partition from which on it is split.",
    )
    merging_threshold_rows: int = setting(
        "table.partition.merging.threshold",
        "0",
        NOT_NEGATIVE,
        "Two leaf partitions of one parent with fewer rows together are merged; 0 merges none.",
        since="ours",
    )
    min_rows: int = setting(
        "table.partition.splitting.min.rows",
        "1000",
        POSITIVE_LONG,
        "Sketched rows a leaf needs to be split before a bulk import.",
    )
    min_distribution_percent: int = setting(
        "table.partition.splitting.min.distribution.percent",
        "10",
        PERCENT,
        "Leaves with less than this share of an even spread are not split before a bulk import.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageProperties:
    """When files that nothing references are deleted."""

    delay_minutes: int = setting(
        "table.gc.delay.minutes",
        "15",
        A_MINUTE_OR_MORE,
        "How long a file waits: longer than any query.",
    )
    orphan_age_minutes: int = setting(
        "table.gc.orphan.age.minutes",
        "4320",
        AN_HOUR_OR_MORE,
        "How old a file must be that no commit names to count as left over. Longer than any job.",
        since="ours",
    )
    versions_kept_minutes: int = setting(
        "table.versions.kept.minutes",
        "0",
        NOT_NEGATIVE,
        "How far back as_of can always read. Files wait as long before they are deleted.",
        since="ours",
    )
    revisions_kept_min: int = setting(
        "table.statestore.s3.revisions.kept.min",
        "50",
        POSITIVE,
        "S3StateStore: how many of the last versions as_of can read, whatever their age.",
        since="ours",
    )
    revisions_kept_minutes: int = setting(
        "table.statestore.s3.revisions.kept.minutes",
        "15",
        NOT_NEGATIVE,
        "S3StateStore: how far back as_of can read, unless sleeper.table.versions.kept.minutes is "
        "more. A sweep deletes older versions of the state.",
        since="ours",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishProperties:
    """In which formats of others a table is published, and when."""

    formats: tuple[str, ...] | None = setting(
        "table.publish.formats",
        None,
        FORMATS,
        "Formats in which background work publishes the table for other engines: delta, iceberg.",
        since="ours",
    )
    after_commits: int = setting(
        "table.publish.after.commits",
        "1",
        POSITIVE,
        "After how many commits background work publishes the next version.",
        since="ours",
    )
    kept_minutes: int = setting(
        "table.publish.kept.minutes",
        "60",
        NOT_NEGATIVE,
        "How long the files of a published version are kept after the next one replaced it: longer "
        "than any query of another engine.",
        since="ours",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionProperties:
    """Which files are merged together."""

    strategy: str = setting(
        "table.compaction.strategy.class",
        "SizeRatioCompactionStrategy",
        STRATEGY,
        "How files are chosen.",
    )
    batch_files: int = setting(
        "table.compaction.files.batch.size",
        "12",
        POSITIVE,
        "Files in a job, at most; more than the ratio, if files are chosen by it. Unless it "
        "is set, a job may have up to 1,000 files of at most 1 MiB each and 32 MiB together.",
    )
    creation_limit: int = setting(
        "table.compaction.job.creation.limit", "100000", POSITIVE, "Jobs outstanding, at most."
    )
    size_ratio: int = setting(
        "table.compaction.strategy.sizeratio.ratio",
        "3",
        POSITIVE,
        "A job's other files together have at least this many times the largest one's rows.",
    )
    partition_jobs_max: int = setting(
        "table.compaction.strategy.sizeratio.max.concurrent.jobs.per.partition",
        "2147483647",
        POSITIVE,
        "Jobs at once in one partition, at most.",
    )
    lease_minutes: int = setting(
        "table.compaction.job.lease.minutes",
        "10",
        POSITIVE,
        "A job that has not renewed its claims for so long loses its files to others.",
        since="ours",
    )

    @property
    def obstacle(self) -> str | None:
        """Why files are never merged with these settings; None if they may be.

        By size ratio the other files of a job have together at least ratio times the rows of its
        largest file, so they are at least as many as the ratio.
        """
        is_by_ratio = self.strategy == "SizeRatioCompactionStrategy"
        needed = max(self.size_ratio + 1, 2) if is_by_ratio else 2
        if self.batch_files >= needed:
            return None
        ratio = f" with a size ratio of {self.size_ratio}" if is_by_ratio else ""
        return (
            f"no files are ever merged by {self.strategy}: a job needs at least {needed} files"
            f"{ratio}, and may have {self.batch_files}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SplittingRunProperties:
    """Limits of one run of partition splitting."""

    period_minutes: int = setting(
        "partition.splitting.period.minutes",
        "30",
        POSITIVE,
        "How often leaves are looked at.",
    )
    sketch_files_max: int = setting(
        "partition.splitting.files.maximum", "50", POSITIVE, "Files whose sketches are read."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageRunProperties:
    """Limits of one run of the garbage collector."""

    period_minutes: int = setting(
        "gc.period.minutes", "15", POSITIVE, "How often garbage is collected."
    )
    batch_files: int = setting("gc.batch.size", "10000", POSITIVE, "Files forgotten in a commit.")
    files_max: int = setting("gc.files.maximum", "750000", POSITIVE, "Files deleted in a run.")
    offline_tables: bool = setting(
        "run.gc.offline", "false", BOOLEAN, "Offline tables too.", used=False
    )
