"""Where things lie inside an instance (docs/design.md).

    <table id>/data/partition_<partition id>/<name>.parquet     a data file
    <table id>/data/partition_<partition id>/<name>.sketches    its sketch
    <table id>/statestore/transactions/ · snapshots/            the table's truth
    <table id>/sweep.marker                                     when orphans were last looked for
    tables/                                                     the table index

A data file is named by its path inside the table's folder, so an instance may be moved.
"""

from __future__ import annotations

INSTANCE_PROPERTIES = "instance.properties"
SWEEP_MARKER = "sweep.marker"


def data_file(partition_id: str, name: str) -> str:
    """Return the file name of a data file under a partition's folder."""
    return f"data/partition_{partition_id}/{name}.parquet"


def sketch_file(filename: str) -> str:
    """Return the file name of the sketch beside a data file."""
    return filename.removesuffix(".parquet") + ".sketches"
