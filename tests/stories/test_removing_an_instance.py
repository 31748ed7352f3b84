"""`sleeper destroy` removes an instance in a folder or a bucket, and leaves what is not its own."""

from __future__ import annotations

import uuid

import boto3
import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import InstanceNotFound, StorageFailed
from sleeper.instance.instance import removal_of
from sleeper.storage.local.folder import FolderObjects
from tests.contracts.s3_server import REGION, aws_endpoint, bucket, s3_credentials, s3_server
from tests.stories.test_ingest_jobs import SCHEMA, work, written
from tests.unit.interfaces.command_line import sleeper as command

__all__ = ["aws_endpoint", "bucket", "s3_credentials", "s3_server"]


def filled(url, **properties):
    """Make an instance with a table, rows and a job at a place."""
    instance = sleeper.create_instance(url, properties)
    table = instance.create_table("numbers", SCHEMA, row_keys=["id"])
    table.ingest(pa.table({"id": ["a"], "n": [1]}, schema=SCHEMA))
    return instance


def test_a_folder_is_gone_with_all_of_it(tmp_path):
    """Given tables, jobs and changed properties, when it is destroyed, then there is no folder."""
    folder = tmp_path / "demo"
    instance = filled(folder)
    instance.set_properties({"sleeper.gc.batch.size": 5})
    instance.jobs.submit_ingest("numbers", written(tmp_path / "one.parquet", 1))
    assert work(instance) == 1
    instance.close()

    removed = command("destroy", folder, "--yes")

    assert removed.exit_code == 0, removed.output
    assert "numbers" in removed.output
    assert not folder.exists()


def test_other_files_stay(tmp_path):
    """Given files of somebody else in the folder, then they are told, and they stay."""
    folder = tmp_path / "demo"
    filled(folder)
    (folder / "notes.txt").write_text("mine")
    (folder / "services").mkdir(exist_ok=True)
    (folder / "services" / "mine.txt").write_text("mine")

    removed = command("destroy", folder, "--yes")

    assert removed.exit_code == 0, removed.output
    assert "2 other files" in removed.output
    assert "notes.txt" in removed.output
    left = sorted(path.name for path in folder.rglob("*") if path.is_file())
    assert left == ["mine.txt", "notes.txt"]


def test_nothing_is_removed_without_a_yes(tmp_path):
    """Given the answer no, or nobody who answers, then the instance is as before."""
    instance = filled(tmp_path / "demo")

    for answer in ("no\n", None):
        refused = command("destroy", tmp_path / "demo", answer=answer)
        assert refused.exit_code == 1
        assert "--yes" in refused.output

    assert instance.table("numbers").query(key="a").to_pylist() == [{"id": "a", "n": 1}]


def test_what_failed_is_done_by_doing_it_again(tmp_path, monkeypatch):
    """Given a disk that fails at any deletion, when it is done again, then all is gone."""
    delete = FolderObjects.delete
    for fails_at in range(20):
        folder = tmp_path / f"demo{fails_at}"
        filled(folder)
        calls = []

        def failing(self, keys, calls=calls, fails_at=fails_at):
            calls.append(keys)
            if len(calls) == fails_at + 1:
                raise StorageFailed("no disk")
            delete(self, keys)

        with monkeypatch.context() as patched:
            patched.setattr(FolderObjects, "delete", failing)
            try:
                removal_of(folder).carry_out()
            except StorageFailed:
                assert (folder / "instance.properties").exists()
            else:
                break
        removal_of(folder).carry_out()
        assert not folder.exists()
    assert fails_at >= 3


def test_where_no_instance_is_nothing_is_removed(tmp_path):
    """Given a folder of files, then it is refused."""
    (tmp_path / "notes.txt").write_text("mine")

    refused = command("destroy", tmp_path, "--yes")

    assert refused.exit_code == 1
    assert "nothing is to be removed" in refused.output
    assert (tmp_path / "notes.txt").exists()


def test_a_folder_of_a_bucket_goes_with_its_queues_and_tables(aws_endpoint, bucket):
    """Given jobs in AWS, then queues and tables of this instance go, those of another stay."""
    name = f"demo-{uuid.uuid4().hex[:6]}"
    jobs = {"sleeper.id": name, "sleeper.jobs.url": "sqs"}
    other = filled(f"s3://{bucket}/other", **{**jobs, "sleeper.id": f"{name}-2"})
    instance = filled(f"s3://{bucket}/demo", **jobs)
    for each in (instance, other):
        each.jobs.send("ingest", "{}")
        work(each)  # its tracker keeps why it was refused

    removal_of(instance.url).carry_out()

    sqs = boto3.client("sqs", region_name=REGION, endpoint_url=aws_endpoint)
    left = sqs.list_queues(QueueNamePrefix=f"sleeper-{name}-")["QueueUrls"]
    assert left
    assert all(f"sleeper-{name}-2-" in url for url in left)
    s3 = boto3.client("s3", region_name=REGION, endpoint_url=aws_endpoint)
    keys = [each["Key"] for each in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    assert all(key.startswith("other/") for key in keys)
    assert other.table("numbers").query(key="a").to_pylist() == [{"id": "a", "n": 1}]
    with pytest.raises(InstanceNotFound):
        removal_of(instance.url)
