"""Jobs read files of the places that an instance allows, and look at nothing else."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

import sleeper
from sleeper.errors import BadRequest, JobInvalid
from sleeper.interfaces.rest.app import make_app
from sleeper.jobs.input_places import InputPlaces
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.statuses import JobState
from sleeper.storage.objectstore.inputs import BucketInputs
from tests.stories.test_ingest_jobs import SCHEMA, work, written

PLACES = "sleeper.jobs.input.places"


@pytest.fixture
def looked_at(monkeypatch):
    """The URLs at which anything looks."""
    found: list[str] = []
    monkeypatch.setattr(
        BucketInputs, "find", lambda self, url: found.append(url) or [f"{url}/a.parquet"]
    )
    return found


@pytest.fixture
def folders(tmp_path):
    """A folder that is allowed, one beside it with a longer name, and a link that leads there."""
    inside, beside = tmp_path / "in", tmp_path / "inner"
    for folder in (inside, beside, inside / "whole", inside / "mixed"):
        folder.mkdir()
    written(inside / "one.parquet", 1)
    written(inside / "whole" / "two.parquet", 2)
    written(beside / "secret.parquet", 9)
    written(inside / "mixed" / "three.parquet", 3)
    (inside / "mixed" / "link.parquet").symlink_to(beside / "secret.parquet")
    (inside / "linked").symlink_to(beside)
    return inside, beside


def made(tmp_path, properties):
    instance = sleeper.create_instance(tmp_path / "instance", properties=properties)
    instance.create_table("numbers", SCHEMA, row_keys=["id"])
    return instance


REFUSED = ["{beside}/secret.parquet", "{beside}", "{inside}/linked", "{inside}/mixed"]
REFUSED += ["{inside}/mixed/link.parquet", "{inside}/../inner/secret.parquet", "file://{beside}"]
REFUSED += ["s3://bucket/other/a.parquet", "s3://bucket/inner", "s3://other/in/a.parquet"]
REFUSED += ["s3://bucket/in/../other/a", "s3://bucket/in/%2e%2E/other/a", "s3://bucket", "/"]
REFUSED += ["S3://BUCKET/in/a.parquet", "http://127.0.0.1/a.parquet"]
REFUSED += ["{inside}/*/secret.parquet", "{inside}/link[e]d/*", "s3://buck*t/in/*", "{inside}*/*"]


class TestListedPlaces:
    """An instance with `sleeper.jobs.input.places`."""

    @pytest.fixture
    def instance(self, tmp_path, folders):
        return made(tmp_path, {PLACES: f"s3://bucket/in,{folders[0]}"})

    @pytest.mark.parametrize("path", REFUSED)
    def test_others_are_refused_by_everything_that_takes_jobs(
        self, instance, folders, looked_at, path
    ):
        """Submission, batcher and worker; nothing is looked at, no row comes in (ING-11)."""
        # given a path outside
        path = path.format(inside=folders[0], beside=folders[1])
        jobs = instance.jobs
        submits = (jobs.submit_ingest, jobs.submit_bulk_import, jobs.submit_files)

        # when it is submitted, then it is refused
        for submit in submits:
            with pytest.raises(JobInvalid, match=r"sleeper\.jobs\.input\.places"):
                submit("numbers", [folders[0] / "one.parquet", path])

        # when it comes in a message nevertheless, then workers reject it
        message = {"tableName": "numbers", "files": [path]}
        jobs.send(QueueName.INGEST, json.dumps({"id": "a", **message}))
        jobs.send(QueueName.BULK_IMPORT, json.dumps({"id": "b", **message}))
        jobs.send(QueueName.BATCHER, json.dumps(message))
        for kind in ("ingest", "bulk-import", "batcher"):
            work(instance, kind)
        for job_id in ("a", "b"):
            status = jobs.job(job_id)
            assert status.state is JobState.REJECTED
            assert PLACES in str(status)
        assert [*jobs.submitted_files()] == []
        assert looked_at == []
        assert instance.table("numbers").count() == 0

    def test_theirs_are_read(self, instance, folders, looked_at):
        """A file, a folder, and a URL by each name of its scheme."""
        inside = folders[0]

        instance.jobs.submit_ingest("numbers", [inside / "one.parquet", inside / "whole"])
        instance.jobs.submit_ingest("numbers", ["s3a://bucket/in/a"])
        instance.jobs.submit_files("numbers", ["s3://bucket/in"])

        assert work(instance) >= 1
        assert instance.table("numbers").count() == 2
        assert {"s3a://bucket/in/a", "s3://bucket/in"} <= {*looked_at}


def test_without_a_list_jobs_read_what_their_worker_can_read(tmp_path, folders):
    """As before: who submits by the instance itself has its rights anyway."""
    instance = made(tmp_path, {})

    instance.jobs.submit_ingest("numbers", folders[0] / "mixed")
    work(instance)

    assert instance.table("numbers").count() == 2


@pytest.mark.parametrize("route", ["jobs", "batcher"])
class TestByRest:
    """A server has other rights than its clients."""

    def send(self, instance, route, file, **options):
        client = TestClient(make_app(instance, **options), base_url="http://localhost")
        return client.post(f"/sleeper/tables/numbers/{route}", json={"files": [file]})

    def test_no_bucket_is_looked_at_that_is_not_listed(self, tmp_path, looked_at, route):
        """Though the server could read it."""
        instance = made(tmp_path, {})

        answer = self.send(instance, route, "s3://any/a.parquet")

        assert (answer.status_code, looked_at) == (400, [])
        assert PLACES in answer.json()["detail"]

    @pytest.mark.parametrize(
        "properties",
        [{PLACES: "s3://any/folder"}, {"sleeper.ingest.source.bucket": "any,more"}],
    )
    def test_a_bucket_that_is_listed_is_read(self, tmp_path, looked_at, route, properties):
        """By the places, or as a source of an instance in AWS."""
        instance = made(tmp_path, properties)

        answer = self.send(instance, route, "s3://any/folder/a.parquet")

        assert (answer.status_code, looked_at) == (202, ["s3://any/folder/a.parquet"])

    def test_links_in_a_folder_are_not_followed_outside(self, tmp_path, folders, route):
        """A folder of the input folder has only what lies in that."""
        inside, instance = folders[0], made(tmp_path, {})

        answers = [
            self.send(instance, route, str(inside / name), input_folder=inside).status_code
            for name in ("mixed", "linked", "whole")
        ]

        assert answers == [400, 400, 202]


def test_places_are_listed_by_their_beginning():
    """A place ends at a slash."""
    places = InputPlaces(("s3://bucket/in/", "s3n://other"))

    assert places.refusals(["s3://bucket/in/a", "s3://other/x", "s3a://other"]) == []
    assert len(places.refusals(["s3://bucket/inner", "s3://others/x", "in/a", ""])) == 4
    assert issubclass(JobInvalid, BadRequest)
