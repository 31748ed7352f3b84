"""Requests of an append of 2,000 rows to a table of 64 leaves in a bucket, once the table is open.

python -m bench.anchors.inside.bucket_appends
"""

from __future__ import annotations

import json

import pyarrow as pa

import sleeper
from bench.aws_server import aws_server, new_bucket, use
from bench.counting_proxy import counting_proxy, told
from bench.random_rows import SCHEMA, rows, split_points

LEAVES, ROWS, APPENDS = 64, 2_000, 3

if __name__ == "__main__":
    with aws_server() as endpoint, counting_proxy(endpoint) as proxy:
        use(proxy.endpoint)
        url = f"s3://{new_bucket(endpoint)}/bench"
        table = sleeper.connect(url, create=True).create_table(
            "t", SCHEMA, row_keys=["key"], sort_keys=["ts"], split_points=split_points(LEAVES)
        )
        parts = [pa.Table.from_batches(rows(ROWS, seed), SCHEMA) for seed in range(APPENDS + 2)]
        for part in parts[:2]:
            table.ingest(part)
        proxy.take()
        for part in parts[2:]:
            table.ingest(part)
        taken = proxy.take()
        print(json.dumps({"requests": len(taken) / APPENDS, "what": told(taken)}))
