"""Packages for drivers on EMR: made where a deployment runs, and kept in the instance's bucket."""

from __future__ import annotations

import tarfile
from dataclasses import replace

import pytest

from sleeper.deploy.flow import spark_packages
from sleeper.deploy.flow.checks import Level
from sleeper.deploy.flow.spark_packages import SparkPackages, check_packages, packages_of
from sleeper.errors import StorageFailed, SubmissionFailed
from sleeper.spark.submit.environment import installed_sources
from tests.contracts.s3_server import REGION
from tests.deploy.flow.emulator import account, cloud, s3_credentials
from tests.deploy.stacks.conftest import settings_of

__all__ = ["account", "cloud", "s3_credentials"]

PACKAGES = "sleeper.bulk.import.environment"
STACKS = "sleeper.optional.stacks"
NAMES = ["environment.tar.gz", "sleeper-catalog.jar", "sleeper_bulk_import.py"]
BOTH = ("arm64", "x86_64")


@pytest.fixture
def packages(cloud):
    """The packages of an instance that is not deployed yet: Sleeper's own code alone."""
    return SparkPackages(
        bucket=f"{cloud.instance_id}-bulk-import",
        region=REGION,
        endpoint=cloud.endpoint,
        version="1.0-aaa",
        architectures=BOTH,
        sources=installed_sources(),
        requirements=(),
    )


def make_bucket(cloud, packages):
    cloud.client("s3").create_bucket(Bucket=packages.bucket)


def keys_in(cloud, packages):
    listed = cloud.client("s3").list_objects_v2(Bucket=packages.bucket)
    return [each["Key"] for each in listed.get("Contents", ())]


def deploy(packages):
    """What a deployment does with them; returns what it reported."""
    reported = []
    with packages.made(reported.append) as upload:
        upload()
    return reported


def test_they_are_made_before_the_bucket_and_uploaded_after(cloud, packages, tmp_path):
    """Given no bucket, when stacks are deployed in between, then all of it is there, and whole."""
    reported = []
    with packages.made(reported.append) as upload:
        made = len(reported)
        make_bucket(cloud, packages)
        upload()

    assert made == 2
    assert keys_in(cloud, packages) == [
        f"spark-packages/1.0-aaa/{each}/{name}" for each in BOTH for name in NAMES
    ]
    assert packages.missing() == ()
    assert packages.url == f"s3://{packages.bucket}/spark-packages/1.0-aaa/{{architecture}}"
    archive = tmp_path / "environment.tar.gz"
    cloud.client("s3").download_file(
        packages.bucket, f"spark-packages/1.0-aaa/arm64/{archive.name}", str(archive)
    )
    with tarfile.open(archive) as tar:
        assert {"bin/python", "lib/sleeper/__init__.py"} <= set(tar.getnames())


def test_what_is_there_is_not_made_again(cloud, packages):
    """Given an upload that was interrupted, when it is repeated, then the rest alone is made."""
    make_bucket(cloud, packages)
    deploy(packages)
    cloud.client("s3").delete_object(
        Bucket=packages.bucket, Key="spark-packages/1.0-aaa/x86_64/sleeper_bulk_import.py"
    )

    again, then = deploy(packages), deploy(packages)

    assert [each for each in again if "arm64" in each] == []
    assert len([each for each in again if "x86_64" in each]) == 4
    assert then == []


def test_nothing_is_deployed_where_pip_fetches_nothing(packages):
    """Given a package that there is not, then the error comes before the stacks."""
    impossible = replace(packages, requirements=("no such requirement",))

    with pytest.raises(SubmissionFailed, match="pip could not fetch"), impossible.made(print):
        pytest.fail("stacks would have been deployed")


def test_an_upload_that_fails_can_be_repeated(packages):
    """Given a bucket that is gone, then the error says what to do."""
    with pytest.raises(StorageFailed, match="Type the same command again"):
        deploy(replace(packages, architectures=("x86_64",)))


def test_the_last_version_stays_for_jobs_that_run(cloud, packages):
    """Given four versions, one after the other, then the newest and the one before are kept."""
    make_bucket(cloud, packages)
    versions = [
        replace(packages, version=f"1.{n}-aaa", architectures=("x86_64",)) for n in range(4)
    ]
    for number, each in enumerate(versions):
        deploy(each)
        if number < 3:
            pause_until_another_second(cloud, packages)
    cloud.client("s3").put_object(Bucket=packages.bucket, Key="bulk_import/a.json", Body=b"{}")

    versions[-1].delete_old()

    kept = {key.split("/")[1] for key in keys_in(cloud, packages)}
    assert kept == {"1.2-aaa", "1.3-aaa", "a.json"}


def pause_until_another_second(cloud, packages):
    """Write until the store's clock, which counts seconds, tells versions apart."""
    s3 = cloud.client("s3")
    newest = max(
        each["LastModified"] for each in s3.list_objects_v2(Bucket=packages.bucket)["Contents"]
    )
    while True:
        s3.put_object(Bucket=packages.bucket, Key="clock", Body=b"")
        now = s3.head_object(Bucket=packages.bucket, Key="clock")["LastModified"]
        if now > newest:
            s3.delete_object(Bucket=packages.bucket, Key="clock")
            return


@pytest.mark.parametrize(
    ("stacks", "architectures"),
    [
        ("EmrServerlessBulkImportStack", ("x86_64",)),
        ("PersistentEmrBulkImportStack", ("arm64",)),
        ("EmrServerlessBulkImportStack,PersistentEmrBulkImportStack", BOTH),
        ("EmrBulkImportStack", BOTH),
    ],
)
def test_they_are_for_the_processors_of_the_platforms(stacks, architectures):
    """Given platforms, then each finds its own; a job on a cluster of its own chooses."""
    made = packages_of(settings_of({STACKS: stacks}), None, None)

    assert made is not None
    assert made.architectures == architectures
    assert "boto3" in " ".join(made.requirements)
    assert made.url.startswith("s3://sleeper-demo-bulk-import-")


def test_packages_of_the_users_own_are_left_alone():
    """Given a folder of another bucket, or no EMR, then none are made; an old one is replaced."""
    ours = packages_of(settings_of(), None, None)
    assert ours is not None
    old = ours.url.replace(ours.version, "0.1-aaa")

    assert packages_of(settings_of(), "s3://jars/environment", None) is None
    assert packages_of(settings_of(), old, None) == ours
    ingest = {
        STACKS: "IngestStack,IngestBatcherStack",
        "sleeper.default.table.ingest.batcher.ingest.queue": "standard_ingest",
    }
    assert packages_of(settings_of(ingest), None, None) is None


def test_what_will_be_done_is_told(cloud, packages, monkeypatch):
    """Given packages that are missing, there, of the user, or cannot be made, then each is told."""
    default = settings_of()
    users = settings_of({PACKAGES: "s3://jars/environment"})
    (missing,) = check_packages(default, packages)
    make_bucket(cloud, packages)
    deploy(packages)
    (there,) = check_packages(default, packages)
    (of_the_user,) = check_packages(users, None)
    monkeypatch.setattr(spark_packages, "find_spec", lambda _: None)
    (without_pip,) = check_packages(default, replace(packages, version="2.0-bbb"))

    assert "(arm64, x86_64) will be made by pip" in missing.text
    assert there.text.endswith(packages.url)
    assert "s3://jars/environment" in of_the_user.text
    assert without_pip.level is Level.FAILURE
    assert "python -m ensurepip" in without_pip.text
    assert check_packages(settings_of({STACKS: "IngestStack"}), None) == []
