"""The rows of the table: what is measured, in what unit, and what is wanted."""

from __future__ import annotations

from dataclasses import dataclass

UPSTREAM = "upstream"
UPSTREAM_IN_OURS = "upstream, our groups"
PLAIN_SPARK = "plain Spark"
# They give Python values, not Arrow, and one process has them open: told in brackets.
EMBEDDED = ("sqlite", "rocksdb", "lmdb")
# The least work that answers need, not a system: it takes no part.
NO_PEERS = ("floor",)


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table.

    Attributes:
        key: Its name for `--rows-only`.
        section: What measures it.
        work: What is done.
        unit: Of its figures.
        wanted: What is wanted, in words.
        limit: The same as a number: of the unit, or of the figure of `against`.
        against: The peer whose figure is multiplied by `limit`; `best` for the best one.
        more_is_better: Whether `limit` is the least and not the most.
    """

    key: str
    section: str
    work: str
    unit: str
    wanted: str = ""
    limit: float | None = None
    against: str = ""
    more_is_better: bool = False


def _most(key: str, section: str, work: str, unit: str, limit: float) -> Row:
    """A row of which at most so much is wanted."""
    return Row(key, section, work, unit, f"{limit:g} {unit}".strip(), limit)


ROWS = (
    _most("hit", "tables", "key look-up, warm", "ms", 0.5),
    _most("hit_files", "tables", "key look-up, {files} files a leaf", "ms", 1.0),
    _most("miss", "tables", "key that is not there", "ms", 0.1),
    _most("many", "tables", "10,000 keys in one call", "ms", 350),
    _most("range_small", "tables", "range of 1,000 rows", "ms", 1.5),
    Row("range_large", "tables", "range of 100,000 rows", "ms", "0.7 of the best", 0.7, "best"),
    _most("count", "tables", "count of all rows", "ms", 1),
    Row("sum", "tables", "sum over all rows", "ms", "1.2 of DataFusion", 1.2, "datafusion"),
    _most("cold", "tables", "cold process to the first answer", "s", 0.30),
    _most("help", "start", "`sleeper --help`", "s", 0.15),
    _most("load", "tables", "load {files} files and upkeep", "s", 10),
    _most("ingest_small", "ingest", "ingest / floor, {ingest_small} rows, 64 leaves", "", 1.5),
    Row("ingest_small_cpu", "ingest", "the same ingest", "s"),
    _most("ingest_large", "ingest", "ingest / floor, {ingest_large} rows, 64 leaves", "", 1.5),
    Row("ingest_large_cpu", "ingest", "the same ingest", "s"),
    _most("append_8", "appends", "append of 1,000 rows, 8 leaves", "ms", 10),
    Row("append_8_syncs", "appends", "fsyncs of it", ""),
    _most("append_64", "appends", "append of 2,000 rows, 64 leaves", "ms", 80),
    Row("append_64_syncs", "appends", "fsyncs of it", ""),
    _most("bucket_append", "bucket_appends", "requests of it in a bucket", "", 20),
    Row(
        "compaction_plain",
        "compaction",
        "compaction, 11 x {compaction}, each its own layout",
        "s",
        "1.3 of upstream",
        1.3,
        UPSTREAM,
    ),
    Row(
        "compaction_equal",
        "compaction",
        "the same, small groups and pages",
        "s",
        "1.0 of upstream",
        1.0,
        UPSTREAM_IN_OURS,
    ),
    Row(
        "compaction_wall",
        "compaction",
        "the same, own layouts, elapsed",
        "s",
        "1.3 of upstream",
        1.3,
        UPSTREAM,
    ),
    _most("compaction_memory", "compaction", "the same, peak memory", "MB", 400),
    Row(
        "compaction_sums",
        "compaction",
        "compaction with sums, 11 rows a key",
        "s",
        "1.0 of upstream",
        1.0,
        UPSTREAM,
    ),
    Row(
        "compaction_age_off",
        "compaction",
        "compaction with age-off of half",
        "s",
        "1.0 of upstream",
        1.0,
        UPSTREAM,
    ),
    Row("compacted_mb", "compaction", "size of files", "MB", "1.0 of upstream", 1.0, UPSTREAM),
    _most("scan_memory", "tables", "memory of a process that scans again and again", "MB", 500),
    _most("spark_files", "spark", "Spark import of files / plain Spark, {spark} rows", "", 0.40),
    _most("spark_frame", "spark", "Spark import of a DataFrame / plain Spark", "", 0.60),
    Row(
        "spark_memory",
        "spark",
        "the same, peak memory",
        "MB",
        "1.0 of plain Spark",
        1.0,
        PLAIN_SPARK,
    ),
    _most("spark_cpu", "spark", "Spark import of files, process tree", "s", 25),
    _most("bucket_open_requests", "bucket", "bucket: open and first key, requests", "", 8),
    _most("bucket_open_round_trips", "bucket", "the same, round trips", "", 3),
    Row("bucket_open_ms", "bucket", "the same at 20 ms a request, elapsed", "ms"),
    Row("bucket_hit_requests", "bucket", "bucket: hit, warm, requests", ""),
    _most("bucket_hit_round_trips", "bucket", "the same, round trips", "", 2),
    _most("bucket_hit_mb", "bucket", "the same, bytes", "MB", 0.1),
    Row("bucket_hit_ms", "bucket", "the same at 20 ms a request, elapsed", "ms"),
    _most("bucket_miss_round_trips", "bucket", "bucket: miss, warm, round trips", "", 1),
    Row("bucket_miss_ms", "bucket", "the same at 20 ms a request, elapsed", "ms"),
    _most(
        "bucket_range_requests", "bucket", "bucket: first range, 128 row groups, requests", "", 5
    ),
    Row("bucket_range_ms", "bucket", "the same at 20 ms a request, elapsed", "ms"),
    Row(
        "bucket_threads",
        "bucket",
        "bucket: look-ups a second, 32 threads, 20 ms",
        "",
        "400",
        400,
        more_is_better=True,
    ),
    Row("bucket_threads_cpu", "bucket", "CPU of one of them", "ms"),
    Row(
        "writers",
        "writers",
        "8 writers x 20 appends, acknowledged",
        "",
        "160",
        160,
        more_is_better=True,
    ),
    Row("writers_rate", "writers", "the same, a second, elapsed", "", more_is_better=True),
    Row("writers_cpu", "writers", "CPU of one of them", "ms"),
    _most("leaves_create", "leaves", "{leaves} leaves: create", "s", 2),
    _most("leaves_open", "leaves", "the same: open and first key", "s", 0.5),
    _most("leaves_key", "leaves", "the same: key", "ms", 0.3),
    _most("leaves_range", "leaves", "the same: range over 20 leaves", "ms", 3),
    _most("leaves_first", "leaves", "the same: first ingest into 10 leaves", "s", 0.5),
    _most("leaves_again", "leaves", "the same: ingest again", "s", 0.05),
    _most("leaves_plan", "leaves", "the same: plan compaction", "s", 0.2),
    Row(
        "references_open",
        "references",
        "{references} references: open a snapshot",
        "s",
        "1.5 s at 10,000,000",
        1.5,
    ),
    Row(
        "references_memory",
        "references",
        "the same, peak memory",
        "MB",
        "2,000 MB at 10,000,000",
        2000,
    ),
)
