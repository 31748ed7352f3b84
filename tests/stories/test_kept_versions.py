"""A bucket that keeps old versions is used as any other: nothing sees them, nothing asks for them."""

from __future__ import annotations

import boto3
import pytest

import sleeper
from tests.contracts.fault_proxy import fault_proxy
from tests.contracts.s3_server import REGION, aws_endpoint, s3_credentials, s3_server
from tests.stories.test_purges import SCHEMA, addresses, rows_of

__all__ = ["aws_endpoint", "s3_credentials", "s3_server"]


@pytest.fixture
def proxy(aws_endpoint, monkeypatch):
    """Counts the requests of this process."""
    with fault_proxy(aws_endpoint) as opened:
        monkeypatch.setenv("AWS_ENDPOINT_URL", opened.endpoint)
        yield opened


def day_in(place, copy):
    """Use an instance; return its rows, what a backup has, and what checks have found."""
    instance = sleeper.connect(place, create=True)
    keys = addresses(200)
    table = instance.create_table(
        "people", SCHEMA, row_keys=["email"], split_points=[keys[60], keys[120]]
    )
    for part in range(4):
        table.ingest(rows_of(keys[part::4]))
    table.delete(keys=keys[:10])
    table.compact(all_files=True)
    table.collect_garbage(force=True)
    instance.create_table("gone", SCHEMA, row_keys=["email"]).ingest(rows_of(keys[:5]))
    instance.delete_table("gone")
    swept = table.orphans(force=True)
    sleeper.connect(place).backup(copy)
    copied = sleeper.connect(copy).table("people")
    return (
        table.query().to_arrow(),
        copied.query().to_arrow(),
        sum(1 for each in copy.rglob("*.parquet")),
        swept,
        table.verify().findings,
    )


def test_a_day_sees_the_same_and_makes_the_same_requests(proxy, s3_server, tmp_path):
    """Given the same work in two buckets, then rows, copies, findings and requests are equal."""
    s3 = boto3.client("s3", region_name=REGION, endpoint_url=s3_server.endpoint)
    seen, requests = [], []
    for keeps in (False, True):
        bucket = s3_server.new_bucket()
        status = {"Status": "Enabled"}
        if keeps:
            s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration=status)
        proxy.seen.kinds.clear()
        seen.append(day_in(f"s3://{bucket}/shop", tmp_path / f"copy-{keeps}"))
        requests.append(dict(proxy.seen.kinds))

    kept = s3.list_object_versions(Bucket=bucket)
    assert any(not each["IsLatest"] for each in kept["Versions"])
    rows, copied, files, swept, findings = seen[0]
    assert rows.num_rows == len(addresses(200)) - 10
    assert (rows, copied, files, findings) == (*seen[1][:3], seen[1][4])
    assert copied.equals(rows)
    assert swept == seen[1][3]
    assert findings == ()
    assert requests[0] == requests[1]
    assert requests[0]
