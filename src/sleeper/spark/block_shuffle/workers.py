"""What a Python worker of Spark does before it touches rows."""

from __future__ import annotations

import os

import pyarrow as pa


def use_one_thread() -> None:
    """Keep Arrow and polars to one thread each: Spark runs a worker on every core.

    polars reads its setting when it is first imported, which in our modules is when it is first
    used; so this comes before that.
    """
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # noqa: TID251 - polars reads nothing else
    pa.set_cpu_count(1)
